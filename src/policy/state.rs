//! What one CPU remembers about one of its domains between passes (kernel: the changing fields
//! of its `struct sched_domain`).

use crate::domains::SchedDomain;
use crate::units::Nanos;

/// Costs of newidle passes that are remembered, besides the one in hand.
pub const COSTS_KEPT: usize = 3;

/// State of one CPU at one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelState {
    /// When the level was last balanced for this CPU (kernel: `last_balance`).
    pub last_balance: Nanos,
    /// Time between two attempts when idle (kernel: `balance_interval`).
    pub balance_interval: Nanos,
    /// Attempts in a row that found imbalance and moved nothing (kernel: `nr_balance_failed`).
    pub nr_balance_failed: u32,
    /// Highest recent cost of a newidle pass (kernel: `max_newidle_lb_cost`).
    pub max_newidle_lb_cost: Nanos,
    /// When that cost last rose or decayed (kernel: `last_decay_max_lb_cost`).
    pub last_decay: Nanos,
    /// What the last newidle passes cost, newest first; zero where there were fewer.
    pub recent_costs: [Nanos; COSTS_KEPT],
    /// Newidle attempts since the count was last halved (kernel: `newidle_call`).
    pub newidle_call: u32,
    /// Successes among them (kernel: `newidle_success`).
    pub newidle_success: u32,
    /// Success per 1,024 attempts (kernel: `newidle_ratio`).
    pub newidle_ratio: u32,
    /// When the ratio was last worked out (kernel: `newidle_stamp`).
    pub newidle_stamp: Nanos,
}

impl LevelState {
    /// A new level: due at once, interval at its minimum, newidle taken to succeed every second
    /// time (kernel: `sd_init`).
    pub fn new(domain: &SchedDomain) -> Self {
        Self {
            last_balance: Nanos::ZERO,
            balance_interval: domain.min_interval,
            nr_balance_failed: 0,
            max_newidle_lb_cost: Nanos::ZERO,
            recent_costs: [Nanos::ZERO; COSTS_KEPT],
            last_decay: Nanos::ZERO,
            newidle_call: 512,
            newidle_success: 256,
            newidle_ratio: 512,
            newidle_stamp: Nanos::ZERO,
        }
    }
}
