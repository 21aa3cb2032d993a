//! Running tasks: queues, slices, switches.

use super::cpu::{CpuState, Queued};
use super::{Cause, Distance, Event, Machine, TaskId, TaskState};
use crate::policy::newidle::update_avg_idle;
use crate::units::{CpuId, Nanos};

/// What a task does after its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has work to do.
    Work,
    /// It waits for something.
    Sleep,
    /// It has ended.
    End,
}

impl Machine {
    /// Where a task that comes new to a CPU's queue begins: with the one that is least ahead (kernel:
    /// `update_min_vruntime`).
    pub(super) fn floor(&mut self, cpu: CpuId) -> u64 {
        let now = self.now;
        let c = &mut self.cpus[cpu.index()];
        let running = c.current().map(|id| {
            let task = &self.tasks[id.index()];
            let ran = (now - c.works_from).0.saturating_sub(c.stolen);
            task.vtime + ran * 1024 / task.weight.0.max(1)
        });
        let least = running.into_iter().chain(c.queue.front().map(|q| q.vtime)).min();
        c.min_vtime = c.min_vtime.max(least.unwrap_or(0));
        c.min_vtime
    }

    /// Puts a waiting task into a CPU's queue and sees to it that the CPU takes notice.
    pub(crate) fn enqueue(&mut self, id: TaskId, cpu: CpuId) {
        let now = self.now;
        let slice = self.rules.slice.0;
        let floor = self.floor(cpu);
        let task = &mut self.tasks[id.index()];
        debug_assert_eq!(task.state(), TaskState::Waiting);
        task.average(now);
        let came = task.cpu != cpu;
        let from = task.cpu;
        let (load, util) = (task.load().0 as f64, task.util().0 as f64);
        if came {
            let f = self.places.distance(from, cpu);
            if task.last_ran > Nanos::ZERO {
                let bytes = u64::from(task.footprint_kib) << 10;
                task.refill = self.costs.fetch(bytes, f, self.costs.refill_pct);
            }
            let behind = self.cpus[from.index()].min_vtime;
            task.vtime = floor + task.vtime.saturating_sub(behind);
            let old = &mut self.cpus[from.index()];
            old.average(now);
            old.attach(-load, -util);
        }
        let task = &mut self.tasks[id.index()];
        task.cpu = cpu;
        let c = &mut self.cpus[cpu.index()];
        // A sleeper may not save up more than a slice.
        task.vtime = task.vtime.max(floor.saturating_sub(slice));
        self.queued += 1;
        c.average(now);
        if came {
            c.attach(load, util);
        }
        c.sum_weight += task.weight.0;
        let queued = Queued { vtime: task.vtime, seq: self.queued, task: id };
        c.enqueue(queued, now);
        match c.state {
            CpuState::Idle => {
                self.leave_idle(cpu);
                self.dispatch(cpu);
            }
            CpuState::Busy(current) => self.maybe_preempt(cpu, current, queued),
            CpuState::Entering | CpuState::Offline => {}
        }
    }

    fn maybe_preempt(&mut self, cpu: CpuId, current: TaskId, queued: Queued) {
        let c = &self.cpus[cpu.index()];
        let ran = (self.now - c.works_from).0;
        let weight = self.tasks[current.index()].weight.0.max(1);
        let current_vtime = self.tasks[current.index()].vtime + ran * 1024 / weight;
        let preempt = self.rules.preempt.0;
        if preempt > 0 && c.line_asked.is_none() && queued.vtime + preempt < current_vtime {
            self.switch_out(cpu);
        } else if self.rules.slice > Nanos::ZERO && c.ends > c.slice_end {
            // It had the CPU to itself until now.
            self.account_run(cpu);
            self.plan_end(cpu);
        }
    }

    /// Takes a waiting task out of its queue.
    pub(crate) fn dequeue(&mut self, id: TaskId) -> bool {
        let task = &self.tasks[id.index()];
        let c = &mut self.cpus[task.cpu.index()];
        c.average(self.now);
        let found = c.dequeue(id).is_some();
        if found {
            c.sum_weight = c.sum_weight.saturating_sub(task.weight.0);
        }
        found
    }

    fn leave_idle(&mut self, cpu: CpuId) {
        self.account_idle(cpu);
        let now = self.now;
        self.idle.clear(cpu);
        let c = &mut self.cpus[cpu.index()];
        c.average(now);
        c.state = CpuState::Entering;
        c.avg_idle = update_avg_idle(c.avg_idle, now - c.idle_since, c.max_newidle_cost);
        self.plan_tick(cpu);
    }

