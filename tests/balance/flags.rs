//! Every value of every flag of P3 and P5 does what its documentation says.

use crate::lab::Lab;
use scx_baton::balancer::fake::{FakeTask, Situation, regular_tree};
use scx_baton::cpumask::Cpumask;
use scx_baton::domains::{DomainId, DomainTree, GroupId, LevelKind, Link, SchedGroup};
use scx_baton::policy::tunables::SerializeScope;
use scx_baton::policy::{IdleType, SkipReason};
use scx_baton::units::{CpuId, Load};
use std::sync::Arc;

/// Two nodes, all work on the first, for 200 ms under these settings.
fn one_sided(settings: &[&str]) -> Lab {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    settings.iter().for_each(|s| lab.set(s));
    (0..4).for_each(|cpu| lab.host.add_hogs(cpu, 2, 1 + 10 * cpu));
    lab.run(200);
    lab
}

#[test]
fn scope_off_needs_no_flag() {
    for (scope, asked) in [("global", true), ("level", true), ("off", false)] {
        let lab = one_sided(&[&format!("serialize-scope={scope}")]);
        assert_eq!(lab.sum(|c| c.serialize_attempts) > 0, asked, "{scope}");
        assert_eq!(lab.host.nr_running(), vec![1; 8], "{scope}");
    }
}

#[test]
fn scope_says_which_holder_is_in_the_way() {
    // Somebody holds the machine's flag: that is not the flag of NUMA level 1, nor is it asked
    // for when there is none.
    for (scope, blocked) in [("global", true), ("level", false), ("off", false)] {
        let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
        lab.set(&format!("serialize-scope={scope}"));
        lab.host.add_hogs(0, 8, 1);
        let shared = Arc::clone(&lab.shared);
        let _held = shared.gate.try_acquire(SerializeScope::Global, LevelKind::Numa(1)).unwrap();
        lab.run(500);
        assert_eq!(lab.host.nr_running()[4..].iter().sum::<usize>() == 0, blocked, "{scope}");
        assert_eq!(lab.sum(|c| c.serialize_busy) > 0, blocked, "{scope}");
    }
}

#[test]
fn passes_says_who_asks() {
    for (passes, idle, busy) in
        [("all", true, true), ("periodic", true, true), ("busy", false, true)]
    {
        let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
        lab.set(&format!("serialize-passes={passes}"));
        // Bound, so that one node stays busy and the other idle.
        let bound = lab.mask("0-3");
        (0..4).for_each(|cpu| lab.host.add(cpu, FakeTask::hog(1 + cpu).on(bound.clone())));
        lab.run(500);
        let counters = lab.counters();
        let numa = counters.levels.last().unwrap();
        assert_eq!(numa.idle.serialize_attempts > 0, idle, "{passes}, idle");
        assert_eq!(numa.busy.serialize_attempts > 0, busy, "{passes}, busy");
        assert!(numa.idle.lb_count > 0 && numa.busy.lb_count > 0);
    }
}

#[test]
fn near_levels_need_no_flag() {
    // The nodes are 21 apart.
    assert!(one_sided(&["serialize-min-distance=21"]).sum(|c| c.serialize_attempts) > 0);
    assert_eq!(one_sided(&["serialize-min-distance=22"]).sum(|c| c.serialize_attempts), 0);
}

#[test]
fn an_unelected_cpu_stamps_or_tries_again() {
    let not_elected = |value: &str| {
        let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
        lab.set(&format!("stamp-unelected={value}"));
        (0..8).for_each(|cpu| lab.host.add_hogs(cpu, 1, 1 + cpu));
        lab.run(500);
        let counters = lab.counters();
        let numa = counters.levels.last().unwrap();
        numa.busy.skips[SkipReason::NotElected.index()]
    };
    let (yes, no) = (not_elected("yes"), not_elected("no"));
    // Stamped: once in 16 × 8 ms at least. Not stamped: as often as the CPU is visited.
    assert!(no > 2 * yes && yes > 0, "{no} against {yes}");
}

#[test]
fn three_partners_stay_or_are_parted() {
    // Nodes of 16: imb_numa_nr 2; made 4 here, as on a larger machine.
    for (rule, answer) in [("corrected", Err(SkipReason::NumaTolerated)), ("kernel", Ok(1))] {
        let mut s = Situation::new(regular_tree(2, 1, 16, 1));
        s.tunables.apply(&format!("numa-imbalance={rule}")).unwrap();
        s.domain(16, 1).imb_numa_nr = 4;
        s.hogs(0..3, 1);
        let (plan, _) = s.decide(16, 1, IdleType::Idle);
        assert_eq!(plan.map(|p| p.imbalance), answer, "{rule}");
    }
}

