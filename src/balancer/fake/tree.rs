//! Domain trees of regular machines.

use crate::cpumask::Cpumask;
use crate::domains::{
    DomainId, DomainTree, GroupId, LevelKind, Link, SchedDomain, SchedGroup, SdFlags,
};
use crate::units::{CpuId, Nanos};

/// The domains of a regular machine: so many nodes, LLCs in each, cores in each, threads in each.
/// Levels with a single group are left out. All nodes are equally far from each other (21).
pub fn regular_tree(nodes: usize, llcs: usize, cores: usize, threads: usize) -> DomainTree {
    let (llc, node) = (cores * threads, llcs * cores * threads);
    let width = nodes * node;
    let levels = [
        (LevelKind::Smt, 1, threads),
        (LevelKind::Mc, threads, llc),
        (LevelKind::Pkg, llc, node),
        (LevelKind::Numa(1), node, width),
    ];
    let mut tree = DomainTree { chains: vec![Vec::new(); width], ..Default::default() };
    for (level, part, whole) in levels.into_iter().filter(|l| l.1 < l.2) {
        let mut flags = SdFlags::NEWIDLE | SdFlags::FORK | SdFlags::EXEC | SdFlags::WAKE_AFFINE;
        flags |= match level {
            LevelKind::Smt => {
                SdFlags::SHARE_CPUCAPACITY | SdFlags::SHARE_LLC | SdFlags::PREFER_SIBLING
            }
            LevelKind::Mc => SdFlags::SHARE_LLC | SdFlags::PREFER_SIBLING,
            LevelKind::Numa(_) => SdFlags::NUMA | SdFlags::SERIALIZE,
            _ => SdFlags::PREFER_SIBLING,
        };
        let is_numa = flags.contains(SdFlags::NUMA);
        for start in (0..width).step_by(whole) {
            let first_group = tree.groups.len();
            for from in (start..start + whole).step_by(part) {
                let span = Cpumask::from_cpus(width, (from..from + part).map(CpuId::from));
                tree.groups.push(SchedGroup {
                    balance_mask: span.clone(),
                    weight: part as u32,
                    cores: part.div_ceil(threads) as u32,
                    span,
                });
            }
            let id = DomainId(tree.domains.len() as u32);
            tree.domains.push(SchedDomain {
                level,
                span: Cpumask::from_cpus(width, (start..start + whole).map(CpuId::from)),
                weight: whole as u32,
                groups: (first_group..tree.groups.len()).map(|g| GroupId(g as u32)).collect(),
                flags,
                distance: if is_numa { 21 } else { 10 },
                imbalance_pct: if level == LevelKind::Smt { 110 } else { 117 },
                cache_nice_tries: match level {
                    LevelKind::Smt => 0,
                    LevelKind::Numa(_) => 2,
                    _ => 1,
                },
                busy_factor: 16,
                min_interval: Nanos::from_ms(whole as u64),
                max_interval: Nanos::from_ms(2 * whole as u64),
                imb_numa_nr: match (is_numa, llcs) {
                    (false, _) => 0,
                    (true, 1) => (node as u32 / 8).max(1),
                    (true, _) => llcs as u32,
                },
            });
            for cpu in start..start + whole {
                let local = ((cpu - start) / part) as u32;
                tree.chains[cpu].push(Link { domain: id, local });
            }
        }
    }
    tree
}