    pub(super) fn account_idle(&mut self, cpu: CpuId) {
        let now = self.now;
        let c = &mut self.cpus[cpu.index()];
        c.idle_ns += (now - c.idle_since.max(c.kernel_until)).0;
    }

    /// The CPU has found no work: it idles.
    pub(crate) fn go_idle(&mut self, cpu: CpuId) {
        let now = self.now;
        let c = &mut self.cpus[cpu.index()];
        c.average(now);
        c.state = CpuState::Idle;
        c.idle_since = now;
        self.idle.set(cpu);
        self.tracer.idle(cpu, now);
    }

    /// Gives a CPU without a task the next one of its queue, or notes that it is out of work.
    pub(crate) fn dispatch(&mut self, cpu: CpuId) {
        let now = self.now;
        let c = &mut self.cpus[cpu.index()];
        c.average(now);
        let Some(queued) = c.queue.pop_front() else {
            c.state = CpuState::Entering;
            self.entering.push(cpu);
            return;
        };
        let id = queued.task;
        c.state = CpuState::Busy(id);
        c.min_vtime = c.min_vtime.max(queued.vtime);
        let mut from = now.max(c.kernel_until);
        if c.last_task != Some(id) {
            c.spend(Cause::Switch, self.costs.switch_ns);
            from += Nanos(self.costs.switch_ns);
            self.totals.switches += 1;
        }
        c.last_task = Some(id);
        let task = &mut self.tasks[id.index()];
        let waited = (now - task.state_since).0;
        self.totals.waited_ns += waited;
        self.totals.longest_wait_ns = self.totals.longest_wait_ns.max(waited);
        task.become_(TaskState::Running, now);
        let refill = std::mem::take(&mut task.refill);
        c.spend(Cause::Refill, refill);
        let transfer = std::mem::take(&mut task.transfer);
        c.spend(Cause::Transfer, transfer);
        c.works_from = from + Nanos(refill + transfer);
        c.slice_end = c.works_from + self.rules.slice;
        c.stolen = 0;
        self.tracer.runs(cpu, now, task.key, task.template);
        self.plan_end(cpu);
    }

    /// Plans the end of the stretch of running.
    pub(super) fn plan_end(&mut self, cpu: CpuId) {
        let Some(id) = self.cpus[cpu.index()].current() else { return };
        let c = &mut self.cpus[cpu.index()];
        let work = self.tasks[id.index()].left * 1024.0 / c.capacity.0.max(1) as f64;
        let from = c.works_from.max(self.now);
        let mut ends = from + Nanos(work.ceil() as u64);
        if self.rules.slice > Nanos::ZERO && !c.queue.is_empty() {
            ends = ends.min(c.slice_end.max(from));
        }
        c.ends = ends;
        c.run = c.run.wrapping_add(1);
        self.events.plan(ends, Event::RunEnds { cpu, run: c.run });
    }

    /// Takes over what the running task has done until now.
    pub(super) fn account_run(&mut self, cpu: CpuId) {
        let now = self.now;
        let c = &mut self.cpus[cpu.index()];
        let Some(id) = c.current() else { return };
        let gone = (now - c.works_from).0;
        if gone == 0 {
            return;
        }
        let stolen = c.stolen.min(gone);
        c.stolen -= stolen;
        let worked = gone - stolen;
        c.works_from = now;
        c.spend(Cause::Work, worked);
        let task = &mut self.tasks[id.index()];
        task.left -= worked as f64 * c.capacity.0 as f64 / 1024.0;
        task.vtime += worked * 1024 / task.weight.0.max(1);
        task.last_ran = now;
    }

