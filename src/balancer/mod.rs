//! When balancing happens and in which order; generic over the [`Host`].

mod host;
mod stand_in;

pub use host::{CpuView, Host, MoveOutcome, NR_MIGRATE, PULL_PLAN_LEN, Snapshot, TaskView};
pub use stand_in::{RoundSummary, StandIn};
