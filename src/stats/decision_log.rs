//! The last decisions, in a ring of fixed size, for `baton why`.

use crate::balancer::{MoveOutcome, NR_MIGRATE};
use crate::domains::{GroupId, LevelKind};
use crate::policy::decide::Plan;
use crate::policy::env::{IdleType, PassKind};
use crate::policy::group_stats::GroupStats;
use crate::policy::imbalance::MigrationType;
use crate::policy::skip::SkipReason;
use crate::sync::{Mutex, lock};
use crate::units::{CpuId, Load, Nanos, TaskKey};
use serde::Serialize;
use std::fmt;

/// Tasks that one record names; a pass that moves more counts the rest.
pub const TASKS_NAMED: usize = 8;

/// One task of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TaskMove {
    /// Which.
    pub task: TaskKey,
    /// What became of it.
    pub outcome: MoveOutcome,
    /// Whether it was running and was pushed.
    pub pushed: bool,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// So many tasks moved.
    Moved(u32),
    /// Nothing did.
    Skipped(SkipReason),
}

/// One balancing attempt that got past its due check and election.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Decision {
    /// Counts decisions of one log, from 1.
    pub seq: u64,
    /// When.
    pub at: Nanos,
    /// Under which configuration.
    pub epoch: u64,
    /// Which pass.
    pub pass: PassKind,
    /// For which CPU.
    pub cpu: CpuId,
    /// What that CPU was doing.
    pub idle: IdleType,
    /// At which level.
    pub level: LevelKind,
    /// The CPU's own group and its numbers.
    pub local: (GroupId, GroupStats),
    /// The busiest other group and its numbers, if one had anything to give.
    pub busiest: Option<(GroupId, GroupStats)>,
    /// Average load per full CPU over the domain.
    pub domain_load: Load,
    /// Failed attempts before this one.
    pub nr_balance_failed: u32,
    /// What was to move, if anything.
    pub plan: Option<Plan>,
    /// What came of it.
    pub verdict: Verdict,
    /// The first tasks asked for, as many as there are names for.
    #[serde(serialize_with = "named_only")]
    pub tasks: [Option<TaskMove>; TASKS_NAMED],
    /// Tasks asked for altogether.
    pub nr_tasks: u32,
}

const _: () = assert!(TASKS_NAMED <= NR_MIGRATE);

fn named_only<S: serde::Serializer>(
    tasks: &[Option<TaskMove>; TASKS_NAMED],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tasks.iter().flatten())
}

impl Decision {
    /// Notes one request to move a task.
    pub fn add_task(&mut self, task: TaskKey, outcome: MoveOutcome, pushed: bool) {
        if let Some(slot) = self.tasks.get_mut(self.nr_tasks as usize) {
            *slot = Some(TaskMove { task, outcome, pushed });
        }
        self.nr_tasks = self.nr_tasks.saturating_add(1);
    }

    /// Whether the decision concerns a CPU, as destination or source.
    pub fn concerns_cpu(&self, cpu: CpuId) -> bool {
        self.cpu == cpu || self.plan.is_some_and(|p| p.src == cpu || p.dst == cpu)
    }

    /// Whether the decision named a task of that pid.
    pub fn concerns_pid(&self, pid: u32) -> bool {
        self.tasks.iter().flatten().any(|t| t.task.pid == pid)
    }
}

fn write_group(f: &mut fmt::Formatter<'_>, who: &str, id: GroupId, g: &GroupStats) -> fmt::Result {
    write!(
        f,
        "\n  {who} group {}: {}, {} tasks on {} CPUs ({} idle), load {}, util {}, runnable {}, capacity {}",
        id.0,
        g.group_type,
        g.nr_running,
        g.weight,
        g.idle_cpus,
        g.load,
        g.util,
        g.runnable,
        g.capacity
    )?;
    if g.avg_load > Load::ZERO {
        write!(f, ", load per CPU {}", g.avg_load)?;
    }
    if g.pinned {
        f.write_str(", marked: affinity kept it from balancing inside")?;
    }
    Ok(())
}

