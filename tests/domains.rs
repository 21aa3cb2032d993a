//! The domain tree against figures worked out by hand, on described machines.

use scx_baton::cpumask::Cpumask;
use scx_baton::domains::{
    BuildOptions, Built, DroppedWhy, LevelKind, SchedDomain, SdFlags, build, build_with, sanity,
};
use scx_baton::topology::{Topology, presets, synthetic};
use scx_baton::units::CpuId;

fn topology(spec: &str) -> Topology {
    synthetic::parse(spec).unwrap_or_else(|e| panic!("{spec}: {e}"))
}

fn built(spec: &str) -> Built {
    let built = build(&topology(spec));
    assert_eq!(sanity(&built.tree), [], "{spec}");
    built
}

/// A CPU's chain as `/proc/schedstat` would name it.
fn chain(built: &Built, cpu: u32) -> Vec<(&'static str, String)> {
    domains(built, cpu).iter().map(|d| (d.level.kernel_name(), d.span.to_string())).collect()
}

fn domains(built: &Built, cpu: u32) -> Vec<&SchedDomain> {
    built.tree.chain(CpuId(cpu)).iter().map(|link| built.tree.domain(link.domain)).collect()
}

fn names(built: &Built, cpu: u32) -> String {
    chain(built, cpu).iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

/// Spans of a CPU's groups at a level, its own first, as the kernel's ring has them.
fn groups(built: &Built, cpu: u32, level: usize) -> Vec<String> {
    let link = built.tree.chain(CpuId(cpu))[level];
    let mut groups = built.tree.domain(link.domain).groups.clone();
    groups.rotate_left(link.local as usize);
    groups.iter().map(|&id| built.tree.group(id).span.to_string()).collect()
}

fn imb_numa_nr(built: &Built, cpu: u32) -> Vec<u32> {
    domains(built, cpu).iter().map(|d| d.imb_numa_nr).collect()
}

#[test]
fn one_node() {
    let b = built("1x1x8 smt=2 llc=4");
    assert_eq!(
        chain(&b, 0),
        [("SMT", "0,8".into()), ("MC", "0-3,8-11".into()), ("PKG", "0-15".to_string())]
    );
    assert_eq!(groups(&b, 5, 2), ["4-7,12-15", "0-3,8-11"]);
    // One LLC per package: PKG would have one group.
    assert_eq!(names(&built("8"), 0), "MC");
}

#[test]
fn a_single_cpu_has_no_domain() {
    let b = built("1");
    assert_eq!(chain(&b, 0), []);
    assert!(b.dropped.iter().any(|d| d.why == DroppedWhy::OneCpu));
}

#[test]
fn four_nodes_at_12_and_21() {
    let b = built("2x2x4 dist=10,12,21");
    // Two nodes inside a package: no PKG level on x86, and NODE equals MC.
    assert_eq!(
        chain(&b, 0),
        [("MC", "0-3".into()), ("NUMA", "0-7".into()), ("NUMA", "0-15".to_string())]
    );
    assert!(b.dropped.iter().any(|d| d.why == DroppedWhy::NodesInsidePackage));
    assert_eq!(groups(&b, 9, 2), ["8-15", "0-7"]);
}

#[test]
fn node_level_where_a_package_holds_several_nodes() {
    assert_eq!(names(&built("genoa-nps4"), 0), "SMT MC NODE NUMA NUMA");
    assert_eq!(names(&built("1x1x16 llc=8"), 0), "MC PKG");
}

#[test]
fn line_of_four_keeps_groups_inside_their_domain() {
    // The smallest machine of diameter 3: node 1 reaches all within 30, nodes 0 and 3 within 40.
    let b = built("4x1x1 dist=10,20,30,40/20,10,20,30/30,20,10,20/40,30,20,10");
    let spans = |cpu| chain(&b, cpu).into_iter().map(|(_, span)| span).collect::<Vec<_>>();
    assert_eq!(spans(0), ["0-1", "0-2", "0-3"]);
    assert_eq!(spans(1), ["0-2", "0-3"]);
    assert_eq!(spans(2), ["1-3", "0-3"]);
    assert_eq!(spans(3), ["2-3", "1-3", "0-3"]);
    // Node 2's child span 1-3 would reach outside 0-2: its own CPU is taken instead.
    assert_eq!(groups(&b, 0, 1), ["0-1", "2"]);
    assert_eq!(groups(&b, 1, 1), ["0-2", "2-3"]);
    assert_eq!(groups(&b, 0, 2), ["0-2", "1-3"]);
}

#[test]
fn ring_of_four_has_balance_masks() {
    let b = built("4x1x2 dist=10,20,30,20/20,10,20,30/30,20,10,20/20,30,20,10");
    assert_eq!(groups(&b, 0, 2), ["0-3,6-7", "2-7"]);
    let top = b.tree.chain(CpuId(2))[2];
    let own = b.tree.group(b.tree.domain(top.domain).groups[top.local as usize]);
    assert_eq!((own.span.to_string(), own.balance_mask.to_string()), ("0-5".into(), "2-3".into()));
    assert!(b.tree.domain(top.domain).flags.contains(SdFlags::OVERLAP | SdFlags::SERIALIZE));
}

#[test]
fn granite_rapids_distances_are_averaged() {
    let b = built("granite-rapids-snc3");
    let spans: Vec<String> = chain(&b, 0).into_iter().map(|(_, span)| span).collect();
    // Distances 10 15 17 | 24 24 24: node 0 sees its neighbour at 15, the third at 17.
    assert_eq!(spans, ["0,240", "0-39,240-279", "0-79,240-319", "0-119,240-359", "0-479"]);
    let raw = built("granite-rapids-snc3 slit=plain");
    assert!(chain(&raw, 0).len() > spans.len());
}

#[test]
fn equal_distances_still_make_one_level_over_all() {
    let b = built("4x1x2 dist=10,10,10,10/10,10,10,10/10,10,10,10/10,10,10,10");
    assert_eq!(chain(&b, 3), [("MC", "2-3".into()), ("NODE", "0-7".to_string())]);
}

#[test]
fn impossible_distances_leave_no_numa_level() {
    let b = built("2x4 dist=10,5/5,10");
    assert_eq!(chain(&b, 0), [("MC", "0-3".to_string())]);
    assert!(b.dropped.iter().any(|d| d.why == DroppedWhy::InvalidDistances));
}

#[test]
fn uneven_memoryless_and_cpuless_nodes() {
    let b = built("1x2x2+6 memless=1 memonly=8");
    assert_eq!(chain(&b, 7), [("MC", "2-7".into()), ("NUMA", "0-7".to_string())]);
    assert_eq!(groups(&b, 7, 1), ["2-7", "0-1"]);
}

#[test]
fn clusters() {
    let b = built("clearwater-forest");
    assert_eq!(names(&b, 0), "CLS MC NUMA");
    assert_eq!(chain(&b, 0)[0].1, "0-3");
    // A cluster as large as the LLC: x86 keeps the narrower name, arm64 knows no cluster then.
    assert_eq!(names(&built("1x8 cluster=8"), 0), "CLS");
    assert_eq!(names(&built("1x8 cluster=8 arch=other"), 0), "MC");
}

#[test]
fn isolated_and_offline_cpus_are_in_no_domain() {
    let b = built("2x4 isolated=2-3 offline=7");
    for cpu in [2, 3, 7] {
        assert_eq!(chain(&b, cpu), [], "CPU {cpu}");
    }
    assert_eq!(chain(&b, 0), [("MC", "0-1".into()), ("NUMA", "0-1,4-6".to_string())]);
}

#[test]
fn partitions_are_balanced_apart() {
    // As a 7.3 kernel does it: node 0 is divided, the rest is one tree over both nodes.
    let b = built("1x2x4 partition=2-3");
    assert_eq!(chain(&b, 2), [("MC", "2-3".to_string())]);
    assert_eq!(chain(&b, 0), [("MC", "0-1".into()), ("NUMA", "0-1,4-7".to_string())]);
    assert_eq!(chain(&b, 5)[0].1, "4-7");
    assert_eq!(built("1x2x4 partition=0-7"), built("1x2x4"));
}

#[test]
fn offline_then_online_gives_the_identical_tree() {
    for preset in presets::PRESETS {
        let before = topology(preset.name);
        let off = Cpumask::from_cpus(before.width, [CpuId(1), CpuId(5)]);
        let without = build(&before.with_online(&before.online.and_not(&off)));
        let after = topology(preset.name);
        assert_ne!(build(&before), without);
        assert_eq!(build(&before), build(&after), "{}", preset.name);
        assert_eq!(sanity(&without.tree), []);
    }
}

#[test]
fn golden_imb_numa_nr() {
    // policy.md: 2 nodes x 64 CPUs x 1 LLC: 64 / 8 = 8.
    assert_eq!(imb_numa_nr(&built("2x64"), 0), [0, 8]);
    // policy.md: 2 nodes x 8 LLCs x 16 CPUs: one per LLC = 8; PKG holds the node's 8 LLCs.
    assert_eq!(imb_numa_nr(&built("2x64 llc=8 smt=2"), 0), [0, 0, 8, 8]);
}

#[test]
fn preset_imb_numa_nr() {
    for (preset, values) in [
        // One LLC of 80 CPUs per node: 80/8 = 10. Spans 160, 240 (1 time), 480 (3 times).
        ("granite-rapids-snc3", &[0, 0, 10, 10, 30][..]),
        // 120/8 = 15; one NUMA level.
        ("clearwater-forest", &[0, 0, 15]),
        // NODE of 48 CPUs holds 3 LLCs of 16; first NUMA span 192, second 384 = 2 times.
        ("genoa-nps4", &[0, 0, 3, 3, 6]),
        // PKG of 120 CPUs holds 15 LLCs of 8.
        ("power10", &[0, 15, 15]),
        // 32/8 = 4 per node; spans 64, 96 (1 time), 128 (2 times).
        ("kunpeng920", &[0, 0, 4, 4, 8]),
        // One LLC of 4 CPUs: 4/8 = 0, at least 1; spans 12 (nodes 0 to 2), 28 and 32 (2 times).
        ("mesh8", &[0, 1, 2, 2]),
        // One node, one LLC: no level above the LLC.
        ("laptop-hybrid", &[0, 0]),
    ] {
        assert_eq!(imb_numa_nr(&built(preset), 0), values, "{preset}");
    }
}

#[test]
fn uneven_llcs_give_their_cpus_different_limits() {
    // LLCs of 8 and 6 cores in a node of 14: 14/8 = 1 LLC, hence 14/8 = 1 task; 14/6 = 2 LLCs.
    let b = built("2x14 llc=8+6");
    assert_eq!(imb_numa_nr(&b, 0), [0, 1, 1]);
    assert_eq!(imb_numa_nr(&b, 8), [0, 2, 2]);
}

#[test]
fn numbers_and_flags_per_level() {
    let b = built("2x2x4 smt=2 llc=2 dist=10,20,40");
    let d = domains(&b, 0);
    assert_eq!(names(&b, 0), "SMT MC NODE NUMA NUMA");
    assert_eq!(d.iter().map(|d| d.imbalance_pct).collect::<Vec<_>>(), [110, 117, 117, 117, 117]);
    assert_eq!(d.iter().map(|d| d.cache_nice_tries).collect::<Vec<_>>(), [0, 1, 1, 2, 2]);
    assert_eq!(d.iter().map(|d| d.distance).collect::<Vec<_>>(), [10, 10, 10, 20, 40]);
    for (domain, weight) in d.iter().zip([2, 4, 8, 16, 32]) {
        assert_eq!((domain.weight, domain.busy_factor), (weight, 16));
        assert_eq!(domain.min_interval.0, u64::from(weight) * 1_000_000);
        assert_eq!(domain.max_interval.0, 2 * domain.min_interval.0);
    }
    let place = SdFlags::EXEC | SdFlags::FORK | SdFlags::WAKE_AFFINE;
    assert!(d[3].flags.contains(place | SdFlags::SERIALIZE | SdFlags::NUMA));
    assert!(!d[3].flags.contains(SdFlags::PREFER_SIBLING));
    // 40 is beyond the reclaim distance of 30.
    assert!(!d[4].flags.intersects(place));
    assert!(d[1].flags.contains(SdFlags::SHARE_LLC | SdFlags::PREFER_SIBLING));
    assert_eq!(d[4].level, LevelKind::Numa(2));
}

#[test]
fn relaxing_removes_newidle_from_a_position_of_the_table_up() {
    // Rows of the x86 table without SMT: 0 CLS, 1 MC, 2 PKG, 3 NODE, 4 NUMA.
    let t = topology("2x8 llc=4");
    let b = build_with(&t, &BuildOptions { relax_domain_level: Some(2) });
    let newidle: Vec<bool> =
        domains(&b, 0).iter().map(|d| d.flags.contains(SdFlags::NEWIDLE)).collect();
    assert_eq!((names(&b, 0).as_str(), newidle), ("MC PKG NUMA", vec![true, false, false]));
}

#[test]
fn no_distance_is_too_large_to_average() {
    let mut t = topology("2x3x4 slit=averaged");
    for node in &mut t.nodes {
        node.distances.fill(u32::MAX);
    }
    let b = build_with(&t, &BuildOptions::default());
    assert!(b.dropped.iter().any(|d| d.why == DroppedWhy::InvalidDistances), "{:?}", b.dropped);
}

#[test]
fn capacities_show_where_they_differ() {
    let b = built("1x1x8 cluster=4 capacity=4*1024+4*512");
    let d = domains(&b, 0);
    assert!(!d[0].flags.contains(SdFlags::ASYM_CPUCAPACITY));
    assert!(d[1].flags.contains(SdFlags::ASYM_CPUCAPACITY | SdFlags::ASYM_CPUCAPACITY_FULL));
}

#[test]
fn holes_in_the_numbering_change_nothing_but_numbers() {
    let (dense, holes) = (built("2x2x4 dist=10,12,21"), built("2x2x4 dist=10,12,21 stride=2"));
    assert_eq!(names(&dense, 3), names(&holes, 6));
    assert_eq!(chain(&holes, 6)[1].1, "0,2,4,6,8,10,12,14");
    assert_eq!(chain(&holes, 1), []);
}

#[test]
fn one_state_per_distinct_group() {
    let b = built("2x4");
    assert_eq!(domains(&b, 0)[1].groups, domains(&b, 7)[1].groups);
    // 2 node domains and 1 NUMA domain; 8 CPUs and 2 nodes as groups.
    assert_eq!((b.tree.domains.len(), b.tree.groups.len()), (3, 10));
}

/// Levels, spans, groups, their order and balance masks against a real kernel, on machines whose
/// NUMA spans overlap: a mesh, a line, a ring, and a line with interleaved CPU numbers.
#[test]
fn groups_equal_what_a_kernel_printed() {
    let mut kernel = include_str!("data/kernel-groups.txt").lines().filter(|l| !l.starts_with('#'));
    let mut ours: std::collections::VecDeque<String> = Default::default();
    for line in kernel.by_ref().filter(|line| !line.is_empty()) {
        if let Some(spec) = line.strip_prefix("machine ") {
            assert!(ours.is_empty(), "the kernel has fewer domains: {ours:?}");
            let b = built(spec);
            for (cpu, chain) in b.tree.chains.iter().enumerate() {
                for link in chain {
                    let domain = b.tree.domain(link.domain);
                    let mut row = format!("{cpu} {} {}", domain.level, domain.span);
                    let mut ring = domain.groups.clone();
                    ring.rotate_left(link.local as usize);
                    for group in ring.iter().map(|&id| b.tree.group(id)) {
                        row.push_str(&format!(" {}", group.span));
                        if group.balance_mask != group.span {
                            row.push_str(&format!("/{}", group.balance_mask));
                        }
                    }
                    ours.push_back(row);
                }
            }
        } else {
            assert_eq!(ours.pop_front().as_deref(), Some(line));
        }
    }
    assert!(ours.is_empty());
}