/// Two nodes of 2 and 6 CPUs.
fn two_and_six() -> DomainTree {
    let mut tree = regular_tree(2, 1, 4, 1);
    let span = |list: &str| Cpumask::parse_list(list, 8).expect("a CPU list");
    let part = |list: &str| {
        let span = span(list);
        let weight = span.weight() as u32;
        SchedGroup { balance_mask: span.clone(), weight, cores: weight, span }
    };
    // Domains: the two nodes, then both; the groups of the last are the nodes.
    let numa = tree.domains.len() - 1;
    for (node, list) in [(0, "0-1"), (1, "2-7")] {
        let GroupId(group) = tree.domains[numa].groups[node];
        tree.groups[group as usize] = part(list);
        tree.domains[node].span = span(list);
        tree.domains[node].weight = tree.domains[node].span.weight() as u32;
        let of_cpu = |c: CpuId| {
            let at = tree.groups.iter().position(|g| g.weight == 1 && g.span.test(c));
            GroupId(at.expect("a group of one CPU") as u32)
        };
        let groups = span(list).iter().map(of_cpu).collect();
        tree.domains[node].groups = groups;
        for (local, cpu) in span(list).iter().enumerate() {
            tree.chains[cpu.index()] = vec![
                Link { domain: DomainId(node as u32), local: local as u32 },
                Link { domain: DomainId(numa as u32), local: node as u32 },
            ];
        }
    }
    tree
}

#[test]
fn a_pair_stays_on_its_node_and_the_counters_say_why() {
    for (tree, home) in [(regular_tree(2, 1, 4, 1), 0), (two_and_six(), 0), (two_and_six(), 2)] {
        let mut lab = Lab::new(tree);
        lab.host.add_hogs(home, 1, 1);
        lab.host.add_hogs(home + 1, 1, 2);
        lab.run(1000);
        assert!(lab.host.moves.is_empty(), "from CPU {home}: {:?}", lab.host.moves);
        assert!(lab.sum(|c| c.skips[SkipReason::NumaTolerated.index()]) > 0);
    }
}

#[test]
fn the_kernels_rule_parts_a_pair_on_the_smaller_node() {
    let mut lab = Lab::new(two_and_six());
    lab.set("numa-imbalance=kernel");
    lab.host.add_hogs(0, 1, 1);
    lab.host.add_hogs(1, 1, 2);
    lab.run(1000);
    assert!(!lab.host.moves.is_empty());
}

#[test]
fn one_heavy_and_many_light_leave_no_cpu_idle() {
    // Wasted cores: an average hides that one CPU is hot.
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    lab.host.add(0, FakeTask { load: Load(88_761), ..FakeTask::hog(1) });
    (2..=65).for_each(|pid| lab.host.add(4, FakeTask::hog(pid).load(15)));
    lab.run(2000);
    assert!(lab.host.nr_running().iter().all(|&n| n > 0), "{:?}", lab.host.nr_running());
}

#[test]
fn one_crowded_llc_among_24_is_relieved() {
    // #3444: 24 LLCs of 8, 16 tasks in one of them.
    let mut lab = Lab::new(regular_tree(1, 24, 8, 1));
    (0..8).for_each(|cpu| lab.host.add_hogs(cpu, 2, 1 + 2 * cpu));
    lab.run(1000);
    assert!(lab.host.nr_running().iter().all(|&n| n <= 1));
}

#[test]
fn tasks_bound_to_two_far_nodes_use_both() {
    let mut lab = Lab::new(regular_tree(4, 1, 4, 1));
    let ends = lab.mask("0-3,12-15");
    (1..=16).for_each(|pid| lab.host.add(pid % 4, FakeTask::hog(pid).on(ends.clone())));
    lab.run(4000);
    let running = lab.host.nr_running();
    assert_eq!(running[4..12], [0; 8]);
    assert!(running[..4].iter().chain(&running[12..]).all(|&n| n == 2), "{running:?}");
}

#[test]
fn bound_kernel_threads_leave_no_mark() {
    let threads = |percpu_kthread| {
        let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
        for cpu in 0..4 {
            let only = Cpumask::from_cpus(8, [CpuId(cpu)]);
            lab.host.add(cpu, FakeTask::hog(1 + cpu).on(only.clone()));
            for pid in [100 + cpu, 200 + cpu] {
                let bound = FakeTask { percpu_kthread, ..FakeTask::hog(pid) };
                lab.host.add(cpu, bound.on(only.clone()));
            }
        }
        // One CPU without, so that its node's own level has something to even out.
        lab.host.queues[3].clear();
        lab.host.refresh_all();
        let numa = LevelKind::Numa(1);
        let group = GroupId(8);
        let mut marked = false;
        for _ in 0..200 {
            lab.run(1);
            marked |= lab.shared.marks.is_imbalanced(group);
        }
        assert!(lab.counters().levels.iter().any(|l| l.level == numa));
        marked
    };
    assert!(threads(false), "ordinary bound tasks do mark the group");
    assert!(!threads(true));
}
