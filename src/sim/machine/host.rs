//! The machine as the balancer sees it. Looking takes time: the clock that the balancer reads
//! runs ahead of the event by what it has looked at so far.

use super::{Cause, CpuState, Distance, Machine, TaskId, TaskState};
use crate::balancer::{
    CpuView, Host, MoveOutcome, PullPlan, PullReport, Snapshot, TaskView, Waiting,
};
use crate::cpumask::Cpumask;
use crate::sim::bugs::Bug;
use crate::sim::events::Event;
use crate::units::{Capacity, CpuId, Load, Nanos, TaskKey, Util};

/// Age of a CPU's averages at which a look brings them up to date (kernel: at each tick, or for
/// idle CPUs when their blocked load is looked at).
const STALE: Nanos = Nanos::from_ms(1);

impl Machine {
    /// Begins a look by `cpu`; [`Machine::end_look`] gives the time that it took.
    pub(crate) fn begin_look(&mut self, cpu: CpuId) {
        self.looker = Some(cpu);
        self.look_time = Nanos::ZERO;
    }

    /// Ends a look and charges it to the CPU.
    pub(crate) fn end_look(&mut self) -> Nanos {
        let took = std::mem::take(&mut self.look_time);
        if let Some(cpu) = self.looker.take()
            && took > Nanos::ZERO
        {
            self.steal(cpu, Cause::Balance, took.0);
        }
        took
    }

    pub(crate) fn find(&self, key: TaskKey) -> Option<TaskId> {
        let id = TaskId(key.pid.checked_sub(1)?);
        let task = self.tasks.get(id.index())?;
        (task.key == key && task.state() != TaskState::Dead).then_some(id)
    }

    /// The time as programs read it.
    pub(crate) fn clock(&self) -> Nanos {
        self.now + self.clock_ahead + self.look_time
    }

    fn view(&mut self, cpu: CpuId) -> CpuView {
        let now = self.now;
        let c = &mut self.cpus[cpu.index()];
        if now < c.fresh_until {
            return self.views[cpu.index()];
        }
        if now - c.averaged_at() > STALE {
            c.average(now);
        }
        // A misfit grows while it runs.
        if c.capacity == self.largest {
            c.fresh_until = c.averaged_at() + STALE;
        }
        let (load, util, runnable) = c.averages();
        let current = c.current();
        let misfit = match current {
            Some(id) if c.capacity < self.largest => {
                let task = &self.tasks[id.index()];
                if task.util().0 * 1280 > c.capacity.0 * 1024 { task.load() } else { Load::ZERO }
            }
            _ => Load::ZERO,
        };
        let view = CpuView {
            nr_running: c.nr_running(),
            load: Load(load),
            util: Util(util),
            runnable: Util(runnable),
            capacity: c.capacity.max(Capacity(1)),
            capacity_orig: c.capacity,
            misfit_load: misfit,
            idle: matches!(c.state, CpuState::Idle | CpuState::Entering),
            idle_since: c.idle_since + self.clock_ahead,
            avg_idle: c.avg_idle,
            current: current.map_or(TaskKey::default(), |id| self.tasks[id.index()].key),
        };
        self.views[cpu.index()] = view;
        view
    }

    /// What it costs to look at CPUs of one word of a mask, in hundredths of a ns.
    fn look_cost(&self, word: usize, mut bits: u64) -> u64 {
        let (pct, Some(looker)) = (self.costs.look_pct, self.looker) else { return 0 };
        if let Some(distance) = self.places.distance_to_word(looker, word) {
            return u64::from(bits.count_ones()) * self.costs.transfer(distance) * pct;
        }
        let mut cost = 0;
        while bits != 0 {
            let cpu = CpuId(word as u32 * 64 + bits.trailing_zeros());
            bits &= bits - 1;
            cost += self.costs.transfer(self.places.distance(looker, cpu)) * pct;
        }
        cost
    }

