//! On which node a new task starts (kernel: `sched_balance_find_dst_cpu`,
//! `sched_balance_find_dst_group`), NUMA levels only: below them the host finds an idle CPU near the
//! one it is given.

use crate::domains::{DomainTree, SchedDomain, SdFlags};
use crate::policy::facts::Facts;
use crate::policy::group_stats::{GroupStats, GroupType};
use crate::policy::numa;
use crate::policy::tunables::NumaImbalance;
use crate::units::{Load, Util, Weight};
use std::cmp::Ordering;

/// As what a new task counts: a full load, half a CPU's utilisation (kernel:
/// `init_entity_runnable_average`, `post_init_entity_util_avg`).
const NEW_LOAD: Load = Load(Weight::NICE_0.0);
const NEW_UTIL: Util = Util(512);
const NEW_RUNNABLE: Util = Util(1024);

/// Position among the other groups of the one that should take a new task of the local group, if one
/// should (kernel: `sched_balance_find_dst_group`). A pinned group counts like any other here.
pub fn find_dst_group(
    rule: NumaImbalance,
    domain: &SchedDomain,
    local: GroupStats,
    others: impl Iterator<Item = GroupStats>,
) -> Option<usize> {
    let typed = |stats: GroupStats| stats.typed(domain.imbalance_pct);
    let local = typed(local);
    let (at, idlest) =
        others.map(typed).enumerate().reduce(|best, group| match is_idler(&group.1, &best.1) {
            true => group,
            false => best,
        })?;
    let leaves = match local.group_type.cmp(&idlest.group_type) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal if local.group_type == GroupType::HasSpare => {
            let tolerated = domain.flags.contains(SdFlags::NUMA)
                && numa::fork_tolerated(rule, &local, &idlest, domain.imb_numa_nr);
            !tolerated && local.idle_cpus < idlest.idle_cpus
        }
        Ordering::Equal => {
            let pct = u64::from(domain.imbalance_pct);
            let margin = Load(Weight::NICE_0.0 * pct.saturating_sub(100) / 100);
            idlest.avg_load + margin < local.avg_load
                && 100 * local.avg_load.0 > pct * idlest.avg_load.0
        }
    };
    leaves.then_some(at)
}

/// Whether a group is a better place than the best so far (kernel: `update_pick_idlest`).
fn is_idler(stats: &GroupStats, best: &GroupStats) -> bool {
    match stats.group_type.cmp(&best.group_type) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal if stats.group_type == GroupType::HasSpare => {
            stats.idle_cpus > best.idle_cpus
                || (stats.idle_cpus == best.idle_cpus && stats.util < best.util)
        }
        Ordering::Equal => stats.avg_load < best.avg_load,
    }
}

/// Adds up nodes.
fn sum(nodes: &[u16], stats: &[GroupStats]) -> GroupStats {
    nodes.iter().fold(GroupStats::default(), |mut sum, &node| {
        sum.add(&stats[usize::from(node)]);
        sum
    })
}

/// The node on which a task starts that a task on `home` forks: from the widest level down, into the
/// group that the rule names, there to the node with most idle CPUs, and on from that one's
/// narrower levels. `stats` by node number ([`Facts::node_of`]); the group types in it are ignored.
pub fn dst_node(
    rule: NumaImbalance,
    tree: &DomainTree,
    facts: &Facts,
    stats: &[GroupStats],
    home: u16,
) -> u16 {
    let mut at = home;
    let mut below = u32::MAX;
    loop {
        let moved = facts.numa_views(at).iter().rev().find_map(|view| {
            let domain = tree.domain(view.domain);
            if domain.weight >= below || !domain.flags.contains(SdFlags::FORK) {
                return None;
            }
            let others = view.others.iter().map(|nodes| sum(nodes, stats));
            let group = find_dst_group(rule, domain, sum(&view.local, stats), others)?;
            let idlest = view.others[group].iter().copied().min_by_key(|&node| {
                let s = &stats[usize::from(node)];
                (u32::MAX - s.idle_cpus, s.nr_running)
            })?;
            Some((idlest, domain.weight))
        });
        match moved {
            Some((node, weight)) => (at, below) = (node, weight),
            None => return at,
        }
    }
}

impl GroupStats {
    /// The same CPUs with another number of tasks, each of which counts as those here do on average,
    /// or as new ones if there are none.
    pub fn with_tasks(&self, nr: u32) -> Self {
        let (wanted, there) = (u64::from(nr), u64::from(self.nr_running));
        let scale =
            |sum: u64, of_new: u64| (sum * wanted).checked_div(there).unwrap_or(of_new * wanted);
        Self {
            nr_running: nr,
            idle_cpus: self.weight.saturating_sub(nr),
            load: Load(scale(self.load.0, NEW_LOAD.0)),
            util: Util(scale(self.util.0, NEW_UTIL.0).min(self.capacity.0)),
            runnable: Util(scale(self.runnable.0, NEW_RUNNABLE.0)),
            ..*self
        }
    }

