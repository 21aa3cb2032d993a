//! How much should move, and in which unit (kernel: `calculate_imbalance`,
//! `sibling_imbalance`).

use crate::domains::{GroupId, SdFlags};
use crate::policy::env::Env;
use crate::policy::group_stats::{GroupStats, GroupType, SdStats};
use crate::policy::numa;
use crate::policy::skip::SkipReason;
use crate::units::{Capacity, Load};
use serde::Serialize;
use std::fmt;

/// What the imbalance counts (kernel: `enum migration_type`; its `migrate_llc_task` does not exist
/// here).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationType {
    /// Load.
    Load,
    /// Utilisation.
    Util,
    /// Tasks.
    Task,
    /// One task that is too big for its CPU.
    Misfit,
}

impl fmt::Display for MigrationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Load => "load",
            Self::Util => "util",
            Self::Task => "tasks",
            Self::Misfit => "misfit task",
        })
    }
}

/// By how many tasks the busiest group exceeds its sibling; per core where they have different
/// numbers of cores (kernel: `sibling_imbalance`).
pub fn sibling_imbalance(env: &Env, sds: &SdStats, busiest: GroupId) -> u64 {
    let (local, from) = (&sds.local, &sds.busiest_stat);
    if !env.idle.is_idle() || from.nr_running == 0 {
        return 0;
    }
    let cores_busiest = u64::from(env.tree.group(busiest).cores);
    let cores_local = u64::from(env.local_group().cores);
    let (n_busiest, n_local) = (u64::from(from.nr_running), u64::from(local.nr_running));
    if cores_busiest == cores_local {
        return n_busiest.saturating_sub(n_local);
    }
    let excess = (cores_local * n_busiest).saturating_sub(cores_busiest * n_local);
    let cores = (cores_local + cores_busiest).max(1);
    let rounded = (2 * excess + cores) / cores;
    if rounded <= 1 && n_local == 0 && n_busiest > 1 { 2 } else { rounded }
}

/// How much to move. An imbalance of zero comes with its reason.
pub fn calculate_imbalance(
    env: &Env,
    sds: &mut SdStats,
    busiest_id: GroupId,
) -> Result<(MigrationType, u64), SkipReason> {
    let busiest = sds.busiest_stat;
    match busiest.group_type {
        // Where capacities differ the misfit task itself is wanted; elsewhere the task of a CPU
        // that lost capacity, by its load.
        GroupType::MisfitTask if env.has(SdFlags::ASYM_CPUCAPACITY) => {
            return Ok((MigrationType::Misfit, 1));
        }
        GroupType::MisfitTask => return nonzero(MigrationType::Load, busiest.misfit_load.0),
        GroupType::AsymPacking => {
            return nonzero(MigrationType::Task, u64::from(busiest.nr_running));
        }
        GroupType::SmtBalance | GroupType::Imbalanced => return Ok((MigrationType::Task, 1)),
        GroupType::HasSpare | GroupType::FullyBusy | GroupType::Overloaded => {}
    }
    if sds.local.group_type == GroupType::HasSpare {
        return fill_spare(env, sds, busiest_id);
    }
    level_load(sds, &busiest)
}

fn nonzero(unit: MigrationType, value: u64) -> Result<(MigrationType, u64), SkipReason> {
    if value > 0 { Ok((unit, value)) } else { Err(SkipReason::NoImbalance) }
}

/// The local group has room: fill it without emptying the busiest.
fn fill_spare(
    env: &Env,
    sds: &SdStats,
    busiest_id: GroupId,
) -> Result<(MigrationType, u64), SkipReason> {
    let (local, busiest) = (&sds.local, &sds.busiest_stat);
    if busiest.group_type > GroupType::FullyBusy && !env.has(SdFlags::SHARE_LLC) {
        let room = local.capacity.0.saturating_sub(local.util.0);
        // Utilisation can lag behind a CPU that has just become idle: one waiting task then.
        if room == 0 && env.idle.is_idle() {
            return Ok((MigrationType::Task, 1));
        }
        return nonzero(MigrationType::Util, room);
    }
    let rule = env.tunables.numa_imbalance;
    let is_numa = env.has(SdFlags::NUMA);
    let mut tasks = if busiest.weight == 1 || sds.prefer_sibling {
        sibling_imbalance(env, sds, busiest_id)
    } else {
        numa::idle_imbalance(rule, is_numa, local, busiest)
    };
    if is_numa && tasks > 0 {
        tasks = numa::adjust_numa_imbalance(
            rule,
            tasks,
            local.nr_running,
            busiest.nr_running,
            env.domain().imb_numa_nr,
        );
        if tasks == 0 {
            return Err(SkipReason::NumaTolerated);
        }
    }
    nonzero(MigrationType::Task, tasks / 2)
}

/// Both groups are or will become overloaded: bring both towards the domain's average and neither
/// past it. Each difference is zero when it would be negative: what 7.3 leaves to unsigned
/// arithmetic (a busiest group below the average of a domain with overlapping groups) is no
/// imbalance here.
fn level_load(sds: &mut SdStats, busiest: &GroupStats) -> Result<(MigrationType, u64), SkipReason> {
    let avg = sds.avg_load();
    if sds.local.group_type < GroupType::Overloaded {
        sds.local.avg_load = sds.local.load_per_capacity();
        if sds.local.avg_load >= busiest.avg_load {
            return Err(SkipReason::LocalLoadHigher);
        }
        if sds.local.avg_load >= avg {
            return Err(SkipReason::LocalAboveDomain);
        }
    }
    let scaled = |difference: Load, capacity: Capacity| difference.0.saturating_mul(capacity.0);
    let give = scaled(busiest.avg_load.saturating_sub(avg), busiest.capacity);
    let take = scaled(avg.saturating_sub(sds.local.avg_load), sds.local.capacity);
    nonzero(MigrationType::Load, give.min(take) / Capacity::SCALE.0)
}
