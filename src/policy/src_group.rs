//! Which group to pull from, if from any (kernel: `sched_balance_find_src_group`,
//! `update_sd_lb_stats`, `update_sd_pick_busiest`).
//!
//! What follows from the two groups' types (kernel: the matrix above
//! `sched_balance_find_src_group`; one test per cell in `tests/matrix.rs`):
//!
//! | busiest \ local | has_spare | fully_busy | misfit | asym | imbalanced | overloaded |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | has_spare    | nr_idle | balanced | n/a | n/a | balanced | balanced |
//! | fully_busy   | nr_idle | nr_idle  | n/a | n/a | balanced | balanced |
//! | misfit_task  | force   | n/a      | n/a | n/a | n/a      | n/a      |
//! | smt_balance  | nr_idle | nr_idle  | n/a | n/a | balanced | balanced |
//! | asym_packing | force   | force    | n/a | n/a | force    | force    |
//! | imbalanced   | force   | force    | n/a | n/a | force    | force    |
//! | overloaded   | force   | force    | n/a | n/a | force    | avg_load |
//!
//! *n/a*: the local group never has the type, or such a busiest group was filtered out where
//! capacities differ. *balanced*: nothing to do. *force*: work the imbalance out. *avg_load*: only
//! if the loads differ enough. *nr_idle*: only if the destination idles and the numbers of idle
//! CPUs differ enough, or siblings are to be preferred.

use crate::balancer::Snapshot;
use crate::domains::{GroupId, SdFlags};
use crate::policy::env::{Env, asym_prefer, capacity_greater};
use crate::policy::group_stats::{
    GroupStats, GroupType, SdStats, asym_prefer_cpu, update_sg_lb_stats,
};
use crate::policy::imbalance::{MigrationType, calculate_imbalance, sibling_imbalance};
use crate::policy::skip::SkipReason;

/// Adds up all groups, the local one first, and picks the busiest (kernel:
/// `update_sd_lb_stats`).
pub fn update_sd_lb_stats(env: &Env, snapshot: &Snapshot, sds: &mut SdStats) {
    *sds = SdStats::default();
    // Worse than any real group: the first candidate with a task wins.
    sds.busiest_stat.idle_cpus = u32::MAX;
    let groups = &env.domain().groups;
    let dst_core_idle = env.core_idle(env.dst);
    let (before, from_local) = groups.split_at(env.local);
    for &id in from_local.iter().chain(before) {
        let is_local = id == env.local_id();
        let stats = update_sg_lb_stats(env, snapshot, id, is_local, &mut sds.overloaded);
        sds.total_load += stats.load;
        sds.total_capacity += stats.capacity;
        if is_local {
            sds.local = stats;
        } else if is_busier(env, snapshot, sds, id, &stats, dst_core_idle) {
            sds.busiest = Some(id);
            sds.busiest_stat = stats;
        }
    }
    match sds.busiest {
        Some(id) => {
            sds.prefer_sibling = env.facts.group_flags(id).contains(SdFlags::PREFER_SIBLING);
            // Groups that its tasks may not use lower the domain's average without being able to
            // help: then only these two are evened. (7.3 leaves 12 tasks against 4 where two nodes
            // of four may be used.)
            if env.marks.is_bound(id) {
                sds.total_load = sds.local.load + sds.busiest_stat.load;
                sds.total_capacity = sds.local.capacity + sds.busiest_stat.capacity;
            }
        }
        None => sds.busiest_stat = GroupStats::default(),
    }
}

fn is_smt(env: &Env, group: GroupId) -> bool {
    env.facts.group_flags(group).contains(SdFlags::SHARE_CPUCAPACITY)
}