    /// Brings a snapshot up to date without any cost, for observers.
    pub(crate) fn observe_free(&mut self, snapshot: &mut Snapshot) {
        for i in 0..self.cpus.len() {
            if self.online.test(CpuId::from(i)) {
                snapshot.cpus[i] = self.view(CpuId::from(i));
            }
        }
        snapshot.now = self.now;
    }

    /// What waits in all queues.
    pub(crate) fn waiting(&self, into: &mut Vec<Waiting>) {
        into.clear();
        for (i, cpu) in self.cpus.iter().enumerate() {
            let waiting = |task: TaskId| Waiting {
                task: self.tasks[task.index()].key,
                cpu: CpuId::from(i),
                since: cpu.waiting_since + self.clock_ahead,
            };
            into.extend(cpu.queue.iter().map(|q| waiting(q.task)));
        }
    }

    /// Whether a task may run on a CPU.
    pub(crate) fn may_run(&self, task: TaskKey, cpu: CpuId) -> bool {
        self.find(task).is_some_and(|id| self.tasks[id.index()].may_run_on(cpu))
    }

    /// Moves a waiting task.
    fn move_one(&mut self, key: TaskKey, src: CpuId, dst: CpuId) -> MoveOutcome {
        let Some(id) = self.find(key) else { return MoveOutcome::RefusedGone };
        let task = &self.tasks[id.index()];
        match task.state() {
            TaskState::Running => return MoveOutcome::RefusedRunning,
            TaskState::Waiting if task.cpu == src => {}
            _ => return MoveOutcome::RefusedGone,
        }
        if !task.may_run_on(dst) || !self.online.test(dst) {
            return MoveOutcome::RefusedAffinity;
        }
        if !self.dequeue(id) {
            return MoveOutcome::RefusedGone;
        }
        self.note_move(key, src, dst);
        self.enqueue(id, dst);
        MoveOutcome::Applied
    }

    fn note_move(&mut self, key: TaskKey, src: CpuId, dst: CpuId) {
        let distance = self.places.distance(src, dst);
        if distance != Distance::Same {
            self.totals.moves[distance as usize - 1] += 1;
        }
        self.tracer.moves(self.now, key, src, dst, distance);
    }

    /// The CPU helps itself from its pull plan, as the BPF component does: the first waiting task
    /// of the first source that may run here. A CPU that was `told` of work throws no dice.
    pub(crate) fn pull_by_plan(&mut self, cpu: CpuId, told: bool) -> PullReport {
        let c = &mut self.cpus[cpu.index()];
        let plan = c.pull_plan;
        let diced = if told { 0 } else { plan.left_out(c.plan_uses) };
        c.plan_uses = c.plan_uses.wrapping_add(u32::from(!told));
        let (mut left_out, mut found) = (0, None);
        for source in plan.sources() {
            if diced >> source.level & 1 == 1 {
                left_out |= 1 << source.level;
                continue;
            }
            let node = self.places.node_mask(source.cpu);
            let may = |id: &TaskId| self.tasks[id.index()].may_run_on(cpu);
            let first_in = |src: CpuId| {
                let mut queue = self.cpus[src.index()].queue.iter().map(|q| q.task);
                queue.find(may).map(|id| (self.tasks[id.index()].key, src))
            };
            let nr_running = |cpu: CpuId| self.cpus[cpu.index()].nr_running();
            found = source.queues(node, nr_running).find_map(first_in);
            if found.is_some() {
                break;
            }
        }
        let moved = |&(key, src): &_| self.move_one(key, src, cpu) == MoveOutcome::Applied;
        let pulled = found.filter(moved);
        let cost = Nanos(self.costs.pass_ns);
        PullReport { cpu, pulled, left_out, cost, at: self.clock() }
    }
}

