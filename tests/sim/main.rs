//! The simulator: against queueing theory, against itself, against the paper's figures.

mod determinism;
mod machine;
mod queueing;
mod reproductions;