/// Whether a group is a better source than the best so far (kernel: `update_sd_pick_busiest`).
fn is_busier(
    env: &Env,
    snapshot: &Snapshot,
    sds: &SdStats,
    id: GroupId,
    stats: &GroupStats,
    dst_core_idle: bool,
) -> bool {
    if stats.nr_running == 0 {
        return false;
    }
    if env.has(SdFlags::ASYM_CPUCAPACITY) {
        let dst = snapshot.cpu(env.dst).capacity;
        // A misfit task is only worth pulling if it gains by it.
        if stats.group_type == GroupType::MisfitTask
            && (!dst_core_idle
                || !capacity_greater(dst, stats.max_capacity)
                || sds.local.group_type != GroupType::HasSpare)
        {
            return false;
        }
        // One task per CPU on larger CPUs: it would only lose here.
        if stats.group_type <= GroupType::FullyBusy && capacity_greater(stats.min_capacity, dst) {
            return false;
        }
    }
    let Some(best_id) = sds.busiest else {
        return stats.group_type > GroupType::HasSpare || fewer_idle_cpus(stats, &sds.busiest_stat);
    };
    let best = &sds.busiest_stat;
    if stats.group_type != best.group_type {
        return stats.group_type > best.group_type;
    }
    match stats.group_type {
        GroupType::Overloaded => stats.avg_load > best.avg_load,
        // Nothing tells one from another: the first.
        GroupType::Imbalanced => false,
        GroupType::AsymPacking => {
            asym_prefer(asym_prefer_cpu(env, best_id), asym_prefer_cpu(env, id))
        }
        GroupType::MisfitTask => stats.misfit_load > best.misfit_load,
        GroupType::SmtBalance if stats.idle_cpus != 0 || best.idle_cpus != 0 => {
            fewer_idle_cpus(stats, best)
        }
        // Average loads are compared, but worked out for overloaded groups only: so the first
        // stays, unless threads of one core can be relieved.
        GroupType::SmtBalance | GroupType::FullyBusy => !is_smt(env, best_id),
        GroupType::HasSpare if is_smt(env, best_id) != is_smt(env, id) => {
            // A core with one busy thread is left alone as long as there is another source.
            !(is_smt(env, id) && stats.nr_running <= 1)
        }
        GroupType::HasSpare => fewer_idle_cpus(stats, best),
    }
}

fn fewer_idle_cpus(stats: &GroupStats, best: &GroupStats) -> bool {
    stats.idle_cpus < best.idle_cpus
        || (stats.idle_cpus == best.idle_cpus && stats.nr_running > best.nr_running)
}

/// The group to pull from, the unit and the amount (kernel: `sched_balance_find_src_group`). The
/// numbers compared stay in `sds`, also when nothing is to be done.
pub fn find_src_group(
    env: &Env,
    snapshot: &Snapshot,
    sds: &mut SdStats,
) -> Result<(GroupId, MigrationType, u64), SkipReason> {
    update_sd_lb_stats(env, snapshot, sds);
    let id = sds.busiest.ok_or(SkipReason::NoBusiest)?;
    if !is_forced(env, sds, id) {
        compare(env, sds, id)?;
    }
    let (unit, amount) = calculate_imbalance(env, sds, id)?;
    Ok((id, unit, amount))
}

/// Types to which the ordinary comparison does not apply.
fn is_forced(env: &Env, sds: &SdStats, id: GroupId) -> bool {
    match sds.busiest_stat.group_type {
        GroupType::MisfitTask | GroupType::AsymPacking | GroupType::Imbalanced => true,
        _ => {
            sds.local.group_type == GroupType::HasSpare
                && sds.prefer_sibling
                && sibling_imbalance(env, sds, id) > 1
        }
    }
}

/// `Ok` if the busiest group is enough worse off than the local one.
fn compare(env: &Env, sds: &SdStats, id: GroupId) -> Result<(), SkipReason> {
    let (local, busiest) = (&sds.local, &sds.busiest_stat);
    if local.group_type > busiest.group_type {
        return Err(SkipReason::LocalBusier);
    }
    if local.group_type == GroupType::Overloaded {
        if local.avg_load >= busiest.avg_load {
            return Err(SkipReason::LocalLoadHigher);
        }
        if local.avg_load >= sds.avg_load() {
            return Err(SkipReason::LocalAboveDomain);
        }
        let pct = u64::from(env.domain().imbalance_pct);
        if 100 * busiest.avg_load.0 <= pct * local.avg_load.0 {
            return Err(SkipReason::WithinPct);
        }
    }
    if busiest.group_type == GroupType::Overloaded {
        return Ok(());
    }
    if !env.idle.is_idle() {
        return Err(SkipReason::DstBusy);
    }
    // A core without a second thread relieves one with two busy threads.
    if busiest.group_type == GroupType::SmtBalance && is_smt(env, env.local_id()) != is_smt(env, id)
    {
        return Ok(());
    }
    if busiest.weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1 {
        return Err(SkipReason::IdleEven);
    }
    if busiest.nr_running == 1 {
        return Err(SkipReason::OneTask);
    }
    Ok(())
}
