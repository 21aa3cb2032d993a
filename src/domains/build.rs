//! From a [`Topology`] to a [`DomainTree`] (kernel: `build_sched_domains` and
//! `cpu_attach_domain` in kernel/sched/topology.c).

use super::levels::{Level, table};
use super::overlap::Overlap;
use super::{
    DomainId, DomainTree, DroppedLevel, DroppedWhy, GroupId, LevelKind, Link, SchedDomain,
    SchedGroup, SdFlags,
};
use crate::cpumask::Cpumask;
use crate::topology::{LOCAL_DISTANCE, Topology};
use crate::units::{CpuId, Nanos};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What can be asked of the builder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Levels from this position of the table up do not balance on newidle (kernel:
    /// `relax_domain_level=`); `None`: all do.
    pub relax_domain_level: Option<u32>,
}

/// A tree and what was left out of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Built {
    /// The domains.
    pub tree: DomainTree,
    /// Levels that some or all CPUs do not have, with the reason.
    pub dropped: Vec<DroppedLevel>,
}

/// Builds the tree with default options. A pure function: equal topologies give equal trees.
pub fn build(topology: &Topology) -> Built {
    build_with(topology, &BuildOptions::default())
}

/// [`build`] with options.
pub fn build_with(topology: &Topology, options: &BuildOptions) -> Built {
    let active = topology.active();
    let (levels, dropped) = table(topology, &active);
    let mut builder = Builder {
        t: topology,
        options,
        capacities: capacities(topology, &active),
        depth: depths(&levels, &active),
        active,
        levels,
        groups: Groups::default(),
        domains: Vec::new(),
        known: HashMap::new(),
        rings: HashMap::new(),
        dropped: BTreeMap::new(),
    };
    let chains = builder.chains();
    let dropped = dropped
        .into_iter()
        .chain(builder.dropped.into_iter().map(|((level, why), cpus)| DroppedLevel {
            level,
            cpus,
            why,
        }))
        .collect();
    let tree = DomainTree { domains: builder.domains, groups: builder.groups.list, chains };
    Built { tree, dropped }
}

/// By CPU id: how many levels the kernel builds for the CPU; it stops at the first that spans
/// everything. 0 for CPUs that are not active.
fn depths(levels: &[Level], active: &Cpumask) -> Vec<u32> {
    let whole: Vec<Vec<bool>> =
        levels.iter().map(|l| l.spans.iter().map(|span| span == active).collect()).collect();
    let mut depths = vec![0; active.width()];
    for cpu in active.iter() {
        let top = (0..levels.len())
            .find(|&l| whole[l][levels[l].span_of[cpu.index()] as usize])
            .map_or(levels.len(), |l| l + 1);
        depths[cpu.index()] = top as u32;
    }
    depths
}

/// The CPUs by capacity; empty when all are equal (kernel: `asym_cap_list`).
fn capacities(t: &Topology, active: &Cpumask) -> Vec<Cpumask> {
    let mut by_capacity = BTreeMap::new();
    for cpu in active.iter() {
        by_capacity.entry(t.capacity(cpu)).or_insert_with(|| Cpumask::new(t.width)).set(cpu);
    }
    if by_capacity.len() > 1 { by_capacity.into_values().collect() } else { Vec::new() }
}

/// Groups, each distinct one once.
#[derive(Default)]
struct Groups {
    list: Vec<SchedGroup>,
    known: HashMap<(Cpumask, Cpumask), GroupId>,
}

impl Groups {
    fn intern(&mut self, t: &Topology, span: &Cpumask, balance_mask: &Cpumask) -> GroupId {
        let key = (span.clone(), balance_mask.clone());
        if let Some(&id) = self.known.get(&key) {
            return id;
        }
        let id = GroupId(self.list.len() as u32);
        let cores: BTreeSet<_> = span.iter().map(|cpu| t.cores.of(cpu)).collect();
        self.list.push(SchedGroup {
            span: span.clone(),
            balance_mask: balance_mask.clone(),
            weight: span.weight() as u32,
            cores: cores.len() as u32,
        });
        self.known.insert(key, id);
        id
    }
}

struct Builder<'a> {
    t: &'a Topology,
    options: &'a BuildOptions,
    active: Cpumask,
    levels: Vec<Level>,
    depth: Vec<u32>,
    capacities: Vec<Cpumask>,
    groups: Groups,
    domains: Vec<SchedDomain>,
    /// Domains made so far: level, span, groups in ring order and `imb_numa_nr` (which differs
    /// inside a span when its LLCs are uneven).
    known: HashMap<(usize, u32, Vec<GroupId>, u32), DomainId>,
    /// Groups of the spans below the NUMA levels, by level and span.
    rings: HashMap<(usize, u32), Vec<GroupId>>,
    dropped: BTreeMap<(LevelKind, DroppedWhy), u32>,
}

