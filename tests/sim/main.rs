//! The simulator: against queueing theory, against itself, against the paper's figures.

#![allow(clippy::unwrap_used)]

mod determinism;
mod machine;
mod queueing;
mod reproductions;
