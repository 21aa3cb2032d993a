//! What a worker costs, measured by itself and read by others.

use super::allocations::AllocationCounter;
use super::clock;
use crate::stats::latency::Latencies;
use crate::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// One worker's running totals since it was ready. Written by the worker alone.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) wakeups: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    /// CPU time of a round with its way out of sleep and back. On a virtual machine whose host is
    /// busy a sum is what the host makes of it; the median is not.
    pub(crate) rounds: Latencies,
    /// Sleeps that the worker's [`Budget`](super::budget::Budget) made longer.
    pub(crate) put_off: AtomicU64,
    pub(crate) minor_faults: AtomicU64,
    pub(crate) major_faults: AtomicU64,
    /// One more than the allocations made; 0 where they cannot be counted.
    allocations: AtomicU64,
}

impl Meters {
    /// Heap allocations; `None` where they cannot be counted.
    pub(crate) fn allocations(&self) -> Option<u64> {
        self.allocations.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Rounds between two looks at a worker's faults and allocations, since looking costs as well.
const ROUNDS_PER_LOOK: u64 = 16;

/// The worker's end: knows where counting began.
pub(crate) struct Meter<'a> {
    to: &'a Meters,
    allocations: Option<AllocationCounter>,
    cpu_ns: u64,
    faults: (u64, u64),
    /// CPU time at the end of the last round.
    looked: Nanos,
}

impl<'a> Meter<'a> {
    /// Starts counting for the calling thread, whose allocator's entry is `alloc_entry`.
    pub(crate) fn start(to: &'a Meters, alloc_entry: usize) -> Self {
        let allocations = AllocationCounter::of_this_thread(alloc_entry)
            .map_err(|why| log::warn!("the agent's allocations are not counted: {why:#}"))
            .ok();
        let mut meter = Self { to, allocations, cpu_ns: 0, faults: (0, 0), looked: Nanos::ZERO };
        // What reading costs the first time (a first touch) is not the worker's doing.
        meter.publish();
        meter.looked = clock::thread_cpu_time();
        meter.cpu_ns = meter.looked.0;
        meter.faults = faults();
        meter
    }

    /// Brings the totals up to date.
    pub(crate) fn publish(&mut self) {
        let (minor, major) = faults();
        self.to.cpu_ns.store(clock::thread_cpu_time().0 - self.cpu_ns, Ordering::Relaxed);
        self.to.minor_faults.store(minor - self.faults.0, Ordering::Relaxed);
        self.to.major_faults.store(major - self.faults.1, Ordering::Relaxed);
        let counted = self.allocations.as_mut().and_then(AllocationCounter::count);
        self.to.allocations.store(counted.map_or(0, |n| n + 1), Ordering::Relaxed);
    }

    /// Counts one round; returns the CPU time that it took.
    pub(crate) fn woke(&mut self) -> Nanos {
        let rounds = self.to.wakeups.fetch_add(1, Ordering::Relaxed);
        if rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            self.publish();
        }
        let now = clock::thread_cpu_time();
        let took = now - self.looked;
        self.looked = now;
        self.to.rounds.note(took);
        took
    }
}

/// Page faults of the calling thread: minor and major.
fn faults() -> (u64, u64) {
    // SAFETY: zeroes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for the kernel to write.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}
