//! When a level is due (kernel: `get_sd_balance_interval`, `sched_balance_domains`,
//! `update_max_interval`).

use crate::domains::SchedDomain;
use crate::policy::state::LevelState;
use crate::units::Nanos;

/// What intervals are measured against; the same for the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Shortest time between two looks at a CPU (kernel: one jiffy).
    pub tick: Nanos,
    /// Longest interval: 100 ms for each CPU that balances (kernel: `max_load_balance_interval`).
    pub max_interval: Nanos,
}

impl Pace {
    /// The pace of a machine of `nr_cpus` CPUs.
    pub fn new(tick: Nanos, nr_cpus: u32) -> Self {
        let tick = Nanos(tick.0.max(1));
        let max = Nanos::from_ms(100 * u64::from(nr_cpus.max(1)));
        Self { tick, max_interval: max.max(tick) }
    }
}

/// Time between two attempts at a level. A busy CPU waits `busy_factor` times as long, less one
/// tick so that the periods of nested levels are no multiples of each other.
pub fn balance_interval(state: &LevelState, domain: &SchedDomain, busy: bool, pace: Pace) -> Nanos {
    let mut interval = state.balance_interval.0;
    if busy {
        interval =
            interval.saturating_mul(u64::from(domain.busy_factor)).saturating_sub(pace.tick.0);
    }
    Nanos(interval.clamp(pace.tick.0, pace.max_interval.0))
}

/// When the level is due next.
pub fn next_balance(state: &LevelState, domain: &SchedDomain, busy: bool, pace: Pace) -> Nanos {
    state.last_balance + balance_interval(state, domain, busy, pace)
}

/// Whether the level is due.
pub fn is_due(
    state: &LevelState,
    domain: &SchedDomain,
    busy: bool,
    pace: Pace,
    now: Nanos,
) -> bool {
    now >= next_balance(state, domain, busy, pace)
}
