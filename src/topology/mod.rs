//! What the machine is made of: CPUs, cores, clusters, caches, packages, nodes, distances.
//!
//! A [`Topology`] comes from sysfs under any root directory ([`Topology::read`]) or from a
//! one-line description ([`synthetic::parse`]); both are plain data, and nothing downstream can
//! tell them apart. Facts cover the CPUs that are online: the kernel tells nothing about others.

mod caches;
mod cpus;
mod files;
mod lists;
mod machine;
mod nodes;
mod partition;
mod platform;
pub mod presets;
pub mod synthetic;
mod sysfs;

pub use machine::{CpuSpec, Machine, NodeSpec};
pub use partition::Partition;
pub use platform::{Arch, Platform};
pub use sysfs::ReadError;

use crate::cpumask::Cpumask;
use crate::units::{Capacity, CpuId, NodeId};
use serde::Serialize;
use std::fmt;

/// Distance of a node to itself (kernel: `LOCAL_DISTANCE`, from ACPI SLIT).
pub const LOCAL_DISTANCE: u32 = 10;
/// Distance assumed between two nodes when none is stated (kernel: `REMOTE_DISTANCE`).
pub const REMOTE_DISTANCE: u32 = 20;
/// Most CPU ids that are believed; a larger id is taken for a corrupted file.
pub const MAX_CPUS: usize = 65_536;

/// One NUMA node that is online.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The kernel's number; numbers may have holes.
    pub id: NodeId,
    /// Its online CPUs; empty for a memory-only node.
    pub cpus: Cpumask,
    /// Whether it has memory of its own.
    pub has_memory: bool,
    /// Distance to each node of [`Topology::nodes`], by position there.
    pub distances: Vec<u32>,
}

/// Something missing or contradictory, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// File or directory, relative to the root; the first one if there were several.
    pub path: String,
    /// What is wrong with it.
    pub what: String,
    /// What is assumed instead.
    pub consequence: String,
    /// How many files had the same fault.
    pub times: u32,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)?;
        if self.times > 1 {
            write!(f, " (and {} more like it)", self.times - 1)?;
        }
        write!(f, "; {}", self.consequence)
    }
}

/// A machine at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// Highest possible CPU id + 1 (kernel: `nr_cpu_ids`), the width of every mask here.
    pub width: usize,
    /// CPUs that could ever exist.
    pub possible: Cpumask,
    /// CPUs that are plugged in.
    pub present: Cpumask,
    /// CPUs that run.
    pub online: Cpumask,
    /// CPUs taken out of balancing at boot (`isolcpus=`) or by isolated cpuset partitions.
    pub isolated: Cpumask,
    /// CPUs without a tick while they run one task (`nohz_full=`).
    pub nohz_full: Cpumask,
    /// Packages (sockets).
    pub packages: Partition,
    /// Cores: CPUs that are hardware threads of one core. Never across nodes.
    pub cores: Partition,
    /// Clusters: cores that share an L2 cache or a similar unit. Never across nodes.
    pub clusters: Partition,
    /// Level-2 caches as stated, for display; CPUs without one are in no part.
    pub l2: Partition,
    /// Level-3 caches as stated, for display, even across nodes.
    pub l3: Partition,
    /// Last-level caches, cut at node edges: what balancing means by LLC.
    pub llcs: Partition,
    /// Size of the largest last-level cache in KiB; `None` if unknown.
    pub llc_size_kib: Option<u64>,
    /// Nodes by rising id; at least one.
    pub nodes: Vec<Node>,
    /// By CPU id: position of the CPU's node in `nodes`.
    #[serde(skip)]
    node_of: Vec<Option<u32>>,
    /// By CPU id; [`Capacity::SCALE`] where unknown.
    capacity: Vec<Capacity>,
    /// What of the processor model the kernel's domain builder depends on.
    pub platform: Platform,
    /// `/sys/kernel/sched_ext/hotplug_seq` at the time of reading: if it has changed since, these
    /// facts are stale. `None` without sched_ext.
    pub hotplug_seq: Option<u64>,
    /// Fallbacks taken.
    pub notes: Vec<Note>,
}

impl Topology {
    /// Position in [`Topology::nodes`] of the node that an online CPU belongs to.
    pub fn node_index(&self, cpu: CpuId) -> Option<usize> {
        self.node_of.get(cpu.index()).copied().flatten().map(|n| n as usize)
    }

    /// The node that an online CPU belongs to.
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        self.node_index(cpu).map(|n| self.nodes[n].id)
    }

    /// What the CPU can deliver undisturbed; the full scale where unknown.
    pub fn capacity(&self, cpu: CpuId) -> Capacity {
        self.capacity.get(cpu.index()).copied().unwrap_or(Capacity::SCALE)
    }

    /// The CPUs that balancing serves: online and not isolated (kernel: `cpu_active_mask` and
    /// `HK_TYPE_DOMAIN`).
    pub fn active(&self) -> Cpumask {
        self.online.and_not(&self.isolated)
    }

    /// Distance between two nodes, by position.
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        self.nodes[from].distances[to]
    }

    /// Whether cores have more than one hardware thread anywhere.
    pub fn has_smt(&self) -> bool {
        self.cores.largest() > 1
    }

    /// The same machine with only these of its online CPUs running; what is known of the others
    /// is forgotten, as the kernel does when they go offline.
    pub fn with_online(&self, online: &Cpumask) -> Self {
        let online = self.online.and(online);
        let mut t = self.clone();
        for partition in
            [&mut t.packages, &mut t.cores, &mut t.clusters, &mut t.l2, &mut t.l3, &mut t.llcs]
        {
            *partition = partition.restricted_to(&online);
        }
        for node in &mut t.nodes {
            node.cpus = node.cpus.and(&online);
        }
        for cpu in 0..t.width {
            if !online.test(CpuId::from(cpu)) {
                t.node_of[cpu] = None;
                t.capacity[cpu] = Capacity::SCALE;
            }
        }
        t.online = online;
        t
    }

    /// The same machine with these CPUs isolated, in addition to those that are.
    pub fn with_isolated(&self, isolated: &Cpumask) -> Self {
        let mut t = self.clone();
        t.isolated.or_assign(isolated);
        t
    }
}
