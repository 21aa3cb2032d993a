//! `baton`, the lab.

fn main() {}
