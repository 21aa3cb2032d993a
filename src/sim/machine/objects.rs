//! What tasks meet at: semaphores, pipes, locks, barriers.

use super::TaskId;
use crate::sim::program::Workload;
use crate::units::{CpuId, Nanos};
use serde::Serialize;
use std::collections::VecDeque;

/// A semaphore's holdings over time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Held {
    area: u128,
    since: u64,
}

impl Held {
    fn add(&mut self, holds: u32, now: Nanos) {
        self.area += u128::from(holds) * u128::from(now.0 - self.since);
        self.since = now.0;
    }

    /// What it held on average over a run of that length.
    pub fn mean_held(&self, duration: Nanos) -> f64 {
        self.area as f64 / duration.0.max(1) as f64
    }
}

#[derive(Debug, Default)]
pub(super) struct Semaphore {
    pub(super) holds: u32,
    pub(super) held: Held,
    pub(super) waiters: VecDeque<TaskId>,
}

impl Semaphore {
    /// Adds one.
    pub(super) fn put(&mut self, now: Nanos) {
        self.held.add(self.holds, now);
        self.holds += 1;
    }

    /// Takes one if there is one.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        self.held.add(self.holds, now);
        let had = self.holds > 0;
        self.holds -= u32::from(had);
        had
    }
}

/// A pipe. One copy at a time, into it or out of it (kernel: `pipe->mutex`, held over each copy by one
/// who runs, so that whoever wants it next spins).
#[derive(Debug, Default)]
pub(super) struct Pipe {
    pub(super) capacity: u64,
    /// Bytes that can be read.
    pub(super) level: u64,
    /// Bytes that are being copied in, and out.
    pub(super) filling: u64,
    pub(super) draining: u64,
    /// When the mutex is free.
    pub(super) free_at: Nanos,
    /// Who wrote last, and who read last: in whose caches the data and the emptied pages are.
    pub(super) writer: Option<CpuId>,
    pub(super) reader: Option<CpuId>,
    pub(super) readers: VecDeque<TaskId>,
    pub(super) writers: VecDeque<TaskId>,
}

impl Pipe {
    /// Whether so many bytes find room. A chunk larger than the pipe goes in when that is empty.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let taken = self.level + self.filling + self.draining;
        taken == 0 || taken + bytes <= self.capacity
    }

    /// Takes the mutex at `now` for so long; for how long it had to be waited for.
    pub(super) fn lock(&mut self, now: Nanos, hold: u64) -> u64 {
        let from = now.max(self.free_at);
        self.free_at = from + Nanos(hold);
        (from - now).0
    }
}

#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) taken: bool,
    pub(super) waiters: VecDeque<TaskId>,
}

#[derive(Debug, Default)]
pub(super) struct Barrier {
    pub(super) wants: u32,
    pub(super) waiters: Vec<TaskId>,
}

#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) semaphores: Vec<Semaphore>,
    pub(super) pipes: Vec<Pipe>,
    pub(super) locks: Vec<Lock>,
    pub(super) barriers: Vec<Barrier>,
}

impl Objects {
    pub(super) fn new(workload: &Workload) -> Self {
        Self {
            semaphores: workload
                .semaphores
                .iter()
                .map(|&holds| Semaphore { holds, ..Default::default() })
                .collect(),
            pipes: workload
                .pipes
                .iter()
                .map(|&c| Pipe { capacity: u64::from(c), ..Default::default() })
                .collect(),
            locks: (0..workload.locks).map(|_| Lock::default()).collect(),
            barriers: workload
                .barriers
                .iter()
                .map(|&wants| Barrier { wants, ..Default::default() })
                .collect(),
        }
    }
}
