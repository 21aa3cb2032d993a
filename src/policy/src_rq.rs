//! Which queue of the busiest group to pull from (kernel: `sched_balance_find_src_rq`).

use crate::balancer::Snapshot;
use crate::domains::{GroupId, SdFlags};
use crate::policy::env::{Env, capacity_greater};
use crate::policy::group_stats::capacity_reduced;
use crate::policy::imbalance::MigrationType;
use crate::units::CpuId;

/// The CPU to take tasks from, if one is suitable.
pub fn find_src_rq(
    env: &Env,
    snapshot: &Snapshot,
    group: GroupId,
    unit: MigrationType,
    imbalance: u64,
) -> Option<CpuId> {
    let dst = snapshot.cpu(env.dst);
    let pct = env.domain().imbalance_pct;
    let asym_capacity = env.has(SdFlags::ASYM_CPUCAPACITY);
    let mut best = None;
    // Value and capacity of the best so far; compared crosswise, so nothing is divided.
    let mut best_value = 0;
    let mut best_capacity = 1;
    for cpu in env.group_cpus(group) {
        let view = snapshot.cpu(cpu);
        if view.nr_running == 0 {
            continue;
        }
        let alone = view.nr_running == 1;
        if alone && asym_capacity {
            // Never the way down from a larger CPU, unless its core is shared or clusters of equal
            // CPUs are evened.
            let shared_core = env.facts.smt_active() && !env.core_idle(cpu);
            let equal = env.facts.cluster_active() && dst.capacity_orig == view.capacity_orig;
            if !shared_core && !equal && !capacity_greater(dst.capacity, view.capacity) {
                continue;
            }
        }
        if alone && env.asym(cpu, env.dst) {
            continue;
        }
        let (value, capacity) = match unit {
            MigrationType::Load => {
                let too_big = alone && view.load.0 > imbalance && !capacity_reduced(view, pct);
                if too_big {
                    continue;
                }
                (view.load.0, view.capacity.0)
            }
            // A lone task cannot be detached, whatever it uses.
            MigrationType::Util if alone => continue,
            MigrationType::Util => (view.util.0, 1),
            MigrationType::Task => (u64::from(view.nr_running), 1),
            MigrationType::Misfit => (view.misfit_load.0, 1),
        };
        if value.saturating_mul(best_capacity) > best_value * capacity {
            best = Some(cpu);
            best_value = value;
            best_capacity = capacity;
        }
    }
    best
}
