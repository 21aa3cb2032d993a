//! How workers are found and woken.

use crate::cpumask::Cpumask;
use crate::units::CpuId;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// All workers of one run.
#[derive(Debug)]
pub(crate) struct Roster {
    quit: AtomicBool,
    threads: OnceLock<Vec<Thread>>,
    /// By CPU id: which worker balances it; those in no shard name the first.
    worker_of: Vec<u32>,
}

impl Roster {
    /// A roster for these shards on a machine of `width` CPU ids.
    pub(crate) fn new(width: usize, shards: &[Cpumask]) -> Self {
        let mut worker_of = vec![0; width];
        for (worker, shard) in shards.iter().enumerate() {
            for cpu in shard.iter() {
                worker_of[cpu.index()] = worker as u32;
            }
        }
        Self { quit: AtomicBool::new(false), threads: OnceLock::new(), worker_of }
    }

    /// Which worker balances each CPU id.
    pub(crate) fn workers_by_cpu(&self) -> &[u32] {
        &self.worker_of
    }

    /// From now on the workers can be woken.
    pub(crate) fn complete(&self, threads: Vec<Thread>) {
        // Set once, by the thread that spawned them.
        let _ = self.threads.set(threads);
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
        self.threads.get().into_iter().flatten().for_each(Thread::unpark);
    }

    /// Wakes one worker.
    pub(crate) fn wake(&self, worker: usize) {
        if let Some(thread) = self.threads.get().and_then(|t| t.get(worker)) {
            thread.unpark();
        }
    }

    /// Wakes the worker that balances `cpu`.
    pub(crate) fn wake_for(&self, cpu: CpuId) {
        if let Some(worker) = self.worker_of.get(cpu.index()) {
            self.wake(*worker as usize);
        }
    }
}
