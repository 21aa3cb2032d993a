//! When balancing happens and in which order; generic over the [`Host`].
//!
//! A [`Balancer`] belongs to one worker and owns what the CPUs of its shard remember; several of
//! them balance one machine side by side and share only the words in [`Shared`].

mod config;
pub mod fake;
mod fork_plan;
mod host;
mod moves;
mod newidle;
mod nohz;
mod pass;
mod periodic;
mod pull_plan;
mod recent;
mod shared;
mod tick;
mod view;
mod work_conservation;

pub use config::{Config, ConfigCell};
pub use fork_plan::{FORK_PLAN_LEN, ForkPlan, ForkStep};
pub use host::{CpuView, Host, MoveOutcome, NR_MIGRATE, Snapshot, TaskView};
pub use pull_plan::{DICE_THROWN, DICED_LEVELS, PULL_PLAN_LEN, PullPlan, PullReport, PullSource};
pub use recent::UNDONE_WITHIN;
pub use shared::Shared;
pub use work_conservation::{Violation, Waiting, WhyIdle, WorkConservation};

use crate::cpumask::Cpumask;
use crate::domains::{DomainTree, Link, SchedDomain};
use crate::policy::detach::Chosen;
use crate::policy::facts::Facts;
use crate::policy::group_stats::SdStats;
use crate::policy::newidle::{IDLE_COST_FLOOR, Rng};
use crate::policy::state::LevelState;
use crate::stats::counters::{Counters, CountersCell};
use crate::stats::decision_log::DecisionLog;
use crate::units::{CpuId, Nanos, TaskKey};
use std::sync::Arc;

/// Waiting tasks of one queue that a pass looks at. More than may move, so that a few bound or hot
/// tasks at the head do not hide the others.
pub const TASKS_LISTED: usize = 4 * NR_MIGRATE;

/// Decisions that each balancer remembers, or twice the CPUs of its shard if those are more.
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
    /// The same without levels at which another CPU was just elected.
    worth_busy: Nanos,
    /// When the first of its levels is due if it idles then.
    due_idle: Nanos,
    /// Whether it idled when last looked at.
    idle: bool,
    /// What a newidle pass costs at most (kernel: `rq->max_idle_balance_cost`).
    max_idle_balance_cost: Nanos,
    /// Levels, as bits, that its pull plan covers.
    planned: u32,
    /// The pull plan that the host has.
    plan: PullPlan,
    /// Uses of it for which the dice have been thrown.
    throws_left: u32,
    /// When it may next be told to use its plan while it idles, and how long it was left in peace
    /// last.
    tell_after: Nanos,
    tell_pause: Nanos,
}

/// The sources of one level for the CPUs of one group.
#[derive(Clone, Debug, Default)]
struct LevelSources {
    /// For which group, and until when they hold.
    made_for: Option<(Link, Nanos)>,
    /// Best first; never grows beyond its first capacity.
    cpus: Vec<CpuId>,
    /// How many at the head are equally good.
    ties: usize,
}

impl LevelSources {
    fn new() -> Self {
        Self { cpus: Vec::with_capacity(PULL_PLAN_LEN), ..Self::default() }
    }

    /// Appends a source unless there are enough.
    fn add(&mut self, cpu: CpuId) {
        if self.cpus.len() < PULL_PLAN_LEN {
            self.cpus.push(cpu);
        }
    }
}

