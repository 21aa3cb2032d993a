//! Several workers on one machine, each with its own balancer and thread.

use crate::lab::TICK;
use scx_baton::balancer::fake::{FakeHost, regular_tree};
use scx_baton::balancer::{
    Balancer, ConfigCell, Host, MoveOutcome, PullPlan, Shared, Snapshot, TaskView, WhyIdle,
    WorkConservation,
};
use scx_baton::cpumask::Cpumask;
use scx_baton::policy::{Facts, Tunables};
use scx_baton::stats::Verdict;
use scx_baton::units::{CpuId, Nanos, TaskKey};
use std::sync::{Arc, Mutex, MutexGuard};

/// A worker's handle on the one machine.
#[derive(Clone)]
struct Handle(Arc<Mutex<FakeHost>>);

impl Handle {
    fn lock(&self) -> MutexGuard<'_, FakeHost> {
        self.0.lock().expect("no worker panicked")
    }
}

impl Host for Handle {
    fn observe(&mut self, cpus: &Cpumask, snapshot: &mut Snapshot) {
        self.lock().observe(cpus, snapshot);
    }
    fn list_queue(&mut self, src: CpuId, dst: CpuId, out: &mut Vec<TaskView>) {
        self.lock().list_queue(src, dst, out);
    }
    fn allowed_in(&mut self, task: TaskKey, mask: &Cpumask) -> Option<CpuId> {
        self.lock().allowed_in(task, mask)
    }
    fn move_tasks(
        &mut self,
        src: CpuId,
        dst: CpuId,
        tasks: &[TaskKey],
        outcomes: &mut Vec<MoveOutcome>,
    ) {
        self.lock().move_tasks(src, dst, tasks, outcomes);
    }
    fn push_running(&mut self, src: CpuId, dst: CpuId, task: TaskKey) -> MoveOutcome {
        self.lock().push_running(src, dst, task)
    }
    fn set_pull_plan(&mut self, cpu: CpuId, plan: &PullPlan) {
        self.lock().set_pull_plan(cpu, plan);
    }
    fn look_again(&mut self, cpu: CpuId) {
        self.lock().look_again(cpu);
    }
}

#[test]
fn workers_side_by_side_lose_no_task_and_no_flag() {
    let tree = Arc::new(regular_tree(4, 1, 4, 1));
    let facts = Arc::new(Facts::new(&tree));
    let shared = Arc::new(Shared::new(&tree, &facts, TICK));
    let config = Arc::new(ConfigCell::new(Tunables::default()));
    let handle = Handle(Arc::new(Mutex::new(FakeHost::new(16))));
    handle.lock().add_hogs(0, 24, 1);
    handle.lock().look_costs = Nanos::from_us(20);
    let counters = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|node| {
                let cpus = (4 * node..4 * node + 4).map(CpuId);
                let shard = Cpumask::from_cpus(16, cpus);
                let (tree, facts, shared) =
                    (Arc::clone(&tree), Arc::clone(&facts), Arc::clone(&shared));
                let mut balancer = Balancer::new(tree, facts, shared, &shard);
                let (mut handle, config) = (handle.clone(), Arc::clone(&config));
                scope.spawn(move || {
                    let mut running = config.load();
                    for round in 0..2000 {
                        config.refresh(&mut running);
                        balancer.round(&mut handle, &running);
                        balancer.publish_plans(&mut handle, &running);
                        if node == 0 && round == 1000 {
                            config.update(["serialize-scope=level"]).expect("a valid setting");
                        }
                    }
                    balancer.counters().total()
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().expect("no panic")).collect::<Vec<_>>()
    });
    let host = handle.lock();
    let mut pids: Vec<u32> = host.queues.iter().flatten().map(|t| t.key.pid).collect();
    pids.sort_unstable();
    assert_eq!(pids, (1..=24).collect::<Vec<_>>());
    assert!(host.nr_running().iter().all(|&n| n > 0), "{:?}", host.nr_running());
    // The machine counts as many moves as the workers saw applied.
    let applied: u64 = counters.iter().map(|c| c.sum(|c| c.moves[0])).sum();
    assert_eq!(applied, host.moves.len() as u64);
    let free = |level| shared.gate.try_acquire(Default::default(), level).is_some();
    assert!(free(scx_baton::domains::LevelKind::Numa(1)), "given back");
}

#[test]
fn work_is_conserved_soon_after_a_bad_start() {
    let mut lab = crate::lab::Lab::new(regular_tree(2, 1, 4, 2));
    lab.host.add_hogs(0, 16, 1);
    // Periodic passes alone: the level of the nodes is balanced every 16 to 32 ms.
    lab.run(200);
    let mut wc = WorkConservation::new(16);
    let all = Cpumask::full(16);
    let mut snapshot = Snapshot::new(16);
    for _ in 0..500 {
        lab.run(1);
        lab.host.observe(&all, &mut snapshot);
        let log = lab.balancer.decisions();
        let why = |cpu, _| match log.last_for(cpu)?.verdict {
            Verdict::Skipped(reason) => Some(WhyIdle::Skipped(reason)),
            Verdict::Moved(_) => None,
        };
        let waiting = lab.host.waiting();
        let may_run = |w: &scx_baton::balancer::Waiting, cpu| lab.host.may_run(w.task, cpu);
        wc.check(&snapshot, &all, Nanos::from_ms(10), &waiting, may_run, why);
    }
    assert_eq!(wc.violations(), 0, "{}", wc.first().unwrap());
}

#[test]
fn what_one_worker_undoes_of_another_is_seen() {
    let tree = regular_tree(2, 1, 2, 1);
    let facts = Facts::new(&tree);
    let shared = Shared::new(&tree, &facts, TICK);
    let task = TaskKey { pid: 3, generation: 1 };
    assert!(!shared.note_move(task, CpuId(0), CpuId(2), Nanos::from_ms(1)));
    assert!(shared.note_move(task, CpuId(2), CpuId(0), Nanos::from_ms(11)));
    assert!(!shared.note_move(task, CpuId(0), CpuId(2), Nanos::from_ms(22)));
}
