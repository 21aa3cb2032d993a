//! The table of levels before any CPU's chain is built: for each level, who shares a span.
//!
//! This mirrors the kernel's `sched_domain_topology` after `sched_init_numa`: SMT, CLS, MC, PKG,
//! then NODE and one NUMA level for each further distance. Spans are kept once per part (below
//! NODE) or once per node (from NODE up), never per CPU.

use super::{DroppedLevel, DroppedWhy, LevelKind};
use crate::cpumask::Cpumask;
use crate::topology::{Arch, LOCAL_DISTANCE, Partition, Topology};
use crate::units::CpuId;
use std::collections::BTreeSet;

/// Distances must be below this (kernel: `NR_DISTANCE_VALUES`).
const DISTANCE_LIMIT: u32 = 256;

/// One row of the table.
pub(super) struct Level {
    pub(super) kind: LevelKind,
    /// Distance that the spans reach; [`LOCAL_DISTANCE`] below the NUMA levels.
    pub(super) distance: u32,
    /// By CPU id: index into `spans`; meaningless for CPUs that are not active.
    pub(super) span_of: Vec<u32>,
    pub(super) spans: Vec<Cpumask>,
}

impl Level {
    pub(super) fn span(&self, cpu: CpuId) -> &Cpumask {
        &self.spans[self.span_of[cpu.index()] as usize]
    }

    fn from_partition(kind: LevelKind, sets: &Partition, active: &Cpumask) -> Self {
        let sets = sets.restricted_to(active);
        let mut span_of = vec![0; active.width()];
        for cpu in active.iter() {
            span_of[cpu.index()] = sets.of(cpu).unwrap_or(0) as u32;
        }
        let spans = (0..sets.len()).map(|part| sets.mask(part)).collect();
        Self { kind, distance: LOCAL_DISTANCE, span_of, spans }
    }

    /// A level whose spans hang on the node. Equal spans are stored once.
    fn from_nodes(
        kind: LevelKind,
        distance: u32,
        t: &Topology,
        active: &Cpumask,
        masks: &[Cpumask],
    ) -> Self {
        let mut spans: Vec<Cpumask> = Vec::new();
        let index: Vec<u32> = masks
            .iter()
            .map(|mask| {
                let mask = mask.and(active);
                let at = spans.iter().position(|s| *s == mask).unwrap_or_else(|| {
                    spans.push(mask);
                    spans.len() - 1
                });
                at as u32
            })
            .collect();
        let mut span_of = vec![0; active.width()];
        for cpu in active.iter() {
            span_of[cpu.index()] = t.node_index(cpu).map_or(0, |node| index[node]);
        }
        Self { kind, distance, span_of, spans }
    }
}

/// Distances as the kernel's domain builder sees them, by node position. Between packages with
/// sub-NUMA clusters they may be averages, see [`crate::topology::Platform`].
fn sched_distances(t: &Topology, nodes: &[usize]) -> Vec<Vec<u32>> {
    let mut rows: Vec<Vec<u32>> = t.nodes.iter().map(|n| n.distances.clone()).collect();
    let package_of = |node: usize| t.nodes[node].cpus.first().and_then(|cpu| t.packages.of(cpu));
    let per_package = nodes.len().div_ceil(t.packages.len().max(1));
    if !t.platform.averages_remote_distances || t.packages.len() < 2 || per_package < 3 {
        return rows;
    }
    // The kernel expects the nodes of a package to be neighbours and complete; otherwise it
    // leaves the table as the firmware gave it.
    let clusters: Vec<&[usize]> = nodes.chunks(per_package).collect();
    let regular = clusters.iter().all(|c| {
        c.len() == per_package
            && c.iter().all(|&n| package_of(n).is_some() && package_of(n) == package_of(c[0]))
            && c.iter().all(|&a| c.iter().all(|&b| t.distance(a, b) == t.distance(b, a)))
    }) && clusters.windows(2).all(|w| package_of(w[0][0]) != package_of(w[1][0]));
    if !regular {
        return rows;
    }
    for a in &clusters {
        for b in clusters.iter().filter(|b| b[0] != a[0]) {
            let pairs = a.iter().flat_map(|&i| b.iter().map(move |&j| (i, j)));
            // 64 bits, as a file may state any distance.
            let sum: u64 = pairs
                .clone()
                .map(|(i, j)| u64::from(t.distance(i, j)) + u64::from(t.distance(j, i)))
                .sum();
            let mean = (sum / (2 * per_package * per_package) as u64) as u32;
            for (i, j) in pairs {
                rows[i][j] = mean;
            }
        }
    }
    rows
}

