//! What the balancing passes count: per level and idle type, by the kernel's names where it has
//! one. Each set is tagged with the configuration epoch it belongs to.

use crate::balancer::MoveOutcome;
use crate::domains::LevelKind;
use crate::policy::env::IdleType;
use crate::policy::imbalance::MigrationType;
use crate::policy::skip::SkipReason;
use crate::sync::{Mutex, lock};
use serde::ser::{Serialize, SerializeMap, Serializer};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident in $unit:literal;)+) => {
        /// Counters of one level and idle type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct PassCounters {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Passes that ended for each reason, by [`SkipReason::index`].
            pub skips: [u64; SkipReason::COUNT],
            /// Requests to move a task, by what became of them ([`MoveOutcome::ALL`]).
            pub moves: [u64; MoveOutcome::ALL.len()],
        }

        impl Default for PassCounters {
            fn default() -> Self {
                Self {
                    $($name: 0,)+
                    skips: [0; SkipReason::COUNT],
                    moves: [0; MoveOutcome::ALL.len()],
                }
            }
        }

        impl PassCounters {
            /// Name, unit and meaning of the plain counters.
            pub const DESCRIPTIONS: &'static [(&'static str, &'static str, &'static str)] =
                &[$((stringify!($name), $unit, concat!($($doc),+).trim_ascii())),+];

            /// The plain counters, in the order of the descriptions.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),+].into_iter()
            }

            /// Adds another set.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)+
                for (a, b) in self.skips.iter_mut().zip(other.skips) {
                    *a = a.saturating_add(b);
                }
                for (a, b) in self.moves.iter_mut().zip(other.moves) {
                    *a = a.saturating_add(b);
                }
            }
        }
    };
}

counters! {
    /// Attempts to balance the level.
    lb_count in "passes";
    /// Attempts that found it balanced, or that were another CPU's to make.
    lb_balanced in "passes";
    /// Attempts that found an imbalance and moved no waiting task.
    lb_failed in "passes";
    /// Tasks moved.
    lb_gained in "tasks";
    /// Tasks moved although cache-hot, because earlier attempts had failed.
    lb_hot_gained in "tasks";
    /// Attempts that found no busiest group.
    lb_nobusyg in "passes";
    /// Attempts that found no suitable queue in the busiest group.
    lb_nobusyq in "passes";
    /// Sum of the imbalances found, where load was counted.
    lb_imbalance_load in "load";
    /// Sum of the imbalances found, where utilisation was counted.
    lb_imbalance_util in "util";
    /// Sum of the imbalances found, where tasks were counted.
    lb_imbalance_task in "tasks";
    /// Sum of the imbalances found, where misfit tasks were counted.
    lb_imbalance_misfit in "tasks";
    /// Attempts to push a running task.
    alb_count in "passes";
    /// Attempts to push a running task that failed.
    alb_failed in "passes";
    /// Running tasks pushed.
    alb_pushed in "tasks";
    /// Attempts to take the serialize flag.
    serialize_attempts in "attempts";
    /// Attempts that took it.
    serialize_acquired in "attempts";
    /// Attempts that found it taken.
    serialize_busy in "attempts";
    /// Times it was taken and nothing was due; 0 unless serialize-order is always.
    serialize_not_due in "attempts";
    /// Times it was taken and another CPU was to balance; 0 if serialize-order is elected.
    serialize_not_elected in "attempts";
    /// Time for which it was held.
    serialize_hold_ns in "ns";
    /// Times that a CPU that ran out of work used its pull plan for this level.
    plan_pulls in "pulls";
    /// Tasks that it found there.
    plan_pulled in "tasks";
    /// Time spent on newidle balancing, by plan or by the agent.
    newidle_cost_ns in "ns";
}

impl PassCounters {
    /// Counts a pass that did nothing.
    pub fn skip(&mut self, reason: SkipReason) {
        self.skips[reason.index()] += 1;
    }

    /// Counts the end of one request to move a task.
    pub fn moved(&mut self, outcome: MoveOutcome) {
        self.moves[outcome as usize] += 1;
    }

    /// Adds to the sum of imbalances of that unit.
    pub fn imbalance(&mut self, unit: MigrationType, amount: u64) {
        let sum = match unit {
            MigrationType::Load => &mut self.lb_imbalance_load,
            MigrationType::Util => &mut self.lb_imbalance_util,
            MigrationType::Task => &mut self.lb_imbalance_task,
            MigrationType::Misfit => &mut self.lb_imbalance_misfit,
        };
        *sum = sum.saturating_add(amount);
    }
}

