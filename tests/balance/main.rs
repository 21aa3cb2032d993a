//! The balancer on a machine in memory.

mod lab;
mod rounds;