/// The whole table, narrow to wide, and the levels that never came to be.
pub(super) fn table(t: &Topology, active: &Cpumask) -> (Vec<Level>, Vec<DroppedLevel>) {
    let mut dropped = Vec::new();
    let mut levels = vec![
        Level::from_partition(LevelKind::Smt, &t.cores, active),
        Level::from_partition(LevelKind::Cls, &clusters(t), active),
        Level::from_partition(LevelKind::Mc, &t.llcs, active),
    ];
    // Nodes count by the CPUs that run, isolated ones included (kernel: `N_CPU`).
    let nodes: Vec<usize> = (0..t.nodes.len()).filter(|&n| !t.nodes[n].cpus.is_empty()).collect();
    if t.platform.arch == Arch::X86 && nodes.len() > t.packages.len() {
        dropped.push(DroppedLevel {
            level: LevelKind::Pkg,
            cpus: active.weight() as u32,
            why: DroppedWhy::NodesInsidePackage,
        });
    } else {
        let masks: Vec<Cpumask> = t.nodes.iter().map(|n| n.cpus.clone()).collect();
        levels.push(Level::from_nodes(LevelKind::Pkg, LOCAL_DISTANCE, t, active, &masks));
    }

    let rows = sched_distances(t, &nodes);
    let distinct: BTreeSet<u32> =
        nodes.iter().flat_map(|&a| nodes.iter().map(|&b| rows[a][b]).collect::<Vec<_>>()).collect();
    if distinct.iter().any(|d| !(LOCAL_DISTANCE..DISTANCE_LIMIT).contains(d)) {
        dropped.push(DroppedLevel {
            level: LevelKind::Numa(1),
            cpus: active.weight() as u32,
            why: DroppedWhy::InvalidDistances,
        });
        return (levels, dropped);
    }
    for (i, &reach) in distinct.iter().enumerate() {
        let kind = if i == 0 { LevelKind::Node } else { LevelKind::Numa(i as u16) };
        let mut masks = vec![Cpumask::new(t.width); t.nodes.len()];
        for &a in &nodes {
            // A node belongs to itself whatever its row says.
            for &b in nodes.iter().filter(|&&b| b == a || rows[a][b] <= reach) {
                masks[a].or_assign(&t.nodes[b].cpus);
            }
        }
        let level = Level::from_nodes(kind, reach, t, active, &masks);
        if kind == LevelKind::Node && !disjoint(&level) {
            dropped.push(DroppedLevel {
                level: kind,
                cpus: active.weight() as u32,
                why: DroppedWhy::Overlapping,
            });
            continue;
        }
        levels.push(level);
    }
    (levels, dropped)
}

/// Clusters as the level table means them. Outside x86 a cluster that is no smaller than the LLC
/// is no cluster (kernel: `cpu_clustergroup_mask` in arch_topology.c).
fn clusters(t: &Topology) -> Partition {
    if t.platform.arch == Arch::X86 {
        return t.clusters.clone();
    }
    t.clusters.cut_by(|cpu| {
        let same = t.clusters.peers(cpu).len() == t.llcs.peers(cpu).len();
        if same { t.cores.of(cpu) } else { None }
    })
}

fn disjoint(level: &Level) -> bool {
    let mut covered = match level.spans.first() {
        Some(span) => Cpumask::new(span.width()),
        None => return true,
    };
    level.spans.iter().all(|span| {
        let free = !span.intersects(&covered);
        covered.or_assign(span);
        free
    })
}
