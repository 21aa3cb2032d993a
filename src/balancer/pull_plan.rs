//! What a CPU does by itself when it runs out of work: the plan that a host keeps for it.

use crate::units::{CpuId, Nanos, TaskKey};

/// Sources in a plan.
pub const PULL_PLAN_LEN: usize = 16;

/// Levels that have dice of their own; wider ones share the last.
pub const DICED_LEVELS: usize = 8;

/// Uses of a plan for which the dice are thrown ahead; then they come round again.
pub const DICE_THROWN: u32 = 32;

/// The CPUs to pull from, best first, with the level for whose sake each is there.
///
/// The newidle dice are thrown when the plan is made, for each use anew: a CPU that runs out of work
/// for the `n`th time passes over the sources of the levels that [`PullPlan::left_out`] gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullPlan {
    sources: [CpuId; PULL_PLAN_LEN],
    levels: [u8; PULL_PLAN_LEN],
    len: u8,
    /// By level: the uses, as bits, that leave it out.
    pub dice: [u32; DICED_LEVELS],
}

/// Where a level's dice are.
pub(super) fn dice_index(level: usize) -> usize {
    level.min(DICED_LEVELS - 1)
}

impl PullPlan {
    /// The sources with their levels (positions in the CPU's chain, at most
    /// [`DICED_LEVELS`] - 1).
    pub fn iter(&self) -> impl Iterator<Item = (CpuId, usize)> + '_ {
        let levels = self.levels.iter().map(|&level| usize::from(level));
        self.sources.iter().copied().zip(levels).take(usize::from(self.len))
    }

    /// How many sources it has.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether it names nobody.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        usize::from(self.len) == PULL_PLAN_LEN
    }

    /// Appends a source unless it is there already or the plan is full.
    pub(super) fn add(&mut self, cpu: CpuId, level: usize) {
        if !self.is_full() && !self.iter().any(|(source, _)| source == cpu) {
            self.sources[usize::from(self.len)] = cpu;
            self.levels[usize::from(self.len)] = dice_index(level) as u8;
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
