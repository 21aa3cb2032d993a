//! A task and its states.

use super::events::TaskId;
use super::program::Op;
use super::random::Stream;
use crate::avg;
use crate::cpumask::Cpumask;
use crate::units::{CpuId, Load, Nanos, TaskKey, Util, Weight};
use std::sync::Arc;

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Made, not started.
    New,
    /// In a queue.
    Waiting,
    /// On a CPU.
    Running,
    /// Waiting for a timer or another task.
    Sleeping,
    /// Ended.
    Dead,
}

impl TaskState {
    /// Whether the second may follow the first.
    pub const fn may_become(self, next: Self) -> bool {
        use TaskState::{Dead, New, Running, Sleeping, Waiting};
        matches!(
            (self, next),
            (New | Sleeping | Running, Waiting)
                | (Waiting, Running)
                | (Running, Sleeping | Dead)
                // Moved from one queue to another, or pushed.
                | (Waiting, Waiting)
        )
    }
}

/// A copy under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// Into a pipe, so many bytes.
    Into(u32, u64),
    /// Out of it.
    OutOf(u32, u64),
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) key: TaskKey,
    pub(crate) template: u32,
    pub(crate) program: Arc<[Op]>,
    pub(crate) pc: u32,
    pub(crate) counters: [u32; 4],
    state: TaskState,
    /// Where it runs or waits, or ran last.
    pub(crate) cpu: CpuId,
    pub(crate) weight: Weight,
    pub(crate) allowed: Option<Arc<Cpumask>>,
    pub(crate) footprint_kib: u32,
    /// Work left of the step under way, in ns on a CPU of full capacity.
    pub(crate) left: f64,
    pub(crate) vtime: u64,
    pub(crate) last_ran: Nanos,
    /// Numbers its sleeps, so that a timer knows whether it is still meant.
    pub(crate) sleep: u32,
    pub(crate) began: Nanos,
    pub(crate) state_since: Nanos,
    /// Lock held, if any.
    pub(crate) lock: Option<u32>,
    /// What it does with the work left, if that is a copy.
    pub(crate) copying: Option<Copying>,
    pub(crate) stream: Stream,
    /// Fetching to be done before it works on: after a migration, for data of others.
    pub(crate) refill: u64,
    pub(crate) transfer: u64,
    load: f64,
    util: f64,
    averaged_at: Nanos,
}

/// What is left of 1 after `dt`; exact enough by its first terms for short times, which are most.
pub(crate) fn factor(dt: Nanos) -> f64 {
    const PER_NS: f64 = std::f64::consts::LN_2 / (32u64 << 20) as f64;
    if dt.0 < 2_000_000 {
        let x = dt.0 as f64 * PER_NS;
        1.0 - x * (1.0 - x * (0.5 - x / 6.0))
    } else {
        avg::factor(dt)
    }
}

impl Task {
    pub(crate) fn new(
        id: TaskId,
        template: u32,
        kind: &super::program::Template,
        allowed: Option<Arc<Cpumask>>,
        stream: Stream,
        now: Nanos,
    ) -> Self {
        Self {
            key: TaskKey { pid: id.0 + 1, generation: 1 },
            template,
            program: Arc::clone(&kind.program),
            pc: 0,
            counters: [0; 4],
            state: TaskState::New,
            cpu: CpuId(0),
            weight: kind.weight,
            allowed,
            footprint_kib: kind.footprint_kib,
            left: 0.0,
            vtime: 0,
            last_ran: Nanos::ZERO,
            sleep: 0,
            began: now,
            state_since: now,
            lock: None,
            copying: None,
            stream,
            refill: 0,
            transfer: 0,
            // A new task counts as one that wants to run all the time (kernel:
            // `init_entity_runnable_average`).
            load: kind.weight.0 as f64,
            util: 0.0,
            averaged_at: now,
        }
    }

    pub(crate) fn state(&self) -> TaskState {
        self.state
    }

    /// Changes the state.
    pub(crate) fn become_(&mut self, next: TaskState, now: Nanos) {
        assert!(
            self.state.may_become(next),
            "task {} cannot go from {:?} to {next:?}",
            self.key.pid,
            self.state
        );
        self.average(now);
        self.state = next;
        self.state_since = now;
    }

    /// Brings the averages up to date.
    pub(crate) fn average(&mut self, now: Nanos) {
        let f = factor(now - self.averaged_at);
        let (load, util) = match self.state {
            TaskState::Running => (self.weight.0 as f64, 1024.0),
            TaskState::Waiting => (self.weight.0 as f64, 0.0),
            _ => (0.0, 0.0),
        };
        self.load = self.load * f + load * (1.0 - f);
        self.util = self.util * f + util * (1.0 - f);
        self.averaged_at = self.averaged_at.max(now);
    }

    pub(crate) fn load(&self) -> Load {
        Load(self.load.round() as u64)
    }

    pub(crate) fn util(&self) -> Util {
        Util(self.util.round() as u64)
    }

    pub(crate) fn may_run_on(&self, cpu: CpuId) -> bool {
        self.allowed.as_ref().is_none_or(|mask| mask.test(cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_states_follow_each_other() {
        use TaskState::*;
        let all = [New, Waiting, Running, Sleeping, Dead];
        let allowed: Vec<_> = all
            .iter()
            .flat_map(|&a| all.iter().map(move |&b| (a, b)))
            .filter(|(a, b)| a.may_become(*b))
            .collect();
        let expected = [
            (New, Waiting),
            (Waiting, Waiting),
            (Waiting, Running),
            (Running, Waiting),
            (Running, Sleeping),
            (Running, Dead),
            (Sleeping, Waiting),
        ];
        assert_eq!(allowed, expected);
    }

    #[test]
    fn the_short_factor_is_the_long_one() {
        for us in [0, 1, 100, 1_000, 1_999] {
            let dt = Nanos::from_us(us);
            assert!((factor(dt) - avg::factor(dt)).abs() < 1e-6, "{us}");
        }
    }
}
