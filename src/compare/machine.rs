//! The one boundary between a comparison and the machine it runs on.
//!
//! The session decides what comes next; a [`Machine`] does it and reports what it saw. There is the
//! real one and, for tests, one that follows a script.

use super::side::{Scheduler, Side};
use super::workload::{Invocation, Printed, Server, Workload};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

/// What is counted beside the score: name and unit (`context switches /s`) to value.
pub type Counters = BTreeMap<String, f64>;

/// What can be done on a machine.
pub trait Machine {
    /// Whether the comparison can be made here at all.
    fn check(&mut self, workload: &Workload, sides: &[Side]) -> Result<()>;
    /// Facts that belong to the result.
    fn environment(&mut self, workload: &Workload) -> Result<Environment>;
    /// Readies what the workload needs: a filled database.
    fn prepare(&mut self, workload: &Workload, stop: &AtomicBool) -> Result<Option<Server>>;
    /// Brings a scheduler into force where none of ours is, and returns when the kernel says so.
    fn start(&mut self, scheduler: &Scheduler, stop: &AtomicBool) -> Result<()>;
    /// Changes settings (`NAME=VALUE`) of the running scx_baton.
    fn set(&mut self, changes: &[String]) -> Result<()>;
    /// Ends the scheduler that was started, if there is one; returns when the kernel's is back.
    fn stop(&mut self) -> Result<()>;
    /// Runs the workload once; `None` if it was told to stop meanwhile.
    fn run(&mut self, job: &Job<'_>, stop: &AtomicBool) -> Result<Option<Observation>>;
    /// Removes what [`Self::prepare`] made.
    fn clean_up(&mut self) -> Result<()>;
    /// Seconds since 1970.
    fn now_s(&self) -> f64;
}

/// One run to make.
#[derive(Debug)]
pub struct Job<'a> {
    /// What schedules.
    pub scheduler: &'a Scheduler,
    /// What to execute.
    pub invocation: &'a Invocation,
}

/// The state of sched_ext at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// `/sys/kernel/sched_ext/state`; empty without sched_ext.
    pub state: String,
    /// Name of the scheduler in charge; empty if there is none.
    pub ops: String,
    /// Counts schedulers enabled since boot.
    pub enable_seq: Option<u64>,
    /// scx_baton's settings in force, if it answers.
    pub settings: Option<BTreeMap<String, String>>,
    /// Number of its configuration: rises with every change.
    pub epoch: Option<u64>,
}

/// The workload's tasks, as looked at during the run. Real-time tasks are left out: they are
/// nobody's but the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// Looks at a task of which the kernel said who schedules it.
    pub seen: u64,
    /// Looks that found it with sched_ext.
    pub ours: u64,
}

/// All that is known of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// What the workload printed.
    pub printed: Printed,
    /// Why the workload did not end well; `None` if it did.
    pub failure: Option<String>,
    /// Just before the run.
    pub before: Sight,
    /// Just after it.
    pub after: Sight,
    /// How the process of the scheduler that was started ended while the run was on; `None` if it
    /// did not, or there is none. The kernel may still call its scheduler enabled then.
    pub scheduler_ended: Option<String>,
    /// Who scheduled the tasks.
    pub charge: Charge,
    /// What was counted.
    pub counters: Counters,
}

/// Facts that belong to the result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `uname -r`.
    pub kernel: String,
    /// `uname -v`.
    pub kernel_build: String,
    /// The kernel's command line.
    pub command_line: String,
    /// Changes with every boot.
    pub boot_id: String,
    /// CPUs that run.
    pub cpus: u32,
    /// The machine, as `baton topo --json` has it under `topology`.
    pub topology: serde_json::Value,
    /// Frequency governors and how many CPUs have each; empty if the kernel does not scale.
    pub governors: BTreeMap<String, u32>,
    /// Switches of the kernel's scheduler (NUMA balancing, cache-aware balancing), where readable.
    pub switches: BTreeMap<String, String>,
    /// Versions of the programs involved.
    pub versions: BTreeMap<String, String>,
}
