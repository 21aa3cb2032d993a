//! Command lines: options, help texts and their checks, turned into plain configurations.

#[cfg(feature = "live")]
pub mod scheduler;
