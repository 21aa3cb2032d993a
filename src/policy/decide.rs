//! One balancing attempt in two pure halves: [`decide`] says what should move, [`settle`] learns
//! from what did (kernel: `sched_balance_rq`).

use crate::balancer::Snapshot;
use crate::domains::{GroupId, SchedDomain};
use crate::policy::env::{Env, IdleType};
use crate::policy::group_stats::SdStats;
use crate::policy::imbalance::MigrationType;
use crate::policy::skip::SkipReason;
use crate::policy::src_group::find_src_group;
use crate::policy::src_rq::find_src_rq;
use crate::policy::state::LevelState;
use crate::units::{CpuId, Nanos};
use serde::Serialize;

/// Longest interval that a level backs off to when all tasks are bound elsewhere (kernel:
/// `MAX_PINNED_INTERVAL`).
pub const MAX_PINNED_INTERVAL: Nanos = Nanos::from_ms(512);

/// What should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// From this group.
    pub group: GroupId,
    /// From this CPU.
    pub src: CpuId,
    /// To this CPU.
    pub dst: CpuId,
    /// What the amount counts.
    pub unit: MigrationType,
    /// How much at most.
    pub imbalance: u64,
}

/// Decides for an elected CPU that may balance (see
/// [`should_we_balance`](crate::policy::should_balance::should_we_balance) and the serialize
/// gate). The numbers compared stay in `sds` either way.
pub fn decide(env: &Env, snapshot: &Snapshot, sds: &mut SdStats) -> Result<Plan, SkipReason> {
    let (group, unit, imbalance) = find_src_group(env, snapshot, sds)?;
    let src = find_src_rq(env, snapshot, group, unit, imbalance)
        .filter(|&src| src != env.dst)
        .ok_or(SkipReason::NoBusiestQueue)?;
    Ok(Plan { group, src, dst: env.dst, unit, imbalance })
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Nothing needed doing, or not by this CPU.
    Balanced,
    /// There was an imbalance, but every task is bound elsewhere.
    AllPinned,
    /// The running task that should have been pushed is bound elsewhere.
    OnePinned,
    /// There was an imbalance and this many tasks moved, perhaps none.
    Unbalanced {
        /// Waiting tasks that moved.
        moved: u32,
        /// Whether the running task was pushed.
        pushed: bool,
    },
}

/// What really happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PassOutcome {
    /// The end.
    pub ending: Ending,
    /// The unit of the plan, if there was one.
    pub unit: Option<MigrationType>,
    /// Whether a task met in the pass may not run on the destination.
    pub some_pinned: bool,
    /// Whether a source queue was found to be bound elsewhere altogether.
    pub all_pinned: bool,
    /// What was left of the imbalance.
    pub imbalance_left: u64,
    /// Whether the source queue was looked at.
    pub tried_to_move: bool,
}

impl PassOutcome {
    /// The outcome of a pass that found nothing to do.
    pub const BALANCED: Self = Self {
        ending: Ending::Balanced,
        unit: None,
        some_pinned: false,
        all_pinned: false,
        imbalance_left: 0,
        tried_to_move: false,
    };
}

/// Learns from a pass: failures, interval. Returns what becomes of the mark on the parent's group
/// (kernel: `sd_parent->groups->sgc->imbalance`): set, cleared, or left alone.
pub fn settle(
    state: &mut LevelState,
    domain: &SchedDomain,
    idle: IdleType,
    outcome: &PassOutcome,
) -> Option<bool> {
    let newidle = idle == IdleType::NewlyIdle;
    let misfit = outcome.unit == Some(MigrationType::Misfit);
    let mut mark = (outcome.tried_to_move && outcome.some_pinned && outcome.imbalance_left > 0)
        .then_some(true);
    match outcome.ending {
        Ending::Unbalanced { moved, pushed } => {
            if moved > 0 {
                state.nr_balance_failed = 0;
            } else {
                if !newidle && !misfit {
                    state.nr_balance_failed = state.nr_balance_failed.saturating_add(1);
                }
                if pushed {
                    state.nr_balance_failed = 0;
                }
            }
            state.balance_interval = domain.min_interval;
            return mark;
        }
        Ending::Balanced => {
            if !outcome.all_pinned {
                mark = Some(false);
            }
            state.nr_balance_failed = 0;
        }
        Ending::AllPinned => state.nr_balance_failed = 0,
        Ending::OnePinned => {
            if !newidle && !misfit {
                state.nr_balance_failed = state.nr_balance_failed.saturating_add(1);
            }
        }
    }
    if !newidle && !misfit {
        let pinned = outcome.all_pinned && state.balance_interval < MAX_PINNED_INTERVAL;
        if pinned || state.balance_interval < domain.max_interval {
            state.balance_interval = state.balance_interval + state.balance_interval;
        }
    }
    mark
}
