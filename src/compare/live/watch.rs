//! What is counted beside the score: from /proc, and from a running scx_baton.

use super::kernel::read;
use crate::compare::machine::{Charge, Counters};
use crate::control::{Request, ask};
use crate::topology::Topology;
use crate::units::CpuId;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Most tasks that one look reads.
const MOST_TASKS: usize = 256;

/// Looks at the workload's tasks while they run.
pub(super) struct Watch<'a> {
    groups: BTreeSet<u32>,
    topology: Option<&'a Topology>,
    /// Who scheduled the tasks that were seen.
    pub(super) charge: Charge,
    /// Looks by node on which the task was.
    placement: BTreeMap<u32, u64>,
    /// By thread: migrations before the run and at the last look.
    migrations: BTreeMap<u32, (u64, u64)>,
    running: bool,
}

/// One look at one thread.
struct Look {
    parent: u32,
    group: u32,
    cpu: u32,
    policy: u32,
}

impl Look {
    /// From `/proc/PID/stat`; the name in parentheses may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // Field 3, the state, is the first one here.
        let field = |n: usize| fields.get(n - 3)?.parse().ok();
        Some(Self { parent: field(4)?, group: field(5)?, cpu: field(39)?, policy: field(41)? })
    }

    /// SCHED_OTHER, BATCH, IDLE, EXT: what sched_ext may take over.
    fn is_ordinary(&self) -> bool {
        matches!(self.policy, 0 | 3 | 5 | 7)
    }
}

impl<'a> Watch<'a> {
    pub(super) fn new(topology: Option<&'a Topology>, servers: Option<u32>) -> Self {
        Self {
            groups: servers.into_iter().collect(),
            topology,
            charge: Charge::default(),
            placement: BTreeMap::new(),
            migrations: BTreeMap::new(),
            running: false,
        }
    }

    /// From now on the run is on, and these process groups belong to it too.
    pub(super) fn groups(&mut self, groups: impl Iterator<Item = u32>) {
        self.groups.extend(groups);
        self.running = true;
    }

    pub(super) fn look(&mut self) {
        if self.groups.is_empty() {
            return;
        }
        let numbers = |dir: &str| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok()).collect::<Vec<_>>()
        };
        let mut left = MOST_TASKS;
        for pid in numbers("/proc") {
            let stat = read(format!("/proc/{pid}/stat"));
            let Some(look) = stat.as_deref().and_then(Look::parse) else { continue };
            // PostgreSQL's processes leave the group, but not their parent.
            if !self.groups.contains(&look.group) && !self.groups.contains(&look.parent) {
                continue;
            }
            for thread in numbers(&format!("/proc/{pid}/task")) {
                self.look_at(&format!("/proc/{pid}/task/{thread}"), thread);
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
    }

    fn look_at(&mut self, dir: &str, thread: u32) {
        let Some(look) = read(format!("{dir}/stat")).as_deref().and_then(Look::parse) else {
            return;
        };
        let sched = read(format!("{dir}/sched")).unwrap_or_default();
        let value = |name: &str| -> Option<u64> {
            let line = sched.lines().find_map(|line| line.strip_prefix(name))?;
            line.split(':').nth(1)?.trim().parse().ok()
        };
        if let Some(n) = value("se.nr_migrations") {
            let before = if self.running { 0 } else { n };
            self.migrations.entry(thread).or_insert((before, n)).1 = n;
        }
        if !self.running {
            return;
        }
        if let Some(ours) = value("ext.enabled").filter(|_| look.is_ordinary()) {
            self.charge.seen += 1;
            self.charge.ours += ours.min(1);
        }
        if let Some(node) = self.topology.and_then(|t| t.node_of(CpuId(look.cpu))) {
            *self.placement.entry(node.0).or_default() += 1;
        }
    }

    /// Adds what was seen.
    pub(super) fn add_to(&self, counters: &mut Counters, elapsed_s: f64) {
        if !self.migrations.is_empty() && elapsed_s > 0.0 {
            let n: u64 = self.migrations.values().map(|(a, b)| b.saturating_sub(*a)).sum();
            counters.insert("migrations seen /s".into(), n as f64 / elapsed_s);
        }
        let all: u64 = self.placement.values().sum();
        for (node, n) in self.placement.iter().filter(|_| self.placement.len() > 1) {
            counters.insert(format!("placement node {node} %"), 100.0 * *n as f64 / all as f64);
        }
    }
}

