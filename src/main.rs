//! `scx_baton`, the scheduler.

fn main() {}
