//! One CPU: its queue, its running task, its averages and where its time went.

use crate::avg::factor as far_factor;
use crate::balancer::PullPlan;
use crate::sim::costs::{Access, Cause};
use crate::sim::events::TaskId;
use crate::sim::task::factor;
use crate::units::{Capacity, Nanos};
use std::collections::VecDeque;

/// What a CPU is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpuState {
    /// Out of service.
    Offline,
    /// Nothing to do.
    Idle,
    /// Out of work, looking for some.
    Entering,
    /// Running a task.
    Busy(TaskId),
}

/// A queued task by the order of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Queued {
    pub(crate) vtime: u64,
    pub(crate) seq: u64,
    pub(crate) task: TaskId,
}

#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) state: CpuState,
    pub(crate) queue: VecDeque<Queued>,
    /// Since when the queue has not been empty.
    pub(crate) waiting_since: Nanos,
    pub(crate) min_vtime: u64,
    pub(crate) sum_weight: u64,
    pub(crate) capacity: Capacity,
    /// The stretch of running under way, for [`crate::sim::events::Event::RunEnds`].
    pub(crate) run: u32,
    /// From when its task has been working; later than now while the kernel is still at work.
    pub(crate) works_from: Nanos,
    /// When the slice of its task is used up.
    pub(crate) slice_end: Nanos,
    /// When the planned end of the stretch is.
    pub(crate) ends: Nanos,
    /// Time taken from the task since then, not yet made up for.
    pub(crate) stolen: u64,
    /// Until when the kernel is at work on its own account.
    pub(crate) kernel_until: Nanos,
    pub(crate) last_task: Option<TaskId>,
    pub(crate) idle_since: Nanos,
    pub(crate) avg_idle: Nanos,
    /// What a newidle pass costs at most, for the cap of `avg_idle`.
    pub(crate) max_newidle_cost: Nanos,
    pub(crate) tick_planned: bool,
    /// Shared lines that it still has to access, last first.
    pub(crate) lines: Vec<Access>,
    pub(crate) line_asked: Option<(Nanos, Access)>,
    /// The stretch of running ended while it was at a shared line.
    pub(crate) deferred: bool,
    pub(crate) pull_plan: PullPlan,
    /// How often it was used.
    pub(crate) plan_uses: u32,
    pub(crate) time: [u64; Cause::COUNT],
    pub(crate) idle_ns: u64,
    /// Until when the view kept of it holds; zero after a change.
    pub(crate) fresh_until: Nanos,
    load: f64,
    util: f64,
    runnable: f64,
    averaged_at: Nanos,
}

impl Cpu {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self {
            state: CpuState::Offline,
            queue: VecDeque::new(),
            waiting_since: Nanos::ZERO,
            min_vtime: 0,
            sum_weight: 0,
            capacity,
            run: 0,
            works_from: Nanos::ZERO,
            slice_end: Nanos::ZERO,
            ends: Nanos::ZERO,
            stolen: 0,
            kernel_until: Nanos::ZERO,
            last_task: None,
            idle_since: Nanos::ZERO,
            avg_idle: Nanos::from_ms(1),
            max_newidle_cost: Nanos::from_us(500),
            tick_planned: false,
            lines: Vec::new(),
            line_asked: None,
            deferred: false,
            pull_plan: PullPlan::default(),
            plan_uses: 0,
            time: [0; Cause::COUNT],
            idle_ns: 0,
            fresh_until: Nanos::ZERO,
            load: 0.0,
            util: 0.0,
            runnable: 0.0,
            averaged_at: Nanos::ZERO,
        }
    }

    pub(crate) fn current(&self) -> Option<TaskId> {
        match self.state {
            CpuState::Busy(task) => Some(task),
            _ => None,
        }
    }

    pub(crate) fn nr_running(&self) -> u32 {
        self.queue.len() as u32 + u32::from(self.current().is_some())
    }

    /// Brings the averages up to date; before every change of what runs or waits here.
    pub(crate) fn average(&mut self, now: Nanos) {
        self.fresh_until = Nanos::ZERO;
        let dt = now - self.averaged_at;
        if dt == Nanos::ZERO {
            return;
        }
        let f = if dt < Nanos::from_secs(1) { factor(dt) } else { far_factor(dt) };
        let busy = f64::from(u8::from(self.current().is_some()));
        let mix = |avg: &mut f64, rate: f64| *avg = *avg * f + rate * (1.0 - f);
        mix(&mut self.load, self.sum_weight as f64);
        mix(&mut self.util, busy * self.capacity.0 as f64);
        let nr = self.queue.len() as f64 + busy;
        let runnable = &mut self.runnable;
        *runnable = *runnable * f + nr * 1024.0 * (1.0 - f);
        self.averaged_at = now;
    }

    pub(crate) fn averaged_at(&self) -> Nanos {
        self.averaged_at
    }

    /// A task's averages come with it or leave with it (kernel: `attach_entity_load_avg`).
    pub(crate) fn attach(&mut self, load: f64, util: f64) {
        self.load = (self.load + load).max(0.0);
        self.util = (self.util + util).max(0.0);
        let per_weight = if load >= 0.0 { load } else { -load };
        let runnable = per_weight.min(1024.0) * load.signum();
        self.runnable = (self.runnable + runnable).max(0.0);
    }

    /// Load, utilisation and runnable time.
    pub(crate) fn averages(&self) -> (u64, u64, u64) {
        (self.load as u64, self.util as u64, self.runnable as u64)
    }

    pub(crate) fn spend(&mut self, cause: Cause, ns: u64) {
        self.time[cause as usize] += ns;
    }

    pub(crate) fn enqueue(&mut self, queued: Queued, now: Nanos) {
        if self.queue.is_empty() {
            self.waiting_since = now;
        }
        // Most come last.
        let mut at = self.queue.len();
        while at > 0 && self.queue[at - 1] > queued {
            at -= 1;
        }
        self.queue.insert(at, queued);
    }

    pub(crate) fn dequeue(&mut self, task: TaskId) -> Option<Queued> {
        let at = self.queue.iter().position(|q| q.task == task)?;
        self.queue.remove(at)
    }
}