impl Serialize for PassCounters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.values() {
            map.serialize_entry(name, &value)?;
        }
        for reason in SkipReason::ALL {
            map.serialize_entry(&Prefixed("skip_", reason.name()), &self.skips[reason.index()])?;
        }
        for outcome in MoveOutcome::ALL {
            map.serialize_entry(
                &Prefixed("moves_", outcome.name()),
                &self.moves[outcome as usize],
            )?;
        }
        map.end()
    }
}

/// A key made of two parts.
struct Prefixed(&'static str, &'static str);

impl Serialize for Prefixed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}{}", self.0, self.1))
    }
}

/// One level's counters, by idle type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LevelCounters {
    /// The level.
    pub level: LevelKind,
    /// The destination was busy.
    pub busy: PassCounters,
    /// The destination was idle.
    pub idle: PassCounters,
    /// The destination was about to idle.
    pub newidle: PassCounters,
}

impl LevelCounters {
    /// The counters for an idle type.
    pub fn of(&self, idle: IdleType) -> &PassCounters {
        match idle {
            IdleType::NotIdle => &self.busy,
            IdleType::Idle => &self.idle,
            IdleType::NewlyIdle => &self.newidle,
        }
    }

    /// The counters for an idle type.
    pub fn of_mut(&mut self, idle: IdleType) -> &mut PassCounters {
        match idle {
            IdleType::NotIdle => &mut self.busy,
            IdleType::Idle => &mut self.idle,
            IdleType::NewlyIdle => &mut self.newidle,
        }
    }
}

/// All counters of one balancer under one configuration.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// The configuration under which they were counted.
    pub epoch: u64,
    /// Rounds run.
    pub rounds: u64,
    /// CPUs visited because one of their levels was due.
    pub visits: u64,
    /// Moves that were undone within 10 ms.
    pub moves_undone: u64,
    /// Kicks sent to idle CPUs.
    pub nohz_kicks: u64,
    /// Looks of busy ticks at the idle mask or counter.
    pub nohz_checks: u64,
    /// Those among them before idle balancing was due; 0 unless nohz-order is count-first.
    pub nohz_early_checks: u64,
    /// Writes to shared nohz lines at idle entry and exit.
    pub nohz_line_writes: u64,
    /// Idle entries and exits.
    pub nohz_transitions: u64,
    /// Walks of a helper over idle CPUs.
    pub ilb_runs: u64,
    /// Idle CPUs balanced by a helper.
    pub ilb_cpus_balanced: u64,
    /// Pull plans handed to the host because they had changed.
    pub plans_published: u64,
    /// Ways out of busy ticks and helpers' walks, by [`SkipReason::index`].
    #[serde(serialize_with = "named_skips")]
    pub nohz_skips: [u64; SkipReason::COUNT],
    /// Narrow to wide.
    pub levels: Vec<LevelCounters>,
}

fn named_skips<S: Serializer>(
    skips: &[u64; SkipReason::COUNT],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let named = |reason: &SkipReason| (reason.name(), skips[reason.index()]);
    serializer.collect_map(SkipReason::ALL.iter().map(named).filter(|(_, n)| *n > 0))
}

impl Counters {
    /// Zeroes for these levels.
    pub fn new(levels: &[LevelKind]) -> Self {
        let zero = PassCounters::default();
        let level = |&level| LevelCounters { level, busy: zero, idle: zero, newidle: zero };
        Self {
            epoch: 0,
            rounds: 0,
            visits: 0,
            moves_undone: 0,
            nohz_kicks: 0,
            nohz_checks: 0,
            nohz_early_checks: 0,
            nohz_line_writes: 0,
            nohz_transitions: 0,
            ilb_runs: 0,
            ilb_cpus_balanced: 0,
            plans_published: 0,
            nohz_skips: [0; SkipReason::COUNT],
            levels: levels.iter().map(level).collect(),
        }
    }

