//! Sched domains: for each CPU, the chain of ever wider spans over which load is balanced.
//!
//! A [`DomainTree`] is plain data made from a [`crate::topology::Topology`] by the builder; it
//! never changes. Hotplug builds a new one. What balancing learns (last balance, interval,
//! failures, marks) lives beside it, in the policy's state, keyed by CPU and level or by
//! [`GroupId`].
//!
//! Domains are shared by all CPUs that see the same one: a tree for 8,192 CPUs holds each span
//! once. What differs between CPUs is which group is their own: [`Link::local`].

pub mod against_kernel;
mod build;
mod levels;
mod overlap;
mod sanity;

pub use build::{BuildOptions, Built, build, build_with};
pub use sanity::{Violation, sanity};

use crate::cpumask::Cpumask;
use crate::units::{CpuId, Nanos};
use bitflags::bitflags;
use serde::Serialize;
use std::fmt;

/// What the CPUs of a domain share; narrow to wide. The names are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LevelKind {
    /// Hardware threads of one core.
    Smt,
    /// Cores that share an L2 cache (cluster).
    Cls,
    /// Cores that share the last-level cache.
    Mc,
    /// One package.
    Pkg,
    /// One NUMA node that is smaller than its package.
    Node,
    /// CPUs within the n-th distinct distance, from 1.
    Numa(u16),
}

impl LevelKind {
    /// The name in `/proc/schedstat`: all NUMA levels are plain `NUMA` there.
    pub const fn kernel_name(self) -> &'static str {
        match self {
            Self::Smt => "SMT",
            Self::Cls => "CLS",
            Self::Mc => "MC",
            Self::Pkg => "PKG",
            Self::Node => "NODE",
            Self::Numa(_) => "NUMA",
        }
    }
}

impl fmt::Display for LevelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.kernel_name())
    }
}

bitflags! {
    /// What balancing may do at a level (kernel: `SD_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SdFlags: u32 {
        /// A CPU about to idle may pull from this level.
        const NEWIDLE = 1 << 0;
        /// Placement at fork looks this far.
        const FORK = 1 << 1;
        /// Placement at exec looks this far.
        const EXEC = 1 << 2;
        /// A wake-up may move a task towards its waker this far.
        const WAKE_AFFINE = 1 << 3;
        /// Groups of the level are siblings that should carry equal numbers of tasks.
        const PREFER_SIBLING = 1 << 4;
        /// The CPUs share one core's capacity.
        const SHARE_CPUCAPACITY = 1 << 5;
        /// The CPUs share a cluster.
        const CLUSTER = 1 << 6;
        /// The CPUs share the last-level cache.
        const SHARE_LLC = 1 << 7;
        /// Lower-numbered CPUs of higher priority are preferred.
        const ASYM_PACKING = 1 << 8;
        /// CPUs of different capacity lie in the span.
        const ASYM_CPUCAPACITY = 1 << 9;
        /// All different capacities of the machine lie in the span.
        const ASYM_CPUCAPACITY_FULL = 1 << 10;
        /// Only the holder of the serialize flag may balance here.
        const SERIALIZE = 1 << 11;
        /// The level crosses NUMA nodes.
        const NUMA = 1 << 12;
        /// Groups may overlap: each CPU has its own view of them.
        const OVERLAP = 1 << 13;
    }
}

impl Serialize for SdFlags {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter_names().map(|(name, _)| name))
    }
}

/// Index into [`DomainTree::domains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct DomainId(pub u32);

/// Index into [`DomainTree::groups`]. Groups with the same span and balance mask are one group
/// and share one state; groups that differ in either never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

/// A part of a domain's span, the unit that balancing compares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedGroup {
    /// The CPUs counted in the group's load.
    pub span: Cpumask,
    /// The CPUs among which the group's balance CPU is chosen (kernel:
    /// `group_balance_mask`); smaller than the span only where groups overlap.
    pub balance_mask: Cpumask,
    /// CPUs in the span.
    pub weight: u32,
    /// Cores in the span (kernel: `sched_group::cores`).
    pub cores: u32,
}

