//! A machine in memory for tests and benchmarks of the balancer: queues of tasks with loads and
//! affinities, and a clock that goes where it is told. No scheduling policy of its own beyond
//! "the first task runs".

mod situation;
mod tree;

pub use situation::Situation;
pub use tree::regular_tree;

use crate::balancer::{
    CpuView, ForkPlan, Host, MoveOutcome, PullPlan, Snapshot, TaskView, Waiting,
};
use crate::cpumask::Cpumask;
use crate::units::{Capacity, CpuId, Load, Nanos, TaskKey, Util, Weight};

/// One task of the fake machine.
#[derive(Clone, Debug)]
pub struct FakeTask {
    /// Which.
    pub key: TaskKey,
    /// Its share.
    pub weight: Weight,
    /// Its load.
    pub load: Load,
    /// Its utilisation.
    pub util: Util,
    /// CPUs it may run on; `None`: all.
    pub allowed: Option<Cpumask>,
    /// When it last ran; long ago by default.
    pub last_ran: Nanos,
    /// Whether it may not migrate for now.
    pub migration_disabled: bool,
    /// Whether it is a kernel thread bound to its CPU.
    pub percpu_kthread: bool,
}

impl FakeTask {
    /// A nice-0 task that always wants to run.
    pub fn hog(pid: u32) -> Self {
        Self {
            key: TaskKey { pid, generation: 1 },
            weight: Weight::NICE_0,
            load: Load(1024),
            util: Util(1024),
            allowed: None,
            last_ran: Nanos::ZERO,
            migration_disabled: false,
            percpu_kthread: false,
        }
    }

    /// The same, bound to these CPUs.
    pub fn on(self, cpus: Cpumask) -> Self {
        Self { allowed: Some(cpus), ..self }
    }

    /// The same with another load.
    pub fn load(self, load: u64) -> Self {
        Self { load: Load(load), ..self }
    }

    fn may_run_on(&self, cpu: CpuId) -> bool {
        self.allowed.as_ref().is_none_or(|mask| mask.test(cpu))
    }
}

/// The machine. The first task of each queue is the running one.
#[derive(Clone, Debug)]
pub struct FakeHost {
    /// The time.
    pub now: Nanos,
    /// Queues by CPU.
    pub queues: Vec<Vec<FakeTask>>,
    /// What each CPU can deliver, and could undisturbed.
    pub capacity: Vec<(Capacity, Capacity)>,
    /// Load of a misfit task, by CPU.
    pub misfit: Vec<Load>,
    /// Usual idle time, for all CPUs.
    pub avg_idle: Nanos,
    /// Every move done: task, source, destination.
    pub moves: Vec<(TaskKey, CpuId, CpuId)>,
    /// What the next requests end as, instead of being done.
    pub refuse: Option<MoveOutcome>,
    /// Time that each look at the machine takes.
    pub look_costs: Nanos,
    /// The idle CPUs kicked, in order.
    pub kicks: Vec<CpuId>,
    /// CPUs that were told to use their pull plans.
    pub looks_again: Vec<CpuId>,
    /// The pull plans set, by CPU.
    pub pull_plans: Vec<PullPlan>,
    /// The fork plans set, by node.
    pub fork_plans: Vec<ForkPlan>,
    /// Whether tasks are forked on every node.
    pub forks: bool,
    views: Vec<CpuView>,
}

impl FakeHost {
    /// An idle machine at one second past zero.
    pub fn new(width: usize) -> Self {
        let mut host = Self {
            now: Nanos::from_secs(1),
            queues: vec![Vec::new(); width],
            capacity: vec![(Capacity::SCALE, Capacity::SCALE); width],
            misfit: vec![Load::ZERO; width],
            avg_idle: Nanos::from_ms(1),
            moves: Vec::new(),
            refuse: None,
            look_costs: Nanos::ZERO,
            kicks: Vec::new(),
            looks_again: Vec::new(),
            pull_plans: vec![PullPlan::default(); width],
            fork_plans: vec![ForkPlan::default(); width],
            forks: false,
            views: vec![CpuView::default(); width],
        };
        host.refresh_all();
        host
    }

    /// Adds a task to a CPU's queue.
    pub fn add(&mut self, cpu: u32, task: FakeTask) {
        self.queues[cpu as usize].push(task);
        self.refresh(CpuId(cpu));
    }

    /// Adds `n` nice-0 tasks that always want to run, pids from `pid` up.
    pub fn add_hogs(&mut self, cpu: u32, n: u32, pid: u32) {
        (pid..pid + n).for_each(|pid| self.add(cpu, FakeTask::hog(pid)));
    }

    /// Takes a task off its CPU's queue: it has ended or sleeps.
    pub fn remove(&mut self, pid: u32) {
        for cpu in 0..self.queues.len() {
            self.queues[cpu].retain(|t| t.key.pid != pid);
            self.refresh(CpuId::from(cpu));
        }
    }

