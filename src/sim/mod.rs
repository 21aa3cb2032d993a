//! A machine you do not own: a deterministic discrete-event simulation that runs the very same
//! balancer as the live scheduler, on up to 8,192 CPUs.
//!
//! Time is virtual, events are ordered by (time, tie), every purpose has its own random stream: one
//! seed gives one run, byte for byte. What the model leaves out, and what that does to a result,
//! stands in `docs/realism.md`.

mod balancing;
pub mod bugs;
pub mod costs;
mod engine;
mod events;
pub mod generators;
pub mod html;
mod machine;
pub mod program;
pub mod random;
mod report;
pub mod reproduce;
pub mod rtapp;
pub mod scenario;
mod task;
mod trace;

pub use engine::{Change, Executors, Setup, Sim};
pub use events::{Event, TaskId};
pub use machine::{Held, Placement, Rules, Totals};
pub use report::{Report, Share};
pub use task::TaskState;
pub use trace::{HEAT_COLUMNS, Heat};
