//! A running agent as others see it: settings to change, counters to read. Shared by the workers,
//! the control socket and the statistics server.

use super::bpf::intf;
use super::clock;
use super::loader::Tables;
use super::meters::Meters;
use super::roster::Roster;
use crate::balancer::{ConfigCell, MoveOutcome, Violation, WorkConservation};
use crate::control::{Reply, Request};
use crate::cpumask::Cpumask;
use crate::policy::tunables::Tunables;
use crate::stats::counters::{Counters, CountersCell};
use crate::stats::decision_log::DecisionLog;
use crate::stats::latency::Latencies;
use crate::units::CpuId;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// One worker.
pub(crate) struct WorkerView {
    pub(crate) shard: Cpumask,
    /// The shard's CPUs as a list.
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) newidle_latency: Latencies,
    pub(crate) counters: Arc<CountersCell>,
    pub(crate) decisions: Arc<DecisionLog>,
    pub(crate) meters: Arc<Meters>,
}

/// What the work-conservation checker has found.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ConservationView {
    violations: u64,
    /// Of these: for want of a CPU's reaction.
    no_reaction: u64,
    longest_ns: u64,
    first: Option<Violation>,
}

/// Everything there is to see.
pub(crate) struct Live {
    pub(crate) config: ConfigCell,
    pub(crate) tables: Tables,
    pub(crate) workers: Vec<WorkerView>,
    roster: Arc<Roster>,
    conservation: Mutex<ConservationView>,
    started: Instant,
    /// The agent's CPU time when it was ready.
    cpu_ns: AtomicU64,
}

impl Live {
    pub(crate) fn new(
        tunables: Tunables,
        tables: Tables,
        workers: Vec<WorkerView>,
        roster: Arc<Roster>,
    ) -> Self {
        let cpu_ns = AtomicU64::new(clock::process_cpu_time().0);
        Self {
            config: ConfigCell::new(tunables),
            tables,
            workers,
            roster,
            conservation: Mutex::default(),
            started: Instant::now(),
            cpu_ns,
        }
    }

    /// Sum of one of the BPF component's counters over all CPUs.
    pub(crate) fn stat(&self, stat: intf::baton_stat) -> u64 {
        let cpus = &self.tables.cpus;
        (0..cpus.len()).map(|cpu| cpus.read(cpu).stats[stat as usize]).sum()
    }

    fn sum_counters(&self, of: impl Fn(&CountersCell) -> Counters) -> Option<Counters> {
        let mut all = self.workers.iter().map(|w| of(&w.counters));
        let mut sum = all.next()?;
        all.for_each(|c| sum.add(&c));
        Some(sum)
    }

    /// Counters since the start, over all configurations.
    pub(crate) fn total(&self) -> Option<Counters> {
        self.sum_counters(CountersCell::total)
    }

    pub(crate) fn meter(&self, of: impl Fn(&Meters) -> u64) -> u64 {
        self.workers.iter().map(|w| of(&w.meters)).sum()
    }

    /// Heap allocations of all workers; `None` if one of them is not counted.
    pub(crate) fn allocations(&self) -> Option<u64> {
        self.workers.iter().map(|w| w.meters.allocations()).sum()
    }

