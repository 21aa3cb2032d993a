//! The one boundary between a comparison and the machine it runs on.
//!
//! The session decides what comes next; a [`Machine`] does it and reports what it saw. There is the
//! real one and, for tests, one that follows a script.

use super::side::{Scheduler, Side};
use super::workload::{Invocation, Printed, Server, Workload};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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

impl Environment {
    /// What is another than `here`, apart from the boot: runs of both are not to be compared.
    pub fn changed(&self, here: &Self) -> Vec<String> {
        let text = |value: &Value| value.to_string();
        let list = |map: &BTreeMap<String, String>| {
            map.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
        };
        let governors =
            |e: &Self| list(&e.governors.iter().map(|(g, n)| (g.clone(), n.to_string())).collect());
        let mut pairs = vec![
            ("kernel", self.kernel.clone(), here.kernel.clone()),
            ("kernel build", self.kernel_build.clone(), here.kernel_build.clone()),
            ("command line", self.command_line.clone(), here.command_line.clone()),
            ("CPUs", self.cpus.to_string(), here.cpus.to_string()),
            ("governor", governors(self), governors(here)),
            ("switches", list(&self.switches), list(&here.switches)),
            ("versions", list(&self.versions), list(&here.versions)),
        ];
        for part in ["online", "isolated", "nohz_full", "nodes", "llcs"] {
            pairs.push((part, text(&self.topology[part]), text(&here.topology[part])));
        }
        pairs.retain(|(_, there, here)| there != here);
        pairs.into_iter().map(|(what, a, b)| format!("{what}: {a}, now {b}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_named_with_both_values() {
        let before = Environment {
            cpus: 8,
            boot_id: "a".into(),
            governors: BTreeMap::from([("performance".into(), 8)]),
            topology: serde_json::json!({ "online": "0-7", "hotplug_seq": 1 }),
            ..Environment::default()
        };
        let mut here = before.clone();
        here.boot_id = "b".into();
        here.topology["hotplug_seq"] = 2.into();
        assert_eq!(before.changed(&here), [""; 0]);
        here.governors = BTreeMap::from([("powersave".into(), 8)]);
        here.topology["online"] = "0-6".into();
        assert_eq!(
            before.changed(&here),
            ["governor: performance 8, now powersave 8", "online: \"0-7\", now \"0-6\""]
        );
    }
}