    /// What waits in all queues, since the beginning as far as is known.
    pub fn waiting(&self) -> Vec<Waiting> {
        let queue = |(cpu, queue): (usize, &Vec<FakeTask>)| {
            let waits = move |t: &FakeTask| Waiting {
                task: t.key,
                cpu: CpuId::from(cpu),
                since: Nanos::ZERO,
            };
            queue.iter().skip(1).map(waits).collect::<Vec<_>>()
        };
        self.queues.iter().enumerate().flat_map(queue).collect()
    }

    /// Whether a task may run on a CPU; false if there is no such task.
    pub fn may_run(&self, task: TaskKey, cpu: CpuId) -> bool {
        let task = self.queues.iter().flatten().find(|t| t.key == task);
        task.is_some_and(|t| t.may_run_on(cpu))
    }

    /// Tasks on each CPU.
    pub fn nr_running(&self) -> Vec<usize> {
        self.queues.iter().map(Vec::len).collect()
    }

    /// Takes over changes made to the public fields.
    pub fn refresh_all(&mut self) {
        (0..self.queues.len()).for_each(|cpu| self.refresh(CpuId::from(cpu)));
    }

    fn refresh(&mut self, cpu: CpuId) {
        let queue = &self.queues[cpu.index()];
        let (capacity, capacity_orig) = self.capacity[cpu.index()];
        let nr_running = queue.len() as u32;
        let wanted: Util = queue.iter().map(|t| t.util).sum();
        self.views[cpu.index()] = CpuView {
            nr_running,
            load: queue.iter().map(|t| t.load).sum(),
            util: wanted.min(Util(capacity.0)),
            // Tasks that share a CPU are runnable all the time.
            runnable: if nr_running > 1 { Util(1024 * u64::from(nr_running)) } else { wanted },
            capacity,
            capacity_orig,
            misfit_load: if queue.is_empty() { Load::ZERO } else { self.misfit[cpu.index()] },
            idle: queue.is_empty(),
            idle_since: Nanos::ZERO,
            avg_idle: self.avg_idle,
            current: queue.first().map_or(TaskKey::default(), |t| t.key),
        };
    }

    fn take(&mut self, src: CpuId, dst: CpuId, at: usize) -> MoveOutcome {
        if let Some(outcome) = self.refuse {
            return outcome;
        }
        let task = &self.queues[src.index()][at];
        if !task.may_run_on(dst) || task.migration_disabled {
            return MoveOutcome::RefusedAffinity;
        }
        let task = self.queues[src.index()].remove(at);
        self.moves.push((task.key, src, dst));
        self.queues[dst.index()].push(task);
        self.refresh(src);
        self.refresh(dst);
        MoveOutcome::Applied
    }
}

impl Host for FakeHost {
    fn observe(&mut self, cpus: &Cpumask, snapshot: &mut Snapshot) {
        for cpu in cpus.iter() {
            snapshot.cpus[cpu.index()] = self.views[cpu.index()];
        }
        self.now += self.look_costs;
        snapshot.now = self.now;
    }

    fn list_queue(&mut self, src: CpuId, dst: CpuId, out: &mut Vec<TaskView>) {
        out.clear();
        let room = out.capacity();
        out.extend(self.queues[src.index()].iter().skip(1).take(room).map(|t| TaskView {
            key: t.key,
            weight: t.weight,
            load: t.load,
            util: t.util,
            last_ran: t.last_ran,
            allowed_on_dst: t.may_run_on(dst),
            migration_disabled: t.migration_disabled,
            percpu_kthread: t.percpu_kthread,
            running: false,
        }));
    }

    fn allowed_in(&mut self, task: TaskKey, mask: &Cpumask) -> Option<CpuId> {
        let task = self.queues.iter().flatten().find(|t| t.key == task)?;
        mask.iter().find(|&cpu| task.may_run_on(cpu))
    }

    fn move_tasks(
        &mut self,
        src: CpuId,
        dst: CpuId,
        tasks: &[TaskKey],
        outcomes: &mut Vec<MoveOutcome>,
    ) {
        outcomes.clear();
        for &key in tasks {
            let at = self.queues[src.index()].iter().position(|t| t.key == key);
            outcomes.push(match at {
                None => MoveOutcome::RefusedGone,
                Some(0) => MoveOutcome::RefusedRunning,
                Some(at) => self.take(src, dst, at),
            });
        }
    }

    fn push_running(&mut self, src: CpuId, dst: CpuId, task: TaskKey) -> MoveOutcome {
        match self.queues[src.index()].first() {
            Some(first) if first.key == task => self.take(src, dst, 0),
            _ => MoveOutcome::RefusedRunning,
        }
    }

    fn kick(&mut self, cpu: CpuId) {
        self.kicks.push(cpu);
    }

    fn set_pull_plan(&mut self, cpu: CpuId, plan: &PullPlan) {
        self.pull_plans[cpu.index()] = *plan;
    }

    fn set_fork_plan(&mut self, home: u16, plan: &ForkPlan) {
        self.fork_plans[usize::from(home)] = *plan;
    }

    fn has_forked(&self, _home: u16) -> bool {
        self.forks
    }

    fn look_again(&mut self, cpu: CpuId) {
        self.looks_again.push(cpu);
    }
}