impl Host for Machine {
    fn observe(&mut self, cpus: &Cpumask, snapshot: &mut Snapshot) {
        let (pct, looker) = (self.costs.look_pct, self.looker);
        let mut cost = 0;
        for cpu in cpus.iter() {
            snapshot.cpus[cpu.index()] = self.view(cpu);
            if let Some(looker) = looker
                && pct > 0
            {
                cost += self.costs.transfer(self.places.distance(looker, cpu)) * pct;
            }
        }
        self.look_time += Nanos(cost / 100);
        if cost > 0 {
            self.look_time += Nanos(self.costs.pass_ns);
        }
        snapshot.now = self.clock();
        if self.averages_only && cpus.weight() > self.places.widest_node() {
            Bug::spoil_view(snapshot, self.places.node_of());
        }
    }

    fn next_maybe_idle(&mut self, mask: &Cpumask, from: CpuId) -> Option<CpuId> {
        let first = from.index() / 64;
        let mut passed = 0;
        let mut found = None;
        for (i, &word) in mask.words().iter().enumerate().skip(first) {
            let word = if i == first { word >> (from.0 % 64) << (from.0 % 64) } else { word };
            let idle = word & self.idle.words()[i];
            // Those below the first that idles are looked at in vain.
            let in_vain = if idle == 0 { word } else { word & ((idle & idle.wrapping_neg()) - 1) };
            passed += self.look_cost(i, in_vain);
            if idle != 0 {
                found = Some(CpuId(i as u32 * 64 + idle.trailing_zeros()));
                break;
            }
        }
        self.look_time += Nanos(passed / 100);
        found
    }

    fn list_queue(&mut self, src: CpuId, dst: CpuId, out: &mut Vec<TaskView>) {
        out.clear();
        let now = self.now;
        let mut order = std::mem::take(&mut self.scratch);
        order.clear();
        let queue = &self.cpus[src.index()].queue;
        order.extend(queue.iter().map(|q| (self.tasks[q.task.index()].state_since, q.task)));
        order.sort_unstable();
        for &(_, id) in order.iter().take(out.capacity()) {
            let task = &mut self.tasks[id.index()];
            task.average(now);
            out.push(TaskView {
                key: task.key,
                weight: task.weight,
                load: task.load(),
                util: task.util(),
                last_ran: match task.last_ran {
                    Nanos::ZERO => Nanos::ZERO,
                    at => at + self.clock_ahead,
                },
                allowed_on_dst: task.may_run_on(dst),
                migration_disabled: false,
                percpu_kthread: false,
                running: false,
            });
        }
        self.scratch = order;
    }

    fn allowed_in(&mut self, task: TaskKey, mask: &Cpumask) -> Option<CpuId> {
        let id = self.find(task)?;
        mask.iter().find(|&cpu| self.tasks[id.index()].may_run_on(cpu))
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
            outcomes.push(self.move_one(key, src, dst));
        }
    }

    fn push_running(&mut self, src: CpuId, dst: CpuId, task: TaskKey) -> MoveOutcome {
        let source = &self.cpus[src.index()];
        let current = source.current().filter(|id| self.tasks[id.index()].key == task);
        let Some(id) = current else { return MoveOutcome::RefusedRunning };
        if source.line_asked.is_some() {
            return MoveOutcome::RefusedRunning;
        }
        if !self.tasks[id.index()].may_run_on(dst) || !self.online.test(dst) {
            return MoveOutcome::RefusedAffinity;
        }
        self.stop_running(src);
        self.tasks[id.index()].become_(TaskState::Waiting, self.now);
        self.note_move(task, src, dst);
        self.enqueue(id, dst);
        self.dispatch(src);
        MoveOutcome::Applied
    }

    fn kick(&mut self, cpu: CpuId) {
        let at = self.now + Nanos(self.costs.ipi_ns);
        self.events.plan(at, Event::Kick(cpu));
    }

    fn set_pull_plan(&mut self, cpu: CpuId, plan: &PullPlan) {
        self.cpus[cpu.index()].pull_plan = *plan;
    }

    fn look_again(&mut self, cpu: CpuId) {
        let at = self.now + Nanos(self.costs.ipi_ns);
        self.events.plan(at, Event::LookAgain(cpu));
    }
}
