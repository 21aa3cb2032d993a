//! The agent's own clocks. What happens to tasks is timed by the BPF component's clock; between two
//! readings of that one, a monotonic clock carries it on.

use crate::units::Nanos;
use std::sync::OnceLock;

fn read(id: libc::clockid_t) -> Nanos {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is valid for the kernel to write. The clocks used here always exist, so the
    // call cannot fail.
    unsafe { libc::clock_gettime(id, &mut ts) };
    Nanos(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

/// Readings that are compared for the choice, and what they may cost together: a reading that
/// enters the kernel costs 10 to 100 times as much as one that does not.
const TRIALS: u32 = 64;
const DEAR: Nanos = Nanos::from_us(64);

/// The exact clock where it is cheap, as on all hardware with a stable cycle counter; else (most
/// emulated machines) the one that moves with the tick. A round reads it a dozen times.
fn cheap() -> libc::clockid_t {
    static CHOICE: OnceLock<libc::clockid_t> = OnceLock::new();
    *CHOICE.get_or_init(|| {
        let start = read(libc::CLOCK_MONOTONIC);
        let end = (0..TRIALS).fold(start, |_, _| read(libc::CLOCK_MONOTONIC));
        if end - start <= DEAR {
            return libc::CLOCK_MONOTONIC;
        }
        log::info!("reading the clock is slow here: times inside a round are to the tick");
        libc::CLOCK_MONOTONIC_COARSE
    })
}

/// Monotonic time.
pub(crate) fn now() -> Nanos {
    read(cheap())
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_time() -> Nanos {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the whole agent.
pub(crate) fn process_cpu_time() -> Nanos {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}