/// Everything that a round changes.
#[derive(Debug)]
struct Inner {
    slots: Vec<CpuSlot>,
    states: Vec<LevelState>,
    view: view::View,
    counters: Counters,
    log: Arc<DecisionLog>,
    flag_taken: Nanos,
    rng: Rng,
    /// Whether the host delivers kicks.
    tickless: bool,
    /// Whether idle CPUs are left to nohz balancing instead of being balanced by time.
    idle_waits: bool,
    /// The configuration under which plans were last published.
    planned_epoch: Option<u64>,
    /// One for each level below NUMA, for the group looked at last, then one for each NUMA group.
    sources: Vec<LevelSources>,
    /// Levels of the longest chain.
    depth: usize,
    /// When the plans were last brought up to date.
    published_at: Nanos,
    forks: fork_plan::Forks,
    // Scratch space, sized once.
    sds: SdStats,
    cpus: Cpumask,
    alternatives: Cpumask,
    nohz_idle: Cpumask,
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
                worth_busy: Nanos::ZERO,
                due_idle: Nanos::ZERO,
                idle: false,
                max_idle_balance_cost: IDLE_COST_FLOOR,
                planned: 0,
                plan: PullPlan::default(),
                throws_left: 0,
                tell_after: Nanos::ZERO,
                tell_pause: Nanos::ZERO,
            });
            let level = |link: &Link| LevelState::new(tree.domain(link.domain));
            states.extend(tree.chain(cpu).iter().map(level));
        }
        let depth = tree.chains.iter().map(Vec::len).max().unwrap_or(0);
        let inner = Inner {
            states,
            view: view::View::new(width),
            counters: Counters::new(facts.levels()),
            log: Arc::new(DecisionLog::new(DECISIONS_KEPT.max(2 * slots.len()))),
            flag_taken: Nanos::ZERO,
            rng: Rng::new(u64::from(shard.first().unwrap_or_default().0)),
            tickless: false,
            idle_waits: false,
            planned_epoch: None,
            sources: (0..depth + facts.numa_groups()).map(|_| LevelSources::new()).collect(),
            depth,
            published_at: Nanos::ZERO,
            forks: fork_plan::Forks::new(&tree, &facts, shard),
            sds: SdStats::default(),
            cpus: Cpumask::new(width),
            alternatives: Cpumask::new(width),
            nohz_idle: Cpumask::new(width),
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

    /// What it shares with the machine's other balancers.
    pub fn shared(&self) -> &Shared {
        &self.shared
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

    /// Leaves idle CPUs alone until a kick ([`Host::kick`]) asks one of them to balance for all, as
    /// a kernel with tickless idle does. Only for hosts that deliver kicks and that call for a round
    /// when a CPU of a shard at rest has become busy. Without effect while `nohz` is off.
    pub fn tickless(mut self, yes: bool) -> Self {
        self.inner.tickless = yes;
        self.inner.idle_waits = yes;
        self
    }

    /// Seeds the newidle dice; by default the shard's first CPU does.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.inner.rng = Rng::new(seed);
        self
    }

    /// When the next round has something to do, by what the CPUs were doing when last looked at;
    /// [`Nanos::MAX`] if nothing is to be done before a kick. While a CPU of the shard is busy that
    /// includes its part in nohz balancing.
    pub fn next_due(&self) -> Nanos {
        let inner = &self.inner;
        if inner.idle_waits && inner.slots.iter().all(|slot| slot.idle) {
            return Nanos::MAX;
        }
        self.due_busy(Nanos::MAX).min(self.due_idle())
    }

    /// When the next round is worth while for the busy CPUs of the shard, and for those that idled
    /// when last looked at, if they have become busy, from `fresh` on. The first that is due waits
    /// for the others, so that they share rounds from then on, for half the shortest interval of
    /// its lowest level at most.
    pub fn due_busy(&self, fresh: Nanos) -> Nanos {
        let due = |s: &CpuSlot| if s.idle { s.worth_busy.max(fresh) } else { s.worth_busy };
        let slots = || self.inner.slots.iter();
        let Some(first) = slots().map(due).min() else { return Nanos::MAX };
        let latest = first + Nanos(self.busy_interval().0 / 2);
        slots().map(due).filter(|&due| due <= latest).max().unwrap_or(latest)
    }

    /// The shortest time after which a busy CPU of the shard is due again.
    pub fn busy_interval(&self) -> Nanos {
        let lowest = |s: &CpuSlot| self.tree.domain(self.tree.chain(s.cpu)[0].domain);
        let interval = |d: &SchedDomain| d.min_interval.0.saturating_mul(u64::from(d.busy_factor));
        Nanos(self.inner.slots.iter().map(|s| interval(lowest(s))).min().unwrap_or(0))
    }

    /// When the next round is worth while for idle CPUs: when busy ones may ask for nohz balancing
    /// again or, where idle CPUs are balanced by time, when the first of the shard's is due.
    pub fn due_idle(&self) -> Nanos {
        let inner = &self.inner;
        if inner.idle_waits {
            return self.shared.nohz.next_balance().max(inner.view.now() + self.shared.pace.tick);
        }
        inner.slots.iter().filter(|s| s.idle).map(|s| s.due_idle).min().unwrap_or(Nanos::MAX)
    }

    /// Whether idle CPUs wait for a kick instead of being balanced by time.
    pub fn idle_waits(&self) -> bool {
        self.inner.idle_waits
    }
}
