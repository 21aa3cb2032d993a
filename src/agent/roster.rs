//! How workers are found and woken.

use super::programs::Programs;
use crate::cpumask::Cpumask;
use crate::units::CpuId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// All workers of one run.
pub(crate) struct Roster {
    quit: AtomicBool,
    programs: Arc<Programs>,
    nr_workers: u32,
    /// By CPU id: which worker balances it; as many as there are workers if none does.
    worker_of: Vec<u32>,
}

impl Roster {
    /// A roster for these shards on a machine of `width` CPU ids.
    pub(crate) fn new(width: usize, shards: &[Cpumask], programs: Arc<Programs>) -> Self {
        let nr_workers = shards.len() as u32;
        let mut worker_of = vec![nr_workers; width];
        for (worker, shard) in (0..).zip(shards) {
            for cpu in shard.iter() {
                worker_of[cpu.index()] = worker;
            }
        }
        Self { quit: AtomicBool::new(false), programs, nr_workers, worker_of }
    }

    /// Which worker balances each CPU id.
    pub(crate) fn workers_by_cpu(&self) -> &[u32] {
        &self.worker_of
    }

    pub(crate) fn should_quit(&self) -> bool {
        self.quit.load(Ordering::Relaxed)
    }

    /// Tells all workers to end.
    pub(crate) fn quit(&self) {
        self.quit.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Wakes all workers.
    pub(crate) fn wake_all(&self) {
        (0..self.nr_workers).for_each(|worker| self.wake(worker));
    }

    /// Wakes the worker that balances `cpu`, unless that is `caller` itself.
    pub(crate) fn wake_for(&self, cpu: CpuId, caller: u32) {
        match self.worker_of.get(cpu.index()) {
            Some(&worker) if worker != caller && worker < self.nr_workers => self.wake(worker),
            _ => {}
        }
    }

    fn wake(&self, worker: u32) {
        // It can fail only if the program is gone, and with it what there was to balance.
        self.programs.ring.run(worker);
    }
}
