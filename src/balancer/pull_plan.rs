//! What a CPU does by itself when it runs out of work: the plan that a host keeps for it.

use crate::cpumask::Cpumask;
use crate::units::{CpuId, Nanos, TaskKey};

/// Sources in a plan.
pub const PULL_PLAN_LEN: usize = 16;

/// Levels that have dice of their own; wider ones share the last.
pub const DICED_LEVELS: usize = 8;

/// Uses of a plan for which the dice are thrown ahead; then they come round again.
pub const DICE_THROWN: u32 = 32;

/// One place to pull from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullSource {
    /// The CPU.
    pub cpu: CpuId,
    /// For the sake of which level it is there (position in the CPU's chain, at most
    /// [`DICED_LEVELS`] - 1).
    pub level: u8,
    /// 0: this CPU alone. Otherwise its whole node from this CPU on, while that has so many runnable
    /// tasks.
    pub node_from: u16,
}

impl PullSource {
    /// The CPUs whose queues are to be looked at, in order; none if their node has too few tasks.
    /// `node`: the CPUs of the source's node; `nr_running`: runnable tasks by CPU.
    pub fn queues<'a>(
        &self,
        node: &'a Cpumask,
        nr_running: impl Fn(CpuId) -> u32,
    ) -> impl Iterator<Item = CpuId> + 'a {
        let whole = self.node_from > 0;
        let enough = !whole || node.iter().map(nr_running).sum::<u32>() >= self.node_from.into();
        let alone = (!whole).then_some(self.cpu).into_iter();
        let others = (whole && enough).then(|| node.iter_wrap(self.cpu)).into_iter().flatten();
        alone.chain(others)
    }
}

/// Where to pull from, best first.
///
/// The newidle dice are thrown when the plan is made, for each use anew: a CPU that runs out of work
/// for the `n`th time passes over the sources of the levels that [`PullPlan::left_out`] gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullPlan {
    sources: [PullSource; PULL_PLAN_LEN],
    len: u8,
    /// By level: the uses, as bits, that leave it out.
    pub dice: [u32; DICED_LEVELS],
}

/// Where a level's dice are.
pub(super) fn dice_index(level: usize) -> usize {
    level.min(DICED_LEVELS - 1)
}

impl PullPlan {
    /// The sources in order.
    pub fn sources(&self) -> &[PullSource] {
        &self.sources[..usize::from(self.len)]
    }

    /// How many sources it has.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether it names nobody.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a CPU unless it is there already or the plan is full.
    pub(super) fn add(&mut self, cpu: CpuId, level: usize) {
        if !self.sources().iter().any(|source| source.cpu == cpu) {
            self.push(cpu, level, 0);
        }
    }

    /// Appends a CPU's whole node, for when it has `from` runnable tasks, unless the plan is full.
    pub(super) fn add_node(&mut self, cpu: CpuId, level: usize, from: u32) {
        self.push(cpu, level, from.clamp(1, u16::MAX.into()) as u16);
    }

    fn push(&mut self, cpu: CpuId, level: usize, node_from: u16) {
        if let Some(free) = self.sources.get_mut(usize::from(self.len)) {
            *free = PullSource { cpu, level: dice_index(level) as u8, node_from };
            self.len += 1;
        }
    }

    /// Levels, as bits, that the `n`th use leaves out.
    pub fn left_out(&self, n: u32) -> u32 {
        let bit = n % DICE_THROWN;
        let levels = self.dice.iter().enumerate();
        levels.fold(0, |out, (level, dice)| out | (dice >> bit & 1) << level)
    }
}

/// What a CPU did with its pull plan when it ran out of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullReport {
    /// The CPU.
    pub cpu: CpuId,
    /// The task that came and where it came from, if one did.
    pub pulled: Option<(TaskKey, CpuId)>,
    /// Levels, as bits, with sources that the dice kept it from.
    pub left_out: u32,
    /// How long the search took.
    pub cost: Nanos,
    /// When.
    pub at: Nanos,
}
