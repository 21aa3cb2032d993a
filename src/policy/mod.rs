//! The balancing policy: pure functions over a snapshot, one file per rule.
//!
//! Nothing here reads a clock, does I/O, starts a thread, allocates in the steady state or depends
//! on the order of a hash map. [`decide()`] returns data; the balancer acts on it through a host
//! and hands what really happened to [`settle()`].
//!
//! The rules follow Linux 7.3 `kernel/sched/fair.c`; each function names the one it answers to.
//! Where the answer differs on purpose, `docs/fidelity.md` says so and why.

pub mod active;
pub mod decide;
pub mod detach;
pub mod env;
pub mod facts;
pub mod fork;
pub mod group_stats;
pub mod imbalance;
pub mod interval;
pub mod marks;
pub mod newidle;
pub mod nohz;
pub mod numa;
pub mod serialize;
pub mod should_balance;
pub mod skip;
pub mod src_group;
pub mod src_rq;
pub mod state;
pub mod tunables;

pub use decide::{Ending, PassOutcome, Plan, decide, settle};
pub use env::{Env, IdleType, PassKind};
pub use facts::Facts;
pub use group_stats::{GroupStats, GroupType, SdStats};
pub use imbalance::MigrationType;
pub use skip::SkipReason;
pub use state::LevelState;
pub use tunables::Tunables;
