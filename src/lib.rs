//! `scx_baton`: the kernel's load-balancing policy as a Rust program.
//!
//! A BPF component dispatches tasks; a user-space agent decides which tasks should move between
//! CPUs. The parts, and the only direction in which they know each other:
//!
//! ```text
//! sysfs or captured tree ─┐
//! synthetic machine ──────┴→ topology → domains → policy  (decide / settle: pure, no clock, no I/O)
//!                                                   ▲
//!                                               balancer  (when, in which order; generic over Host)
//!                                                   ▲
//!                                      ┌────────────┴─────────────┐
//!                                 agent (live)          sim (a machine you do not own)
//!                                      │
//!                                 BPF component
//! ```
//!
//! `Host` is the one boundary: it gives a snapshot (with `now` inside), applies a plan, and
//! reports what really happened. The policy never learns whether a kernel, a simulator or a test
//! is behind it.

#[cfg(feature = "live")]
pub mod agent;
pub mod avg;
pub mod balancer;
pub mod cli;
pub mod compare;
pub mod control;
pub mod cpumask;
pub mod domains;
pub mod kconfig;
pub mod policy;
pub mod preflight;
pub mod sched_ext;
pub mod sim;
pub mod stats;
mod sync;
pub mod topology;
pub mod units;
