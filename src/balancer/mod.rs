//! When balancing happens and in which order; generic over the [`Host`].

mod host;

pub use host::{CpuView, Host, MoveOutcome, NR_MIGRATE, PULL_PLAN_LEN, Snapshot, TaskView};
