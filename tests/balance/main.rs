//! The balancer on a machine in memory.

mod flags;
mod fork;
mod lab;
mod newidle;
mod nohz;
mod rounds;
mod shapes;
mod threads;
