//! Counters with units and descriptions, and the log of decisions.

pub mod counters;
pub mod decision_log;
pub mod latency;

pub use counters::{Counters, CountersCell, PassCounters};
pub use decision_log::{Decision, DecisionLog, Verdict};