/// Running totals at one moment.
pub(super) struct Counts {
    /// By node: busy and all clock ticks.
    ticks: BTreeMap<u32, (u64, u64)>,
    switches: u64,
    forks: u64,
    /// Time runnable and not running, ns; times a task began to run.
    wait: Option<(u64, u64)>,
    /// CPU time of the scheduler's process, clock ticks.
    agent: Option<u64>,
    status: Option<Value>,
}

impl Counts {
    /// `scheduler` is the process of the scheduler that was started, if any.
    pub(super) fn now(topology: Option<&Topology>, scheduler: Option<u32>) -> Self {
        let stat = read("/proc/stat").unwrap_or_default();
        let node = |cpu: u32| topology.and_then(|t| t.node_of(CpuId(cpu))).map_or(0, |n| n.0);
        let total = |name: &str| -> u64 {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|n| n.trim().parse().ok()).unwrap_or_default()
        };
        let agent = scheduler.and_then(|pid| cpu_ticks(&read(format!("/proc/{pid}/stat"))?));
        Self {
            ticks: node_ticks(&stat, node),
            switches: total("ctxt "),
            forks: total("processes "),
            wait: read("/proc/schedstat").as_deref().and_then(run_delay),
            agent,
            status: scheduler.and_then(|_| ask(&Request::Status).ok()),
        }
    }

    /// What was counted in between, as rates and shares.
    pub(super) fn since(&self, earlier: &Self, elapsed_s: f64) -> Counters {
        let mut counters = Counters::new();
        if elapsed_s <= 0.0 {
            return counters;
        }
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / elapsed_s;
        counters.insert("context switches /s".into(), rate(self.switches, earlier.switches));
        counters.insert("forks /s".into(), rate(self.forks, earlier.forks));
        for (node, (busy, all)) in &self.ticks {
            let (busy_then, all_then) = earlier.ticks.get(node).copied().unwrap_or_default();
            let (busy, all) = (busy.saturating_sub(busy_then), all.saturating_sub(all_then));
            if all > 0 {
                let share = 100.0 * busy as f64 / all as f64;
                counters.insert(format!("utilisation node {node} %"), share);
            }
        }
        if let (Some((wait, runs)), Some((wait_then, runs_then))) = (self.wait, earlier.wait)
            && runs > runs_then
        {
            let mean = wait.saturating_sub(wait_then) as f64 / 1e3 / (runs - runs_then) as f64;
            counters.insert("run-queue wait us".into(), mean);
        }
        if let (Some(now), Some(then)) = (self.agent, earlier.agent) {
            let ticks = rustix::param::clock_ticks_per_second() as f64;
            counters.insert("agent CPU %".into(), 100.0 * rate(now, then) / ticks);
        }
        if let (Some(now), Some(then)) = (&self.status, &earlier.status) {
            let (now, then) = (flat(now), flat(then));
            for (name, n) in now {
                let gained = n.saturating_sub(then.get(&name).copied().unwrap_or_default());
                if gained > 0 {
                    counters.insert(format!("{name} /s"), gained as f64 / elapsed_s);
                }
            }
        }
        counters
    }
}

/// User and system time, clock ticks, from `/proc/PID/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// Busy and all ticks by node from `/proc/stat`.
fn node_ticks(stat: &str, node: impl Fn(u32) -> u32) -> BTreeMap<u32, (u64, u64)> {
    let mut ticks = BTreeMap::new();
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let cpu = words.next().and_then(|w| w.strip_prefix("cpu")?.parse().ok());
        let Some(cpu) = cpu else { continue };
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let times: Vec<u64> = words.take(8).filter_map(|w| w.parse().ok()).collect();
        let all: u64 = times.iter().sum();
        let idle: u64 = times.iter().skip(3).take(2).sum();
        let entry: &mut (u64, u64) = ticks.entry(node(cpu)).or_default();
        *entry = (entry.0 + all - idle, entry.1 + all);
    }
    ticks
}