/// The decision in words.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ns) = (self.at.0 / 1_000_000_000, self.at.0 % 1_000_000_000);
        write!(
            f,
            "[{s}.{:06}] {} pass for CPU {} ({}) at {}: ",
            ns / 1_000,
            self.pass,
            self.cpu,
            self.idle,
            self.level
        )?;
        match self.verdict {
            Verdict::Moved(1) => f.write_str("1 task moved")?,
            Verdict::Moved(n) => write!(f, "{n} tasks moved")?,
            Verdict::Skipped(reason) => write!(f, "nothing moved: {reason}")?,
        }
        // A pass that lost the serialize flag compared nothing.
        if self.local.1.weight > 0 {
            write_group(f, "own", self.local.0, &self.local.1)?;
        }
        if let Some((id, stats)) = &self.busiest {
            write_group(f, "busiest", *id, stats)?;
            write!(f, "\n  domain's load per CPU {}", self.domain_load)?;
        }
        if let Some(plan) = &self.plan {
            let unit = match (plan.unit, plan.imbalance) {
                (MigrationType::Task, 1) => "task".to_string(),
                (unit, _) => unit.to_string(),
            };
            write!(
                f,
                "\n  imbalance: {} {unit}, from CPU {} to CPU {}, after {} failed attempts",
                plan.imbalance, plan.src, plan.dst, self.nr_balance_failed
            )?;
        }
        for task in self.tasks.iter().flatten() {
            let verb = if task.pushed { "push" } else { "move" };
            write!(f, "\n  {verb} pid {}: {}", task.task.pid, task.outcome)?;
        }
        let named = self.tasks.iter().flatten().count() as u32;
        if self.nr_tasks > named {
            write!(f, "\n  and {} more tasks", self.nr_tasks - named)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Ring {
    slots: Vec<Decision>,
    next: usize,
    seq: u64,
}

/// A ring of the last decisions of one balancer. Writing never allocates; a reader copies under a
/// lock held for the copy only.
#[derive(Debug)]
pub struct DecisionLog {
    ring: Mutex<Ring>,
    capacity: usize,
}

impl DecisionLog {
    /// A ring of `capacity` decisions (at least one).
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let ring = Ring { slots: Vec::with_capacity(capacity), next: 0, seq: 0 };
        Self { ring: Mutex::new(ring), capacity }
    }

    /// Adds a decision, in place of the oldest when full; its number is given here.
    pub fn push(&self, mut decision: Decision) {
        let mut ring = lock(&self.ring);
        ring.seq += 1;
        decision.seq = ring.seq;
        let at = ring.next;
        if ring.slots.len() < self.capacity {
            ring.slots.push(decision);
        } else {
            ring.slots[at] = decision;
        }
        ring.next = (at + 1) % self.capacity;
    }

    /// The last decision for a CPU that the ring still holds.
    pub fn last_for(&self, cpu: CpuId) -> Option<Decision> {
        let ring = lock(&self.ring);
        ring.slots.iter().filter(|d| d.cpu == cpu).max_by_key(|d| d.seq).copied()
    }

    /// The decisions numbered above `seq`, oldest first, and how many of those the ring had
    /// already lost.
    pub fn since(&self, seq: u64) -> (Vec<Decision>, u64) {
        let ring = lock(&self.ring);
        let (newer, older) = ring.slots.split_at(ring.next.min(ring.slots.len()));
        let kept: Vec<Decision> =
            older.iter().chain(newer).filter(|d| d.seq > seq).copied().collect();
        let lost = ring.seq.saturating_sub(seq).saturating_sub(kept.len() as u64);
        (kept, lost)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::group_stats::GroupType;

    fn decision() -> Decision {
        let busy = GroupStats {
            group_type: GroupType::Overloaded,
            weight: 4,
            nr_running: 8,
            load: Load(8192),
            avg_load: Load(2048),
            ..Default::default()
        };
        let plan = Plan {
            group: GroupId(1),
            src: CpuId(5),
            dst: CpuId(0),
            unit: MigrationType::Task,
            imbalance: 1,
        };
        Decision {
            seq: 0,
            at: Nanos(1_500_000_000),
            epoch: 0,
            pass: PassKind::Periodic,
            cpu: CpuId(0),
            idle: IdleType::Idle,
            level: LevelKind::Numa(1),
            local: (GroupId(0), GroupStats { weight: 4, idle_cpus: 4, ..Default::default() }),
            busiest: Some((GroupId(1), busy)),
            domain_load: Load(1024),
            nr_balance_failed: 0,
            plan: Some(plan),
            verdict: Verdict::Moved(1),
            tasks: [None; TASKS_NAMED],
            nr_tasks: 0,
        }
    }

    #[test]
    fn the_ring_keeps_the_last_and_counts_the_lost() {
        let log = DecisionLog::new(4);
        (0..10).for_each(|_| log.push(decision()));
        let (kept, lost) = log.since(0);
        assert_eq!(kept.iter().map(|d| d.seq).collect::<Vec<_>>(), [7, 8, 9, 10]);
        assert_eq!(lost, 6);
        assert_eq!(log.since(9).0.len(), 1);
        assert_eq!(log.since(10), (Vec::new(), 0));
        assert_eq!(log.last_for(CpuId(0)).unwrap().seq, 10);
        assert!(log.last_for(CpuId(5)).is_none(), "a source is not a CPU balanced for");
    }

    impl PartialEq for Decision {
        fn eq(&self, other: &Self) -> bool {
            self.seq == other.seq
        }
    }

    #[test]
    fn a_decision_is_told_in_words_and_as_json() {
        let mut d = decision();
        d.add_task(TaskKey { pid: 42, generation: 1 }, MoveOutcome::Applied, false);
        let text = d.to_string();
        for part in [
            "[1.500000] periodic pass for CPU 0 (idle) at NUMA: 1 task moved",
            "own group 0: has_spare, 0 tasks on 4 CPUs (4 idle)",
            "busiest group 1: overloaded, 8 tasks on 4 CPUs",
            "imbalance: 1 task, from CPU 5 to CPU 0",
            "move pid 42: applied",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let json = serde_json::to_value(d).unwrap();
        assert_eq!(json["tasks"][0]["task"]["pid"], 42);
        assert_eq!(json["verdict"]["moved"], 1);
        assert!(d.concerns_cpu(CpuId(5)) && d.concerns_pid(42) && !d.concerns_pid(43));
    }
}
