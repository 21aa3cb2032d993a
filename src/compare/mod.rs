//! Is B better than A on this machine? Runs a workload under several schedulers or settings in
//! turns, measures its own noise first, and says *better*, *worse* or *no call*.
//!
//! ```text
//! side, workload → plan → session → record → evaluate → report
//!                            │
//!                        Machine: the real one, or a scripted one for tests
//! ```
//!
//! The [`session`] makes the runs of a [`plan`] through the [`machine::Machine`] boundary and
//! appends each to a [`record`]; [`mod@evaluate`] and [`report`] are pure functions of the record,
//! so that a result can be shown again at any time. The method is told in `docs/compare.md`.

pub mod evaluate;
pub mod live;
pub mod machine;
pub mod plan;
pub mod record;
pub mod report;
pub mod scripted;
pub mod session;
pub mod side;
pub mod statistics;
pub mod validity;
pub mod workload;
