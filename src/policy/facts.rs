//! What the policy needs to know of a domain tree in another shape than the tree has it. Made once
//! per tree, so that a pass looks nothing up.

use crate::cpumask::Cpumask;
use crate::domains::{DomainId, DomainTree, GroupId, LevelKind, Link, SchedGroup, SdFlags};
use crate::units::CpuId;
use std::ops::Range;

/// Facts derived from a [`DomainTree`].
#[derive(Clone, Debug)]
pub struct Facts {
    /// Siblings of CPU `c` (itself included): `siblings[sibling_start[c]..sibling_start[c + 1]]`.
    sibling_start: Vec<u32>,
    siblings: Vec<CpuId>,
    smt_active: bool,
    cluster_active: bool,
    group_flags: Vec<SdFlags>,
    group_words: Vec<Range<usize>>,
    balance_words: Vec<Range<usize>>,
    balance_cpu: Vec<Option<CpuId>>,
    domain_slot: Vec<u8>,
    levels: Vec<LevelKind>,
    /// By domain: how many groups of NUMA domains come before its own; `None` below NUMA.
    numa_start: Vec<Option<u32>>,
    numa_groups: usize,
    node_of: Vec<u16>,
    /// By node: its CPUs.
    node_spans: Vec<Cpumask>,
    /// By node: its NUMA domains, narrow to wide.
    numa_views: Vec<Vec<NumaView>>,
    nr_cpus: u32,
    width: usize,
}

/// A NUMA domain as a node sees it, by node numbers ([`Facts::node_of`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaView {
    /// The domain.
    pub domain: DomainId,
    /// The node's own group.
    pub local: Vec<u16>,
    /// The other groups.
    pub others: Vec<Vec<u16>>,
}

/// The words of a mask in which it has CPUs, so that walking a small group of a wide machine does
/// not read the whole width.
fn words_in_use(mask: &Cpumask) -> Range<usize> {
    let used = |w: &u64| *w != 0;
    let start = mask.words().iter().position(used).unwrap_or(0);
    let end = mask.words().iter().rposition(used).map_or(start, |i| i + 1);
    start..end
}

/// Numbers the widest domains below the NUMA levels, in order of their first CPU; a CPU
/// without one is a node of its own.
fn nodes(tree: &DomainTree) -> Vec<u16> {
    let part = |cpu: CpuId| -> Option<CpuId> {
        let chain = tree.chain(cpu);
        let is_numa = |d: DomainId| tree.domain(d).flags.contains(SdFlags::NUMA);
        match chain.iter().rfind(|link| !is_numa(link.domain)) {
            Some(link) => tree.domain(link.domain).span.first(),
            // Absent CPUs make no nodes.
            None => (!chain.is_empty()).then_some(cpu),
        }
    };
    let mut firsts: Vec<CpuId> = Vec::new();
    (0..tree.chains.len())
        .map(|cpu| {
            let first = part(CpuId::from(cpu)).unwrap_or_default();
            let known = firsts.iter().position(|&f| f == first);
            known.unwrap_or_else(|| {
                firsts.push(first);
                firsts.len() - 1
            })
        })
        .map(|node| node.min(usize::from(u16::MAX)) as u16)
        .collect()
}

