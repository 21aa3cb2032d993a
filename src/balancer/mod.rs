//! When balancing happens and in which order; generic over the [`Host`].
//!
//! A [`Balancer`] belongs to one worker and owns what the CPUs of its shard remember; several of
//! them balance one machine side by side and share only the words in [`Shared`].

mod config;
pub mod fake;
mod host;
mod pass;
mod periodic;
mod recent;
mod shared;
mod stand_in;
mod view;

pub use config::{Config, ConfigCell};
pub use host::{CpuView, Host, MoveOutcome, NR_MIGRATE, PULL_PLAN_LEN, Snapshot, TaskView};
pub use recent::{RecentMoves, UNDONE_WITHIN};
pub use shared::Shared;
pub use stand_in::StandIn;

use crate::cpumask::Cpumask;
use crate::domains::{DomainTree, Link};
use crate::policy::detach::Chosen;
use crate::policy::facts::Facts;
use crate::policy::group_stats::SdStats;
use crate::policy::newidle::IDLE_COST_FLOOR;
use crate::policy::state::LevelState;
use crate::stats::counters::{Counters, CountersCell};
use crate::stats::decision_log::DecisionLog;
use crate::units::{CpuId, Nanos, TaskKey};
use std::sync::Arc;

/// Waiting tasks of one queue that a pass looks at. More than may move, so that a few bound or hot
/// tasks at the head do not hide the others.
pub const TASKS_LISTED: usize = 4 * NR_MIGRATE;

/// Decisions that each balancer remembers.
pub const DECISIONS_KEPT: usize = 512;

/// What a pass needs besides the balancer's own state; never changes during a round.
#[derive(Clone, Copy, Debug)]
struct Cx<'a> {
    tree: &'a DomainTree,
    facts: &'a Facts,
    shared: &'a Shared,
    config: &'a Config,
}

/// What a balancer keeps for one CPU of its shard.
#[derive(Clone, Copy, Debug)]
struct CpuSlot {
    cpu: CpuId,
    /// Index of its first level's state.
    first_state: usize,
    /// When the first of its levels is due if it is busy then (kernel: `rq->next_balance`).
    due_busy: Nanos,
    /// The same if it idles then.
    due_idle: Nanos,
    /// Whether it idled when last looked at.
    idle: bool,
    /// What a newidle pass costs at most (kernel: `rq->max_idle_balance_cost`).
    max_idle_balance_cost: Nanos,
}

/// Everything that a round changes.
#[derive(Debug)]
struct Inner {
    slots: Vec<CpuSlot>,
    states: Vec<LevelState>,
    view: view::View,
    counters: Counters,
    log: Arc<DecisionLog>,
    recent: RecentMoves,
    flag_taken: Nanos,
    // Scratch space, sized once.
    sds: SdStats,
    cpus: Cpumask,
    alternatives: Cpumask,
    tasks: Vec<TaskView>,
    chosen: Vec<Chosen>,
    keys: Vec<TaskKey>,
    outcomes: Vec<MoveOutcome>,
}

/// Balances the CPUs of one shard.
#[derive(Debug)]
pub struct Balancer {
    tree: Arc<DomainTree>,
    facts: Arc<Facts>,
    shared: Arc<Shared>,
    shard: Cpumask,
    published: Arc<CountersCell>,
    inner: Inner,
}

impl Balancer {
    /// A balancer for the CPUs of `shard` that are in the tree; all of them due at once.
    pub fn new(
        tree: Arc<DomainTree>,
        facts: Arc<Facts>,
        shared: Arc<Shared>,
        shard: &Cpumask,
    ) -> Self {
        let width = facts.width();
        let mut states = Vec::new();
        let mut slots = Vec::new();
        let in_tree = |c: &CpuId| !tree.chain(*c).is_empty();
        for cpu in shard.iter().filter(in_tree) {
            slots.push(CpuSlot {
                cpu,
                first_state: states.len(),
                due_busy: Nanos::ZERO,
                due_idle: Nanos::ZERO,
                idle: false,
                max_idle_balance_cost: IDLE_COST_FLOOR,
            });
            let level = |link: &Link| LevelState::new(tree.domain(link.domain));
            states.extend(tree.chain(cpu).iter().map(level));
        }
        let inner = Inner {
            states,
            view: view::View::new(width),
            counters: Counters::new(facts.levels()),
            log: Arc::new(DecisionLog::new(DECISIONS_KEPT)),
            recent: RecentMoves::default(),
            flag_taken: Nanos::ZERO,
            sds: SdStats::default(),
            cpus: Cpumask::new(width),
            alternatives: Cpumask::new(width),
            tasks: Vec::with_capacity(TASKS_LISTED),
            chosen: Vec::with_capacity(NR_MIGRATE),
            keys: Vec::with_capacity(NR_MIGRATE),
            outcomes: Vec::with_capacity(NR_MIGRATE),
            slots,
        };
        let shard = Cpumask::from_cpus(width, inner.slots.iter().map(|s| s.cpu));
        let published = Arc::new(CountersCell::new(facts.levels()));
        Self { tree, facts, shared, shard, published, inner }
    }

    /// The CPUs this balancer is responsible for.
    pub fn shard(&self) -> &Cpumask {
        &self.shard
    }

    /// Where its counters can be read from any thread; brought up to date by every round.
    pub fn counters(&self) -> Arc<CountersCell> {
        Arc::clone(&self.published)
    }

    /// Where its last decisions can be read from any thread.
    pub fn decisions(&self) -> Arc<DecisionLog> {
        Arc::clone(&self.inner.log)
    }

    /// What a CPU of the shard remembers about its levels, narrow to wide; empty for others.
    pub fn levels_of(&self, cpu: CpuId) -> &[LevelState] {
        let inner = &self.inner;
        match inner.slots.binary_search_by_key(&cpu, |s| s.cpu) {
            Ok(i) => {
                let first = inner.slots[i].first_state;
                &inner.states[first..first + self.tree.chain(cpu).len()]
            }
            Err(_) => &[],
        }
    }

    /// When the first CPU of the shard is due, by what it was doing when last looked at.
    pub fn next_due(&self) -> Nanos {
        let due = |s: &CpuSlot| if s.idle { s.due_idle } else { s.due_busy };
        self.inner.slots.iter().map(due).min().unwrap_or(Nanos::MAX)
    }
}