    /// The agent's CPU time since it was ready, ns.
    pub(crate) fn agent_cpu_ns(&self) -> u64 {
        clock::process_cpu_time().0.saturating_sub(self.cpu_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn uptime_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Takes over what the checker has found.
    pub(crate) fn note_violations(&self, checker: &WorkConservation) {
        *self.conservation() = ConservationView {
            violations: checker.violations(),
            no_reaction: checker.no_reaction(),
            longest_ns: checker.longest().0,
            first: checker.first().copied(),
        };
    }

    fn conservation(&self) -> MutexGuard<'_, ConservationView> {
        // Whole after every step, so a panic elsewhere leaves nothing half done.
        self.conservation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Times that a CPU idled too long while a task waited that it might have run, and the first
    /// of them in words.
    pub(crate) fn violations(&self) -> (u64, Option<String>) {
        let view = self.conservation();
        (view.violations, view.first.map(|v| v.to_string()))
    }

    /// Answers one request from the control socket.
    pub(crate) fn answer(&self, request: Request) -> Reply {
        match request {
            Request::Get => Ok(self.settings()),
            Request::Set(changes) => {
                let changes = changes.iter().map(String::as_str);
                self.config.update(changes).map_err(|e| e.to_string())?;
                // A worker at rest would learn of it only when something happens.
                self.roster.wake_all();
                Ok(self.settings())
            }
            Request::Status => Ok(self.status()),
            Request::Why { after, cpu, pid } => Ok(self.why(&after, |d| {
                cpu.is_none_or(|cpu| d.concerns_cpu(cpu)) && pid.is_none_or(|p| d.concerns_pid(p))
            })),
        }
    }

    fn settings(&self) -> Value {
        let config = self.config.load();
        json!({ "epoch": config.epoch, "settings": config.tunables })
    }

    fn status(&self) -> Value {
        let globals = self.tables.globals.read(0);
        let outcomes: Map<String, Value> = MoveOutcome::ALL
            .iter()
            .zip(globals.outcomes)
            .map(|(outcome, n)| (outcome.name().to_string(), n.into()))
            .collect();
        let tasks: Map<String, Value> = TASK_COUNTERS
            .iter()
            .map(|(name, stat)| ((*name).to_string(), self.stat(*stat).into()))
            .collect();
        let workers: Vec<Value> = self.workers.iter().map(worker).collect();
        json!({
            "version": 1,
            "uptime_ns": self.uptime_ns(),
            "settings": self.settings(),
            "agent": {
                "cpu_ns": self.agent_cpu_ns(),
                "cpu_pct": 100.0 * self.agent_cpu_ns() as f64 / self.uptime_ns().max(1) as f64,
                "wakeups": self.meter(|m| m.wakeups.load(Ordering::Relaxed)),
                "minor_faults": self.meter(|m| m.minor_faults.load(Ordering::Relaxed)),
                "major_faults": self.meter(|m| m.major_faults.load(Ordering::Relaxed)),
                "allocations": self.allocations(),
            },
            "requests": { "issued": globals.issued, "ended": outcomes },
            "tasks": tasks,
            "work_conservation": *self.conservation(),
            "cpus": self.cpus(),
            "workers": workers,
            "counters": self.sum_counters(CountersCell::current),
            "counters_total": self.total(),
        })
    }

    /// What each CPU has to do now.
    fn cpus(&self) -> Vec<Value> {
        let balanced = self.workers.iter().flat_map(|w| &w.cpus);
        balanced
            .map(|cpu| {
                let c = self.tables.cpus.read(cpu.index());
                let idle = c.state == intf::baton_cpu_state_BATON_CPU_IDLE;
                json!({
                    "cpu": cpu, "runnable": c.nr_runnable, "waiting": c.nr_queued,
                    "weight": c.sum_weight, "idle": idle, "avg_idle_ns": c.avg_idle,
                })
            })
            .collect()
    }

    /// Decisions after the given numbers that pass the filter, oldest first, and the numbers to ask
    /// with next time.
    fn why(
        &self,
        after: &[u64],
        wanted: impl Fn(&crate::stats::decision_log::Decision) -> bool,
    ) -> Value {
        let mut found = Vec::new();
        let mut next = Vec::new();
        for (i, worker) in self.workers.iter().enumerate() {
            let seen = after.get(i).copied().unwrap_or_default();
            let (decisions, _lost) = worker.decisions.since(seen);
            next.push(decisions.last().map_or(seen, |d| d.seq));
            found.extend(decisions.into_iter().filter(|d| wanted(d)));
        }
        found.sort_by_key(|d| d.at);
        let found: Vec<Value> =
            found.iter().map(|d| json!({ "text": d.to_string(), "decision": d })).collect();
        json!({ "next": next, "decisions": found })
    }
}

fn worker(w: &WorkerView) -> Value {
    let m = &w.meters;
    json!({
        "cpus": w.shard,
        "rounds": w.counters.total().rounds,
        "wakeups": m.wakeups.load(Ordering::Relaxed),
        "cpu_ns": m.cpu_ns.load(Ordering::Relaxed),
        "put_off": m.put_off.load(Ordering::Relaxed),
        "round_p50_ns": m.rounds.quantile(0.5),
        "round_p99_ns": m.rounds.quantile(0.99),
        "newidle_answers": w.newidle_latency.count(),
        "newidle_p50_ns": w.newidle_latency.quantile(0.5),
        "newidle_p99_ns": w.newidle_latency.quantile(0.99),
    })
}

/// The BPF component's counters, by the names under which they are shown.
pub(crate) const TASK_COUNTERS: [(&str, intf::baton_stat); 18] = [
    ("switches", intf::baton_stat_BATON_STAT_SWITCHES),
    ("wait_ns", intf::baton_stat_BATON_STAT_WAIT_NS),
    ("direct", intf::baton_stat_BATON_STAT_DIRECT),
    ("queued", intf::baton_stat_BATON_STAT_QUEUED),
    ("own", intf::baton_stat_BATON_STAT_OWN),
    ("pulled", intf::baton_stat_BATON_STAT_PULLED),
    ("kept", intf::baton_stat_BATON_STAT_KEPT),
    ("preempted", intf::baton_stat_BATON_STAT_PREEMPT),
    ("agent", intf::baton_stat_BATON_STAT_AGENT),
    ("moves_landed", intf::baton_stat_BATON_STAT_LANDED),
    ("moves_diverted", intf::baton_stat_BATON_STAT_DIVERTED),
    ("no_context", intf::baton_stat_BATON_STAT_NO_CTX),
    ("pulls_empty", intf::baton_stat_BATON_STAT_PULL_EMPTY),
    ("idle_entries", intf::baton_stat_BATON_STAT_IDLE_ENTRIES),
    ("told_looks", intf::baton_stat_BATON_STAT_TOLD),
    ("told_looks_late", intf::baton_stat_BATON_STAT_TOLD_LATE),
    ("forks", intf::baton_stat_BATON_STAT_FORKS),
    ("forked_away", intf::baton_stat_BATON_STAT_FORKED_AWAY),
];
const _: () = assert!(TASK_COUNTERS.len() == intf::baton_stat_BATON_NR_STATS as usize);
