//! How much imbalance between NUMA groups is left alone (kernel: `adjust_numa_imbalance`; the
//! correction proposed in May 2024).

use crate::policy::group_stats::GroupStats;
use crate::policy::tunables::NumaImbalance;

/// Imbalance tolerated by 7.3 whatever the machine (kernel: `NUMA_IMBALANCE_MIN`): a pair of
/// tasks that talk to each other.
pub const NUMA_IMBALANCE_MIN: u64 = 2;

/// Tasks to even out, before halving, when idle CPUs are compared.
///
/// 7.3 subtracts idle CPUs, which is wrong by the difference in weight when groups are uneven: 2
/// CPUs idle of 2 against 5 of 6 looks as if the *smaller* group were the busier one. The
/// correction compares busy CPUs.
pub fn idle_imbalance(
    rule: NumaImbalance,
    numa: bool,
    local: &GroupStats,
    busiest: &GroupStats,
) -> u64 {
    let value = match rule {
        NumaImbalance::Corrected if numa => busiest.busy_cpus().saturating_sub(local.busy_cpus()),
        _ => local.idle_cpus.saturating_sub(busiest.idle_cpus),
    };
    u64::from(value)
}

/// The imbalance between NUMA groups after tolerance.
///
/// Corrected, the tolerance is never below that pair either: on a small machine `imb_numa_nr` is
/// 1, and a pair is two. Nor can more be wanted than there is: the sibling difference is scaled by
/// cores where groups are uneven, and makes 4 of a pair on 2 CPUs beside 6 idle ones.
pub fn adjust_numa_imbalance(
    rule: NumaImbalance,
    imbalance: u64,
    local_running: u32,
    busiest_running: u32,
    imb_numa_nr: u32,
) -> u64 {
    let (value, population, limit, tolerated) = match rule {
        NumaImbalance::Corrected => {
            let limit = u64::from(imb_numa_nr).max(NUMA_IMBALANCE_MIN);
            let there = u64::from(busiest_running);
            (imbalance.min(there), there, limit, limit)
        }
        NumaImbalance::Kernel => {
            let here = u64::from(local_running) + 1;
            (imbalance, here, u64::from(imb_numa_nr), NUMA_IMBALANCE_MIN)
        }
    };
    if population > limit || value > tolerated { value } else { 0 }
}

/// Whether a new task stays although another group has more to spare (kernel: the NUMA part of
/// `sched_balance_find_dst_group`). It counts with those that run here, and the group that it would
/// leave is the busier one to the corrected rule.
pub fn fork_tolerated(
    rule: NumaImbalance,
    local: &GroupStats,
    idlest: &GroupStats,
    imb_numa_nr: u32,
) -> bool {
    let value = match rule {
        NumaImbalance::Corrected => (local.busy_cpus() + 1).saturating_sub(idlest.busy_cpus()),
        NumaImbalance::Kernel => local.idle_cpus.abs_diff(idlest.idle_cpus),
    };
    let (here, with_new) = (local.nr_running, local.nr_running + 1);
    adjust_numa_imbalance(rule, u64::from(value), here, with_new, imb_numa_nr) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_stays_together_only_when_corrected() {
        // 2 × 2 CPUs' worth of nodes, imb_numa_nr 4, three tasks of one pipeline on the busiest
        // node, none here. 7.3: population 0 + 1 ≤ 4 but 3 > 2, so 3. Corrected: 3 ≤ 4, within 4.
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Kernel, 3, 0, 3, 4), 3);
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Corrected, 3, 0, 3, 4), 0);
    }

    #[test]
    fn a_pair_stays_on_small_and_uneven_machines() {
        // Two nodes of 4 CPUs: imb_numa_nr 1, value 2.
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Corrected, 2, 0, 2, 1), 0);
        // 2 + 6 CPUs, the pair on the small node: (6 × 2 - 2 × 0) scaled by cores is 4.
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Kernel, 4, 0, 2, 1), 4);
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Corrected, 4, 0, 2, 1), 0);
        // A third task is no pair.
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Corrected, 3, 0, 3, 1), 3);
    }

    #[test]
    fn above_the_population_the_value_stands() {
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Kernel, 2, 8, 16, 8), 2);
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Corrected, 2, 0, 9, 8), 2);
        assert_eq!(adjust_numa_imbalance(NumaImbalance::Kernel, 2, 0, 9, 8), 0);
    }

    #[test]
    fn uneven_groups_compare_busy_cpus() {
        // 2 CPUs here, both idle; 6 there, 4 idle: 2 busy. Idle: 2 - 4 = 0. Busy: 2 - 0 = 2.
        let group = |weight, idle_cpus| GroupStats { weight, idle_cpus, ..Default::default() };
        let (local, busiest) = (group(2, 2), group(6, 4));
        assert_eq!(idle_imbalance(NumaImbalance::Kernel, true, &local, &busiest), 0);
        assert_eq!(idle_imbalance(NumaImbalance::Corrected, true, &local, &busiest), 2);
        assert_eq!(idle_imbalance(NumaImbalance::Corrected, false, &local, &busiest), 0);
    }
}
