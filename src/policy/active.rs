//! When the *running* task is pushed away (kernel: `need_active_balance`).

use crate::balancer::Snapshot;
use crate::policy::env::{Env, asym_prefer};
use crate::policy::group_stats::capacity_reduced;
use crate::policy::imbalance::MigrationType;
use crate::units::CpuId;

/// Whether the source's running task should be pushed to the destination, no waiting one having
/// come.
pub fn need_active_balance(
    env: &Env,
    snapshot: &Snapshot,
    src: CpuId,
    unit: MigrationType,
    nr_balance_failed: u32,
) -> bool {
    let domain = env.domain();
    // Packing moves work to the preferred CPU even if it is alone; a core with two busy threads
    // is helped against the order.
    let packing = env.idle.is_idle()
        && env.use_asym_prio(env.dst)
        && (asym_prefer(env.dst, src) || !env.use_asym_prio(src));
    let stuck = unit == MigrationType::Task
        && nr_balance_failed > domain.cache_nice_tries.saturating_add(2);
    let (from, to) = (snapshot.cpu(src), snapshot.cpu(env.dst));
    let slower = env.idle.is_idle()
        && from.nr_running == 1
        && capacity_reduced(from, domain.imbalance_pct)
        && from.capacity.0 * u64::from(domain.imbalance_pct) < to.capacity.0 * 100;
    packing || stuck || slower || unit == MigrationType::Misfit
}