/// By node: its NUMA domains. Groups of NUMA domains consist of whole nodes.
fn numa_views(tree: &DomainTree, node_of: &[u16]) -> Vec<Vec<NumaView>> {
    let nr_nodes = node_of.iter().max().map_or(0, |&n| usize::from(n) + 1);
    let mut views = vec![Vec::new(); nr_nodes];
    let mut seen = vec![false; nr_nodes];
    let nodes_in = |group: GroupId| {
        let mut nodes: Vec<u16> =
            tree.group(group).span.iter().map(|cpu| node_of[cpu.index()]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    };
    for (cpu, chain) in tree.chains.iter().enumerate().filter(|(_, chain)| !chain.is_empty()) {
        let node = usize::from(node_of[cpu]);
        if std::mem::replace(&mut seen[node], true) {
            continue;
        }
        let numa =
            chain.iter().filter(|link| tree.domain(link.domain).flags.contains(SdFlags::NUMA));
        views[node] = numa
            .map(|link| {
                let mut groups: Vec<Vec<u16>> =
                    tree.domain(link.domain).groups.iter().map(|&g| nodes_in(g)).collect();
                let local = groups.remove(link.local as usize);
                NumaView { domain: link.domain, local, others: groups }
            })
            .collect();
    }
    views
}

impl Facts {
    /// Derives everything from the tree.
    pub fn new(tree: &DomainTree) -> Self {
        let width = tree.chains.len();
        let mut siblings = Vec::new();
        let mut sibling_start = Vec::with_capacity(width + 1);
        let mut smt_active = false;
        for cpu in (0..width).map(CpuId::from) {
            sibling_start.push(siblings.len() as u32);
            let core = tree
                .chain(cpu)
                .iter()
                .map(|link| tree.domain(link.domain))
                .rfind(|d| d.flags.contains(SdFlags::SHARE_CPUCAPACITY));
            match core {
                Some(core) => {
                    smt_active = true;
                    siblings.extend(core.span.iter());
                }
                None => siblings.push(cpu),
            }
        }
        sibling_start.push(siblings.len() as u32);

        // The kernel keeps the child domain's flags in each group (`sched_group::flags`); the
        // child is the domain of the group's CPUs that spans exactly the group.
        let group_flags = tree
            .groups
            .iter()
            .map(|group| {
                let first = group.balance_mask.first().or(group.span.first()).unwrap_or_default();
                tree.chain(first)
                    .iter()
                    .map(|link| tree.domain(link.domain))
                    .rfind(|d| d.span == group.span)
                    .map_or(SdFlags::empty(), |d| d.flags)
            })
            .collect();

        let mut levels: Vec<LevelKind> = tree.domains.iter().map(|d| d.level).collect();
        levels.sort_unstable();
        levels.dedup();
        let mut numa_groups = 0;
        let numa_start = tree
            .domains
            .iter()
            .map(|d| {
                let before = numa_groups;
                let is_numa = d.flags.contains(SdFlags::NUMA);
                numa_groups += if is_numa { d.groups.len() } else { 0 };
                is_numa.then_some(before as u32)
            })
            .collect();
        let slot = |d: &crate::domains::SchedDomain| {
            levels.binary_search(&d.level).unwrap_or_default().min(usize::from(u8::MAX)) as u8
        };
        let node_of = nodes(tree);
        let numa_views = numa_views(tree, &node_of);
        let mut node_spans = vec![Cpumask::new(width); numa_views.len()];
        for cpu in (0..width).filter(|&cpu| !tree.chains[cpu].is_empty()) {
            node_spans[usize::from(node_of[cpu])].set(cpu.into());
        }
        Self {
            numa_start,
            numa_groups,
            node_spans,
            numa_views,
            node_of,
            domain_slot: tree.domains.iter().map(slot).collect(),
            group_words: tree.groups.iter().map(|g| words_in_use(&g.span)).collect(),
            balance_cpu: tree.groups.iter().map(SchedGroup::balance_cpu).collect(),
            balance_words: tree.groups.iter().map(|g| words_in_use(&g.balance_mask)).collect(),
            nr_cpus: tree.chains.iter().filter(|c| !c.is_empty()).count().max(1) as u32,
            sibling_start,
            siblings,
            smt_active,
            cluster_active: levels.contains(&LevelKind::Cls),
            group_flags,
            levels,
            width,
        }
    }

    /// By CPU id: a number for each node, or rather for each part of the machine that lies below
    /// all NUMA levels.
    pub fn node_of(&self) -> &[u16] {
        &self.node_of
    }

    /// The node's CPUs that are balanced.
    pub fn node_span(&self, node: u16) -> &Cpumask {
        &self.node_spans[usize::from(node)]
    }

    /// The node's NUMA domains, narrow to wide; none where the machine has one node.
    pub fn numa_views(&self, node: u16) -> &[NumaView] {
        self.numa_views.get(usize::from(node)).map_or(&[], Vec::as_slice)
    }

    /// How many nodes [`Facts::node_of`] tells apart.
    pub fn nr_nodes(&self) -> usize {
        self.numa_views.len()
    }

    /// CPU ids there are: highest + 1.
    pub fn width(&self) -> usize {
        self.width
    }

    /// CPUs that take part in balancing (kernel: `num_online_cpus`).
    pub fn nr_cpus(&self) -> u32 {
        self.nr_cpus
    }

    /// Whether any core has more than one thread (kernel: `sched_smt_active`).
    pub fn smt_active(&self) -> bool {
        self.smt_active
    }

    /// Groups of all NUMA domains together.
    pub fn numa_groups(&self) -> usize {
        self.numa_groups
    }

    /// Number of a group of a NUMA domain among [`Facts::numa_groups`]; `None` below NUMA.
    pub fn numa_group(&self, link: Link) -> Option<usize> {
        self.numa_start[link.domain.0 as usize].map(|start| (start + link.local) as usize)
    }

    /// Whether any cores share a cluster (kernel: `sched_cluster_active`).
    pub fn cluster_active(&self) -> bool {
        self.cluster_active
    }

    /// The kinds of levels of this tree, narrow to wide; counters are kept by position here.
    pub fn levels(&self) -> &[LevelKind] {
        &self.levels
    }

    /// Position of the domain's level in [`Facts::levels`].
    pub fn slot(&self, domain: DomainId) -> usize {
        usize::from(self.domain_slot[domain.0 as usize])
    }

    /// Flags of the domain that spans exactly the group (kernel: `sched_group::flags`).
    pub fn group_flags(&self, group: GroupId) -> SdFlags {
        self.group_flags[group.0 as usize]
    }

    /// Words of the group's span that hold CPUs.
    pub fn group_words(&self, group: GroupId) -> Range<usize> {
        self.group_words[group.0 as usize].clone()
    }

    /// Words of the group's balance mask that hold CPUs.
    pub fn balance_words(&self, group: GroupId) -> Range<usize> {
        self.balance_words[group.0 as usize].clone()
    }

    /// The CPU that balances for the group when none idles (kernel: `group_balance_cpu`).
    pub fn balance_cpu(&self, group: GroupId) -> Option<CpuId> {
        self.balance_cpu[group.0 as usize]
    }

    /// The CPU's hardware threads, itself included (kernel: `cpu_smt_mask`).
    pub fn siblings(&self, cpu: CpuId) -> &[CpuId] {
        let i = cpu.index();
        &self.siblings[self.sibling_start[i] as usize..self.sibling_start[i + 1] as usize]
    }

    /// Whether all *other* threads of the CPU's core idle (kernel: `is_core_idle`).
    pub fn is_core_idle(&self, cpu: CpuId, idle_cpus: &Cpumask) -> bool {
        self.siblings(cpu).iter().all(|&s| s == cpu || idle_cpus.test(s))
    }
}

/// The CPUs of `words` of a mask, each word combined with `with` first.
pub(crate) fn cpus_in(
    mask: &Cpumask,
    words: Range<usize>,
    with: impl Fn(usize, u64) -> u64,
) -> impl Iterator<Item = CpuId> {
    let all = mask.words();
    words.flat_map(move |i| {
        let mut word = with(i, all[i]);
        std::iter::from_fn(move || {
            if word == 0 {
                return None;
            }
            let bit = word.trailing_zeros();
            word &= word - 1;
            Some(CpuId(i as u32 * 64 + bit))
        })
    })
}