    /// The planned end of a stretch of running.
    pub(crate) fn run_ends(&mut self, cpu: CpuId, run: u32) {
        let c = &mut self.cpus[cpu.index()];
        if c.run != run {
            return;
        }
        if c.line_asked.is_some() {
            c.deferred = true;
            return;
        }
        if c.stolen > 0 {
            // What was taken from the task meanwhile is made up for first.
            let more = Nanos(std::mem::take(&mut c.stolen));
            let gone = self.now - c.works_from;
            if gone > Nanos::ZERO {
                c.works_from += more;
                c.slice_end += more;
            } else {
                c.works_from = self.now + more;
            }
            c.ends = self.now + more;
            c.run = c.run.wrapping_add(1);
            self.events.plan(c.ends, Event::RunEnds { cpu, run: c.run });
            return;
        }
        let Some(id) = c.current() else { return };
        self.account_run(cpu);
        if self.tasks[id.index()].left > 0.5 {
            let c = &mut self.cpus[cpu.index()];
            if c.queue.is_empty() {
                c.slice_end = self.now + self.rules.slice;
                self.plan_end(cpu);
            } else {
                self.switch_out(cpu);
            }
            return;
        }
        self.tasks[id.index()].left = 0.0;
        match self.step(id) {
            Next::Work => {
                let task = &mut self.tasks[id.index()];
                let transfer = std::mem::take(&mut task.transfer);
                let slice = self.rules.slice;
                let c = &mut self.cpus[cpu.index()];
                c.spend(Cause::Transfer, transfer);
                c.works_from = self.now + Nanos(transfer);
                let used_up = slice > Nanos::ZERO && self.now >= c.slice_end;
                // It may just have bound itself elsewhere.
                let must_leave = !self.tasks[id.index()].may_run_on(cpu);
                if must_leave || (used_up && !c.queue.is_empty()) {
                    self.switch_out(cpu);
                } else {
                    if used_up {
                        c.slice_end = self.now + slice;
                    }
                    self.plan_end(cpu);
                }
            }
            Next::Sleep => self.stops(cpu, id, TaskState::Sleeping),
            Next::End => self.stops(cpu, id, TaskState::Dead),
        }
    }

    fn stops(&mut self, cpu: CpuId, id: TaskId, state: TaskState) {
        let now = self.now;
        self.take_off(cpu);
        let task = &mut self.tasks[id.index()];
        task.become_(state, now);
        if state == TaskState::Dead {
            let (template, life) = (task.template as usize, (now - task.began).0);
            self.totals.ended[template] += 1;
            self.totals.lifetime_ns[template] += life;
            // The key's generation tells it from the next task of that number.
            task.key.generation += 1;
            self.free.push(id);
        }
        self.dispatch(cpu);
    }

    /// The running task leaves its CPU, which then has none.
    fn take_off(&mut self, cpu: CpuId) -> Option<TaskId> {
        let now = self.now;
        let id = self.cpus[cpu.index()].current()?;
        let c = &mut self.cpus[cpu.index()];
        c.average(now);
        c.state = CpuState::Entering;
        // Work done in the kernel on the task's account still keeps the CPU.
        if c.stolen > 0 {
            c.kernel_until = c.kernel_until.max(now) + Nanos(std::mem::take(&mut c.stolen));
        }
        c.run = c.run.wrapping_add(1);
        c.sum_weight = c.sum_weight.saturating_sub(self.tasks[id.index()].weight.0);
        Some(id)
    }

    /// Stops the running task where it is; the caller gives it a new place.
    pub(crate) fn stop_running(&mut self, cpu: CpuId) -> Option<TaskId> {
        self.account_run(cpu);
        self.take_off(cpu)
    }

    /// The running task goes back into the queue and another one runs.
    fn switch_out(&mut self, cpu: CpuId) {
        let now = self.now;
        let Some(id) = self.stop_running(cpu) else { return };
        self.tasks[id.index()].become_(TaskState::Waiting, now);
        if self.tasks[id.index()].may_run_on(cpu) {
            // Not `enqueue`, which would take the CPU for one without work.
            self.queued += 1;
            let task = &self.tasks[id.index()];
            let c = &mut self.cpus[cpu.index()];
            c.sum_weight += task.weight.0;
            c.enqueue(Queued { vtime: task.vtime, seq: self.queued, task: id }, now);
        } else {
            let to = self.place(id, None);
            self.enqueue(id, to);
        }
        self.dispatch(cpu);
    }

    /// Bytes come from another CPU's caches: what it takes, the nodes' links included.
    pub(super) fn fetch(&mut self, from: CpuId, to: CpuId, bytes: u64, pct: u64) -> u64 {
        let distance = self.places.distance(from, to);
        let mut ns = self.costs.fetch(bytes, distance, pct);
        let node = self.places.node(from);
        if distance >= Distance::Package && node != self.places.node(to) {
            self.totals.cross_node_bytes += bytes;
            if let Some(send) = (bytes * 1000).checked_div(self.costs.node_mb_s) {
                let link = &mut self.links[node as usize];
                let done = self.now.max(*link) + Nanos(send);
                *link = done;
                ns = ns.max((done - self.now).0);
            }
        }
        ns
    }
}