impl Builder<'_> {
    fn chains(&mut self) -> Vec<Vec<Link>> {
        let mut overlap = Overlap::default();
        let mut chains = vec![Vec::new(); self.active.width()];
        let active = self.active.clone();
        for cpu in active.iter() {
            chains[cpu.index()] = self.chain(cpu, &mut overlap);
        }
        chains
    }

    fn drop_level(&mut self, level: LevelKind, why: DroppedWhy) {
        *self.dropped.entry((level, why)).or_default() += 1;
    }

    fn chain(&mut self, cpu: CpuId, overlap: &mut Overlap) -> Vec<Link> {
        let depth = self.depth[cpu.index()] as usize;
        let imbalance = self.imb_numa_nr(cpu, depth);
        let mut chain = Vec::new();
        let mut child: Option<usize> = None;
        for (level, imb_numa_nr) in imbalance.into_iter().enumerate() {
            let (kind, span) = (self.levels[level].kind, self.levels[level].span(cpu));
            let below = child.map(|c| (self.levels[c].kind, self.levels[c].span(cpu)));
            if level >= depth {
                let top = below.map_or(self.levels[depth - 1].kind, |(kind, _)| kind);
                self.drop_level(kind, DroppedWhy::AllSpannedBy(top));
            } else if span.weight() == 1 {
                self.drop_level(kind, DroppedWhy::OneCpu);
            } else if let Some((below, _)) = below.filter(|(_, inner)| *inner == span) {
                self.drop_level(kind, DroppedWhy::SameSpanAs(below));
            } else {
                let groups = match kind {
                    LevelKind::Numa(_) => self.overlapping(cpu, level, overlap),
                    _ => self.ring(cpu, level),
                };
                chain.push(self.link(cpu, level, groups, imb_numa_nr));
                child = Some(level);
            }
        }
        chain
    }

    /// The groups of a span that does not overlap others: the spans below, in CPU order.
    fn ring(&mut self, cpu: CpuId, level: usize) -> Vec<GroupId> {
        let key = (level, self.levels[level].span_of[cpu.index()]);
        if let Some(ring) = self.rings.get(&key) {
            return ring.clone();
        }
        let mut rest = self.levels[level].span(cpu).clone();
        let mut ring = Vec::new();
        while let Some(first) = rest.first() {
            let span = match level.checked_sub(1) {
                Some(below) => self.levels[below].span(first).clone(),
                None => Cpumask::from_cpus(self.t.width, [first]),
            };
            rest = rest.and_not(&span);
            ring.push(self.groups.intern(self.t, &span, &span));
        }
        self.rings.insert(key, ring.clone());
        ring
    }

    /// The groups of a NUMA span as `cpu` sees them, rotated so that CPUs whose views differ only
    /// in the starting point share a domain.
    fn overlapping(&mut self, cpu: CpuId, level: usize, overlap: &mut Overlap) -> Vec<GroupId> {
        let groups = &mut self.groups;
        let mut ring = overlap
            .groups(&self.levels, &self.depth, cpu, level, |span, mask| {
                groups.intern(self.t, span, mask)
            })
            .to_vec();
        let lowest = (0..ring.len())
            .min_by_key(|&i| (self.groups.list[ring[i].0 as usize].span.first(), ring[i]));
        ring.rotate_left(lowest.unwrap_or(0));
        ring
    }

    fn link(&mut self, cpu: CpuId, level: usize, groups: Vec<GroupId>, imb_numa_nr: u32) -> Link {
        // A CPU's own group is its child's span; nothing else may pass for it where groups overlap.
        let own = |id: &GroupId| {
            let group = &self.groups.list[id.0 as usize];
            match level.checked_sub(1) {
                Some(below) => group.span == *self.levels[below].span(cpu),
                None => group.span.test(cpu),
            }
        };
        let local = groups.iter().position(own).unwrap_or(0) as u32;
        let key = (level, self.levels[level].span_of[cpu.index()], groups, imb_numa_nr);
        if let Some(&domain) = self.known.get(&key) {
            return Link { domain, local };
        }
        let domain = DomainId(self.domains.len() as u32);
        self.domains.push(self.domain(cpu, level, key.2.clone(), imb_numa_nr));
        self.known.insert(key, domain);
        Link { domain, local }
    }

    /// Per-level numbers and flags (kernel: `sd_init`).
    fn domain(&self, cpu: CpuId, level: usize, groups: Vec<GroupId>, imb: u32) -> SchedDomain {
        let Level { kind, distance, .. } = self.levels[level];
        let span = self.levels[level].span(cpu).clone();
        let weight = span.weight() as u32;
        let mut flags = SdFlags::NEWIDLE
            | SdFlags::EXEC
            | SdFlags::FORK
            | SdFlags::WAKE_AFFINE
            | SdFlags::PREFER_SIBLING;
        let (mut imbalance_pct, mut cache_nice_tries) = (117, 1);
        match kind {
            LevelKind::Smt => {
                flags |= SdFlags::SHARE_CPUCAPACITY | SdFlags::SHARE_LLC;
                (imbalance_pct, cache_nice_tries) = (110, 0);
            }
            LevelKind::Cls => flags |= SdFlags::CLUSTER | SdFlags::SHARE_LLC,
            LevelKind::Mc => flags |= SdFlags::SHARE_LLC,
            LevelKind::Pkg | LevelKind::Node => {}
            LevelKind::Numa(_) => {
                flags -= SdFlags::PREFER_SIBLING;
                flags |= SdFlags::NUMA | SdFlags::SERIALIZE;
                if distance > self.t.platform.reclaim_distance {
                    flags -= SdFlags::EXEC | SdFlags::FORK | SdFlags::WAKE_AFFINE;
                }
                if self.any_overlap(&groups) {
                    flags |= SdFlags::OVERLAP;
                }
                cache_nice_tries = 2;
            }
        }
        if self.t.platform.asym_packing
            && matches!(kind, LevelKind::Cls | LevelKind::Mc | LevelKind::Pkg)
        {
            flags |= SdFlags::ASYM_PACKING;
        }
        let kinds = self.capacities.iter().filter(|mask| mask.intersects(&span)).count();
        if kinds > 1 {
            flags |= SdFlags::ASYM_CPUCAPACITY;
            if kinds == self.capacities.len() {
                flags |= SdFlags::ASYM_CPUCAPACITY_FULL;
            }
        }
        if self.options.relax_domain_level.is_some_and(|n| self.table_position(level) >= n) {
            flags -= SdFlags::NEWIDLE;
        }
        SchedDomain {
            level: kind,
            span,
            weight,
            groups,
            flags,
            distance: if flags.contains(SdFlags::NUMA) { distance } else { LOCAL_DISTANCE },
            imbalance_pct,
            cache_nice_tries,
            busy_factor: 16,
            min_interval: Nanos::from_ms(weight.into()),
            max_interval: Nanos::from_ms(2 * u64::from(weight)),
            imb_numa_nr: imb,
        }
    }

    /// The kernel numbers levels before dropping any, but on x86 it has no SMT row without SMT.
    fn table_position(&self, level: usize) -> u32 {
        let no_smt_row =
            self.t.platform.arch == crate::topology::Arch::X86 && !self.t.has_smt() && level > 0;
        level as u32 - u32::from(no_smt_row)
    }

    fn any_overlap(&self, groups: &[GroupId]) -> bool {
        let mut covered = Cpumask::new(self.t.width);
        groups.iter().any(|id| {
            let span = &self.groups.list[id.0 as usize].span;
            let again = span.intersects(&covered);
            covered.or_assign(span);
            again
        })
    }

    /// Tolerated NUMA imbalance by level (kernel: `adjust_numa_imbalance`): one task per LLC of
    /// the level above the LLC, or an eighth of its CPUs if that is one LLC, times how often the
    /// first NUMA span fits into the level's.
    fn imb_numa_nr(&self, cpu: CpuId, depth: usize) -> Vec<u32> {
        let mut values = vec![0; self.levels.len()];
        let shares_llc =
            |l: &Level| matches!(l.kind, LevelKind::Smt | LevelKind::Cls | LevelKind::Mc);
        let weight = |level: usize| self.levels[level].span(cpu).weight() as u32;
        let above = self.levels.iter().take_while(|l| shares_llc(l)).count();
        if above >= depth {
            return values;
        }
        let base = match weight(above) / weight(above - 1) {
            1 => weight(above) / 8,
            nr_llcs => nr_llcs,
        };
        let first_numa = (above + 1..depth)
            .find(|&l| matches!(self.levels[l].kind, LevelKind::Numa(_)))
            .map_or(weight(above), weight);
        for (level, value) in values.iter_mut().enumerate().take(depth).skip(above) {
            *value = base.max(1) * (weight(level) / first_numa).max(1);
        }
        values
    }
}
