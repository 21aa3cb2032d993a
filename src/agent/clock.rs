//! The agent's own clocks, for its costs. What happens to tasks is timed by the BPF component's
//! clock, which is read through its `clock` program.

use crate::units::Nanos;

fn read(id: libc::clockid_t) -> Nanos {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is valid for the kernel to write. The clocks used here always exist, so the
    // call cannot fail.
    unsafe { libc::clock_gettime(id, &mut ts) };
    Nanos(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Monotonic time.
pub(crate) fn now() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the whole agent.
pub(crate) fn process_cpu_time() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}