/// Sums of the CPUs' run delay and number of timeslices from `/proc/schedstat`.
fn run_delay(text: &str) -> Option<(u64, u64)> {
    let of_cpu = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_cpu = words.first()?.strip_prefix("cpu")?.parse::<u32>().is_ok();
        Some((words.get(8)?.parse::<u64>().ok()?, words.get(9)?.parse::<u64>().ok()?))
            .filter(|_| is_cpu)
    };
    text.lines().filter_map(of_cpu).reduce(|a, b| (a.0 + b.0, a.1 + b.1))
}

/// scx_baton's counters by name, summed over levels and idle types.
fn flat(status: &Value) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |set: &Value| {
        for (name, value) in set.as_object().into_iter().flatten() {
            if let Some(n) = value.as_u64() {
                *sums.entry(name.clone()).or_default() += n;
            }
        }
    };
    let total = &status["counters_total"];
    for level in total["levels"].as_array().into_iter().flatten() {
        ["busy", "idle", "newidle"].iter().for_each(|kind| add(&level[*kind]));
    }
    for name in ["rounds", "visits", "moves_undone"] {
        add(&serde_json::json!({ name: total[name] }));
    }
    let tasks = status["tasks"].as_object().into_iter().flatten();
    for (name, value) in tasks {
        add(&serde_json::json!({ format!("tasks {name}"): value }));
    }
    add(&serde_json::json!({ "requests issued": status["requests"]["issued"] }));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_name_with_parentheses_hides_no_field() {
        let mut stat = "7 (a) b (c) S 1 42 42".to_string();
        stat.push_str(&" 0".repeat(32));
        stat.push_str(" 5 0 7 0");
        let look = Look::parse(&stat).unwrap();
        assert_eq!((look.parent, look.group, look.cpu, look.policy), (1, 42, 5, 7));
        assert!(look.is_ordinary() && Look::parse("").is_none());
    }

    #[test]
    fn own_threads_are_seen_with_their_node() {
        let stat = read("/proc/self/stat").unwrap();
        let topology = Topology::read(Path::new("/")).unwrap();
        let mut watch = Watch::new(Some(&topology), None);
        watch.groups(std::iter::once(Look::parse(&stat).unwrap().group));
        watch.look();
        assert!(watch.placement.values().sum::<u64>() > 0);
    }

    #[test]
    fn busy_time_is_all_but_idle_and_waiting_for_disks() {
        let stat =
            "cpu  9 9 9 9\ncpu0 10 0 5 70 15 0 0 0 3 0\ncpu1 20 0 0 80 0 0 0 0 0 0\nctxt 5\n";
        let ticks = node_ticks(stat, |cpu| cpu);
        assert_eq!(ticks, BTreeMap::from([(0, (15, 100)), (1, (20, 100))]));
    }

    #[test]
    fn run_delay_is_summed_over_cpus_only() {
        let text = "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 99 1000 10\ndomain0 MC 3 0 0 0 0 0 0 0 0\n\
                    cpu1 0 0 0 0 0 0 99 500 5\n";
        assert_eq!(run_delay(text), Some((1500, 15)));
        assert_eq!(run_delay("version 17\n"), None);
    }

    #[test]
    fn counters_are_summed_over_levels_and_idle_types() {
        let status = serde_json::json!({
            "counters_total": { "rounds": 4, "levels": [
                { "level": "MC", "busy": { "lb_count": 1 }, "idle": { "lb_count": 2 }, "newidle": {} },
                { "level": { "NUMA": 1 }, "busy": { "lb_count": 4 }, "idle": {}, "newidle": {} } ] },
            "tasks": { "pulled": 9 }, "requests": { "issued": 3 },
        });
        let sums = flat(&status);
        assert_eq!((sums["lb_count"], sums["rounds"], sums["tasks pulled"]), (7, 4, 9));
    }

    #[test]
    fn agent_time_is_user_and_system_time() {
        let mut stat = "7 (x) S".to_string();
        stat.push_str(&" 0".repeat(10));
        stat.push_str(" 30 12 0 0");
        assert_eq!(cpu_ticks(&stat), Some(42));
    }
}
