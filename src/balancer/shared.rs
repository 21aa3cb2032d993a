//! The words that all balancers of a machine share. Everything else belongs to one worker.

use crate::balancer::recent::RecentMoves;
use crate::domains::{DomainTree, LevelKind};
use crate::policy::facts::Facts;
use crate::policy::interval::Pace;
use crate::policy::marks::GroupMarks;
use crate::policy::nohz::Nohz;
use crate::policy::serialize::SerializeGate;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{CacheLine, Mutex, lock};
use crate::units::{CpuId, Nanos, TaskKey};

/// Shared state of one machine. Each part that is written often has its own cache lines.
#[derive(Debug)]
pub struct Shared {
    /// The serialize flags.
    pub gate: SerializeGate,
    /// What is known of groups that affinity keeps unbalanced.
    pub marks: GroupMarks,
    /// The idle CPUs and when to balance for them.
    pub nohz: Nohz,
    /// Tick and longest interval.
    pub pace: Pace,
    /// Whether some CPU has more than one task (kernel: `rd->overloaded`).
    overloaded: CacheLine<AtomicBool>,
    /// The last moves, whoever made them: one worker undoes what another did. Locked for each task
    /// moved, which is seldom against a pass.
    recent: Mutex<RecentMoves>,
    /// By CPU: its running task is being pushed away (kernel: `rq->active_balance`).
    active: Box<[AtomicBool]>,
    /// By node: whose turn it is to make its fork plan.
    fork_plans: Box<[CacheLine<PlanAge>]>,
}

/// When and under which configuration a plan was made that several workers might make.
#[derive(Debug, Default)]
pub(super) struct PlanAge {
    made_at: AtomicU64,
    /// One more than the epoch; 0: never.
    made_under: AtomicU64,
}

impl PlanAge {
    /// Whether the plan is older than `hold` or made under an earlier configuration, and the caller
    /// is the one to make it anew.
    pub(super) fn claim(&self, now: Nanos, hold: Nanos, epoch: u64) -> bool {
        let made_at = self.made_at.load(Ordering::Relaxed);
        let holds = self.made_under.load(Ordering::Relaxed) > epoch && now - Nanos(made_at) < hold;
        let (old, new) = (made_at, now.0);
        let relaxed = Ordering::Relaxed;
        if holds || self.made_at.compare_exchange(old, new, relaxed, relaxed).is_err() {
            return false;
        }
        self.made_under.fetch_max(epoch + 1, relaxed);
        true
    }
}

impl Shared {
    /// State for a machine; `tick` is the shortest time between two looks at a CPU.
    pub fn new(tree: &DomainTree, facts: &Facts, tick: Nanos) -> Self {
        let highest_numa = facts.levels().iter().rev().find_map(|level| match level {
            LevelKind::Numa(n) => Some(usize::from(*n)),
            _ => None,
        });
        Self {
            gate: SerializeGate::new(highest_numa.unwrap_or(0)),
            marks: GroupMarks::new(tree.groups.len()),
            nohz: Nohz::new(facts.node_of().into()),
            pace: Pace::new(tick, facts.nr_cpus()),
            overloaded: CacheLine(AtomicBool::new(false)),
            recent: Mutex::new(RecentMoves::default()),
            active: (0..facts.width()).map(|_| AtomicBool::new(false)).collect(),
            fork_plans: (0..facts.nr_nodes()).map(|_| CacheLine::default()).collect(),
        }
    }

    /// Whether some CPU had more than one task when the root was last looked at.
    pub fn is_overloaded(&self) -> bool {
        self.overloaded.0.load(Ordering::Relaxed)
    }

    /// Notes it; the line is written only if that changes it.
    pub fn set_overloaded(&self, value: bool) {
        if self.is_overloaded() != value {
            self.overloaded.0.store(value, Ordering::Relaxed);
        }
    }

    /// Notes a move; true if it undoes the task's last one.
    pub fn note_move(&self, task: TaskKey, src: CpuId, dst: CpuId, now: Nanos) -> bool {
        lock(&self.recent).note(task, src, dst, now)
    }

    /// The age of a node's fork plan.
    pub(super) fn fork_plan(&self, home: u16) -> &PlanAge {
        &self.fork_plans[usize::from(home)].0
    }

    /// Claims a source for pushing its running task; false if another CPU is at it.
    pub fn claim_push(&self, src: CpuId) -> bool {
        !self.active[src.index()].swap(true, Ordering::Acquire)
    }

    /// Gives the source back.
    pub fn release_push(&self, src: CpuId) {
        self.active[src.index()].store(false, Ordering::Release);
    }
}