    /// The counters that belong to no level.
    fn plain_mut(&mut self) -> [&mut u64; 11] {
        [
            &mut self.rounds,
            &mut self.visits,
            &mut self.moves_undone,
            &mut self.nohz_kicks,
            &mut self.nohz_checks,
            &mut self.nohz_early_checks,
            &mut self.nohz_line_writes,
            &mut self.nohz_transitions,
            &mut self.ilb_runs,
            &mut self.ilb_cpus_balanced,
            &mut self.plans_published,
        ]
    }

    fn plain(&self) -> [u64; 11] {
        [
            self.rounds,
            self.visits,
            self.moves_undone,
            self.nohz_kicks,
            self.nohz_checks,
            self.nohz_early_checks,
            self.nohz_line_writes,
            self.nohz_transitions,
            self.ilb_runs,
            self.ilb_cpus_balanced,
            self.plans_published,
        ]
    }

    /// Starts again from zero under another configuration.
    pub fn restart(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.plain_mut().into_iter().for_each(|n| *n = 0);
        self.nohz_skips = [0; SkipReason::COUNT];
        for level in &mut self.levels {
            let zero = PassCounters::default();
            (level.busy, level.idle, level.newidle) = (zero, zero, zero);
        }
    }

    /// Adds another set of the same levels; the epoch becomes the later one.
    pub fn add(&mut self, other: &Self) {
        self.epoch = self.epoch.max(other.epoch);
        for (a, b) in self.plain_mut().into_iter().zip(other.plain()) {
            *a += b;
        }
        for (a, b) in self.nohz_skips.iter_mut().zip(other.nohz_skips) {
            *a += b;
        }
        for (a, b) in self.levels.iter_mut().zip(&other.levels) {
            a.busy.add(&b.busy);
            a.idle.add(&b.idle);
            a.newidle.add(&b.newidle);
        }
    }

    /// Sum over levels and idle types of one counter.
    pub fn sum(&self, of: impl Fn(&PassCounters) -> u64) -> u64 {
        self.levels.iter().flat_map(|l| [&l.busy, &l.idle, &l.newidle]).map(of).sum()
    }

    /// Copies without allocating; both must be of the same levels.
    fn copy_from(&mut self, other: &Self) {
        self.restart(other.epoch);
        self.add(other);
    }
}

/// Where a balancer leaves its counters for others to read: those of the running configuration
/// and the sum of those before it.
#[derive(Debug)]
pub struct CountersCell {
    inner: Mutex<(Counters, Counters)>,
}

impl CountersCell {
    /// An empty cell for these levels.
    pub fn new(levels: &[LevelKind]) -> Self {
        Self { inner: Mutex::new((Counters::new(levels), Counters::new(levels))) }
    }

    /// Takes over the balancer's counters; those of an earlier configuration are kept in the sum.
    pub fn publish(&self, current: &Counters) {
        let mut inner = lock(&self.inner);
        let (shown, earlier) = &mut *inner;
        if shown.epoch != current.epoch {
            earlier.add(shown);
        }
        shown.copy_from(current);
    }

    /// Counters of the running configuration.
    pub fn current(&self) -> Counters {
        lock(&self.inner).0.clone()
    }

    /// Counters since the start, over all configurations.
    pub fn total(&self) -> Counters {
        let inner = lock(&self.inner);
        let mut total = inner.1.clone();
        total.add(&inner.0);
        total
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_new_epoch_starts_from_zero_and_loses_nothing() {
        let cell = CountersCell::new(&[LevelKind::Mc]);
        let mut counters = Counters::new(&[LevelKind::Mc]);
        counters.levels[0].idle.lb_count = 3;
        cell.publish(&counters);
        counters.restart(1);
        counters.levels[0].idle.lb_count = 2;
        cell.publish(&counters);
        assert_eq!((cell.current().epoch, cell.current().levels[0].idle.lb_count), (1, 2));
        assert_eq!(cell.total().levels[0].idle.lb_count, 5);
    }

    #[test]
    fn every_counter_is_described_and_every_skip_named() {
        let json = serde_json::to_value(PassCounters::default()).unwrap();
        for (name, unit, doc) in PassCounters::DESCRIPTIONS {
            assert!(json.get(name).is_some() && !unit.is_empty() && doc.ends_with('.'));
        }
        for reason in SkipReason::ALL {
            assert!(json.get(format!("skip_{}", reason.name())).is_some());
            assert_eq!(SkipReason::ALL[reason.index()], *reason);
        }
        assert!(json.get("moves_refused_gone").is_some());
    }
}