    /// One more task, as a new one counts.
    pub fn add_new_task(&mut self) {
        self.nr_running += 1;
        self.idle_cpus = self.idle_cpus.saturating_sub(1);
        self.load += NEW_LOAD;
        self.util += NEW_UTIL;
        self.runnable += NEW_RUNNABLE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domains::build;
    use crate::topology::synthetic;
    use crate::units::Capacity;

    fn node(weight: u32, busy: u32) -> GroupStats {
        GroupStats {
            weight,
            nr_running: busy,
            idle_cpus: weight.saturating_sub(busy),
            capacity: Capacity(1024 * u64::from(weight)),
            ..Default::default()
        }
    }

    /// How many of `nr` forks that one running task on node 0 makes, none of which ends, go to each
    /// node.
    fn forks(rule: NumaImbalance, machine: &str, nr: usize) -> Vec<u32> {
        let tree = build(&synthetic::parse(machine).unwrap()).tree;
        let facts = Facts::new(&tree);
        let nodes = usize::from(*facts.node_of().iter().max().unwrap()) + 1;
        let weight = |n| facts.node_of().iter().filter(|&&node| usize::from(node) == n).count();
        let mut stats: Vec<GroupStats> = (0..nodes).map(|n| node(weight(n) as u32, 0)).collect();
        stats[0].add_new_task();
        let mut went = vec![0; nodes];
        for _ in 0..nr {
            let to = dst_node(rule, &tree, &facts, &stats, 0);
            stats[usize::from(to)].add_new_task();
            went[usize::from(to)] += 1;
        }
        went
    }

    use NumaImbalance::{Corrected, Kernel};

    #[test]
    fn a_communicating_child_stays_unless_groups_are_uneven_and_idle_cpus_are_compared() {
        // 3 idle of 4 here, 8 of 8 there. 7.3: 5 > 2, so away. Corrected: population 2 is a pair.
        let uneven = "1x2x4+8 dist=10,21";
        assert_eq!(forks(Kernel, uneven, 1), [0, 1]);
        assert_eq!(forks(Corrected, uneven, 1), [1, 0]);
        // Even groups and one LLC of 64 CPUs each (imb_numa_nr 8): 63 against 64 idle, 2 ≤ 8.
        for rule in [Kernel, Corrected] {
            assert_eq!(forks(rule, "1x2x64 dist=10,21", 1), [1, 0], "{rule}");
        }
    }

    #[test]
    fn a_node_is_filled_to_the_limit_of_the_periodic_pass_then_both() {
        // imb_numa_nr 8 with the parent: 7 more; then always where more CPUs idle, the home first.
        let machine = "1x2x64 dist=10,21";
        assert_eq!(forks(Corrected, machine, 7), [7, 0]);
        assert_eq!(forks(Corrected, machine, 15), [7, 8]);
        assert_eq!(forks(Corrected, machine, 63), [31, 32]);
        // 7.3 goes on from a difference of 2 already.
        assert_eq!(forks(Kernel, machine, 3), [2, 1]);
        assert_eq!(forks(Kernel, machine, 7), [4, 3]);
    }

    #[test]
    fn the_widest_level_decides_first() {
        // Two packages of two nodes: the far pair of nodes idles as a whole.
        let went = forks(Corrected, "2x2x8 dist=10,12,21", 31);
        assert_eq!(went.iter().sum::<u32>(), 31);
        assert!(went.iter().all(|&n| (7..=8).contains(&n)), "{went:?}");
    }

    #[test]
    fn other_numbers_of_tasks_scale_what_is_there() {
        let eight = GroupStats { load: Load(4096), util: Util(2048), ..node(4, 8) };
        let two = eight.with_tasks(2);
        assert_eq!(
            (two.nr_running, two.idle_cpus, two.load, two.util),
            (2, 2, Load(1024), Util(512))
        );
        assert_eq!(eight.with_tasks(8), eight);
        assert_eq!(node(4, 0).with_tasks(3).load, Load(3 * 1024));
    }

    #[test]
    fn without_numa_levels_all_stay() {
        assert_eq!(forks(Corrected, "1x1x8", 20), [20]);
    }

    #[test]
    fn full_nodes_are_compared_by_load() {
        let tree = build(&synthetic::parse("1x2x4 dist=10,21").unwrap()).tree;
        let facts = Facts::new(&tree);
        let full = |load| GroupStats {
            load: Load(load),
            runnable: Util(8 * 1024),
            util: Util(4 * 1024),
            ..node(4, 8)
        };
        let to = |here, there| {
            let stats = [full(here), full(there)];
            dst_node(Corrected, &tree, &facts, &stats, 0)
        };
        // Per full CPU: 2048 against 2048, 1792, 1024. The margin is 174 and 17 %.
        assert_eq!((to(8192, 8192), to(8192, 7168), to(8192, 4096)), (0, 0, 1));
    }

    proptest::proptest! {
        /// Fork plans look for the first population with which forks leave.
        #[test]
        fn a_node_that_sends_a_fork_away_does_so_with_more_tasks(
            kernel: bool,
            machine in 0usize..4,
            seen in proptest::collection::vec((0u32..40, 1u64..3000, 1u64..1024), 8),
        ) {
            let machines = ["1x2x4 dist=10,21", "1x2x4+8 dist=10,21", "2x2x8 dist=10,12,21", "1x2x64 dist=10,21"];
            let tree = build(&synthetic::parse(machines[machine]).unwrap()).tree;
            let facts = Facts::new(&tree);
            let rule = if kernel { Kernel } else { Corrected };
            let weight = |n| facts.node_of().iter().filter(|&&node| usize::from(node) == n).count();
            let mut stats: Vec<GroupStats> = (0..facts.nr_nodes())
                .map(|n| {
                    let (busy, load, util) = seen[n];
                    let stats = node(weight(n) as u32, busy);
                    let tasks = u64::from(busy);
                    GroupStats {
                        load: Load(tasks * load),
                        util: Util((tasks * util).min(stats.capacity.0)),
                        runnable: Util(1024 * tasks),
                        ..stats
                    }
                })
                .collect();
            let home = stats[0];
            let mut left = None;
            for nr in 0..100 {
                stats[0] = home.with_tasks(nr);
                let leaves = dst_node(rule, &tree, &facts, &stats, 0) != 0;
                proptest::prop_assert!(leaves || left.is_none(), "with {left:?} but not with {nr}");
                left = left.or(leaves.then_some(nr));
            }
        }
    }
}
