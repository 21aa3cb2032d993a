//! A machine given CPU by CPU, for synthetic topologies and tests.

use super::{Node, Partition, Platform, Topology};
use crate::cpumask::Cpumask;
use crate::units::{Capacity, CpuId, NodeId};

/// One CPU of a [`Machine`]. The set numbers mean nothing beyond being equal or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSpec {
    /// The CPU's id.
    pub cpu: CpuId,
    /// Position of its node in [`Machine::nodes`].
    pub node: usize,
    /// Its package.
    pub package: u32,
    /// Its core.
    pub core: u32,
    /// Its cluster.
    pub cluster: u32,
    /// Its last-level cache.
    pub llc: u32,
    /// What it can deliver.
    pub capacity: Capacity,
}

/// One node of a [`Machine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// The node's id.
    pub id: NodeId,
    /// Whether it has memory.
    pub has_memory: bool,
    /// Distance to each node, by position.
    pub distances: Vec<u32>,
}

/// All that a [`Topology`] is made from, with every CPU online.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The CPUs, in any order, each id once.
    pub cpus: Vec<CpuSpec>,
    /// The nodes by rising id, at least one.
    pub nodes: Vec<NodeSpec>,
    /// Size of each last-level cache in KiB.
    pub llc_size_kib: Option<u64>,
    /// Special cases of the processor model.
    pub platform: Platform,
}

impl Machine {
    /// The topology of this machine. Sets are cut at node edges as the sysfs reader does.
    pub fn topology(&self) -> Topology {
        let width = self.cpus.iter().map(|c| c.cpu.index() + 1).max().unwrap_or(0);
        let all = Cpumask::from_cpus(width, self.cpus.iter().map(|c| c.cpu));
        let mut node_of = vec![None; width];
        let mut capacity = vec![Capacity::SCALE; width];
        let mut nodes: Vec<Node> = self
            .nodes
            .iter()
            .map(|n| Node {
                id: n.id,
                cpus: Cpumask::new(width),
                has_memory: n.has_memory,
                distances: n.distances.clone(),
            })
            .collect();
        for c in &self.cpus {
            node_of[c.cpu.index()] = Some(c.node as u32);
            capacity[c.cpu.index()] = c.capacity;
            nodes[c.node].cpus.set(c.cpu);
        }
        let sets = |key: fn(&CpuSpec) -> u32| {
            Partition::by_key(width, self.cpus.iter().map(|c| (c.cpu, key(c))))
        };
        let within_node = |key: fn(&CpuSpec) -> u32| {
            Partition::by_key(width, self.cpus.iter().map(|c| (c.cpu, (c.node, key(c)))))
        };
        let cores = within_node(|c| c.core);
        let clusters = within_node(|c| c.cluster).widened_to_hold(&cores);
        let llcs = within_node(|c| c.llc).widened_to_hold(&clusters);
        Topology {
            width,
            possible: all.clone(),
            present: all.clone(),
            isolated: Cpumask::new(width),
            nohz_full: Cpumask::new(width),
            packages: sets(|c| c.package),
            l2: sets(|c| c.cluster),
            l3: sets(|c| c.llc),
            cores,
            clusters,
            llcs,
            llc_size_kib: self.llc_size_kib,
            nodes,
            node_of,
            capacity,
            platform: self.platform,
            hotplug_seq: None,
            notes: Vec::new(),
            online: all,
        }
    }
}