impl SchedGroup {
    /// The CPU that balances for the group when none is idle (kernel: `group_balance_cpu`).
    pub fn balance_cpu(&self) -> Option<CpuId> {
        self.balance_mask.first()
    }
}

/// One sched domain, shared by all CPUs that see it alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SchedDomain {
    /// What kind of level.
    pub level: LevelKind,
    /// The CPUs between which load is balanced here.
    pub span: Cpumask,
    /// CPUs in the span.
    pub weight: u32,
    /// The groups, a ring in CPU order; each CPU starts at its own ([`Link::local`]).
    pub groups: Vec<GroupId>,
    /// What balancing may do here.
    pub flags: SdFlags,
    /// Farthest distance inside the span for NUMA levels (as ACPI SLIT: 10 = local), else 10.
    pub distance: u32,
    /// How much busier, in per cent, a group must be before load moves; 117 = 17 % more.
    pub imbalance_pct: u32,
    /// Failed attempts before cache-hot tasks are moved too.
    pub cache_nice_tries: u32,
    /// Stretch of the interval when the balancing CPU is busy.
    pub busy_factor: u32,
    /// Shortest time between two balancing attempts.
    pub min_interval: Nanos,
    /// Longest time between two balancing attempts.
    pub max_interval: Nanos,
    /// Tasks that may run in one NUMA group before imbalance matters (kernel:
    /// `sd->imb_numa_nr`); 0 below the NUMA levels' parents, as in the kernel.
    pub imb_numa_nr: u32,
}

/// One step of a CPU's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The domain.
    pub domain: DomainId,
    /// Position of the CPU's own group in [`SchedDomain::groups`].
    pub local: u32,
}

/// Why some CPUs have no domain at a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DroppedWhy {
    /// The span holds one CPU: there is nothing to balance between.
    OneCpu,
    /// The span equals that of this narrower level: there would be one group.
    SameSpanAs(LevelKind),
    /// This narrower level already holds all CPUs.
    AllSpannedBy(LevelKind),
    /// Packages hold several nodes, so that the NUMA levels describe them (kernel:
    /// `build_sched_topology` on x86).
    NodesInsidePackage,
    /// Nodes at the shortest distance overlap without being equal; the kernel refuses to build
    /// any domain then (`topology_span_sane`).
    Overlapping,
    /// A distance is below 10 or above 255; the kernel builds no NUMA level then
    /// (`sched_record_numa_dist`).
    InvalidDistances,
}

impl fmt::Display for DroppedWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneCpu => f.write_str("one CPU"),
            Self::SameSpanAs(level) => write!(f, "one group, the same CPUs as {level}"),
            Self::AllSpannedBy(level) => write!(f, "one group, {level} already spans all CPUs"),
            Self::NodesInsidePackage => f.write_str("packages hold several nodes"),
            Self::Overlapping => f.write_str("nodes at the shortest distance overlap"),
            Self::InvalidDistances => f.write_str("a node distance is outside 10..=255"),
        }
    }
}

/// A level that some CPUs do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DroppedLevel {
    /// Which level.
    pub level: LevelKind,
    /// How many CPUs lack it for this reason.
    pub cpus: u32,
    /// The reason.
    pub why: DroppedWhy,
}

/// All domains and groups of a machine and each CPU's chain through them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DomainTree {
    /// Every distinct domain.
    pub domains: Vec<SchedDomain>,
    /// Every distinct group.
    pub groups: Vec<SchedGroup>,
    /// By CPU id: the domains it belongs to, narrow to wide. Empty for CPUs that are offline,
    /// absent or isolated.
    pub chains: Vec<Vec<Link>>,
}

impl DomainTree {
    /// The domain behind an id of this tree.
    pub fn domain(&self, id: DomainId) -> &SchedDomain {
        &self.domains[id.0 as usize]
    }

    /// The group behind an id of this tree.
    pub fn group(&self, id: GroupId) -> &SchedGroup {
        &self.groups[id.0 as usize]
    }

    /// A CPU's chain, narrow to wide; empty for a CPU outside all domains.
    pub fn chain(&self, cpu: CpuId) -> &[Link] {
        self.chains.get(cpu.index()).map_or(&[], Vec::as_slice)
    }
}
