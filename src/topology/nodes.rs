//! NUMA nodes and their distances, from `/sys/devices/system/node`.

use super::files::Files;
use super::{LOCAL_DISTANCE, Node, REMOTE_DISTANCE};
use crate::cpumask::Cpumask;
use crate::units::{CpuId, NodeId};
use std::collections::BTreeMap;

const NODE_DIR: &str = "sys/devices/system/node";
/// Most nodes that are believed (kernel: `MAX_NUMNODES` is at most 1,024).
const MAX_NODES: u32 = 1_024;

pub(super) struct Nodes {
    pub(super) nodes: Vec<Node>,
    /// By CPU id, for online CPUs: position in `nodes`.
    pub(super) node_of: Vec<Option<u32>>,
}

/// A list of node numbers (`0-1,8`); the same format as a CPU list.
fn node_list(files: &mut Files, name: &str) -> Option<Vec<u32>> {
    let mask = files.cpulist(&format!("{NODE_DIR}/{name}"), MAX_NODES as usize)?;
    Some(mask.iter().map(|n| n.0).collect())
}

fn cpus_of(files: &mut Files, id: u32, width: usize) -> Option<Cpumask> {
    let (list, map) =
        (format!("{NODE_DIR}/node{id}/cpulist"), format!("{NODE_DIR}/node{id}/cpumap"));
    files.cpulist(&list, width).or_else(|| {
        let text = files.read(&map)?;
        files.parse_cpumap(&map, &text, width)
    })
}

fn memory_of(files: &Files, id: u32, with_memory: Option<&[u32]>) -> bool {
    if let Some(list) = with_memory {
        return list.contains(&id);
    }
    // "Node 0 MemTotal:  1024 kB"; where even that is missing, memory is the ordinary case.
    let Some(text) = files.read(&format!("{NODE_DIR}/node{id}/meminfo")) else { return true };
    let total = text.lines().find_map(|line| line.split_once("MemTotal:"));
    total.and_then(|(_, v)| v.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(1) > 0
}

fn distances_of(files: &mut Files, id: u32, position: usize, nr: usize) -> Vec<u32> {
    let path = format!("{NODE_DIR}/node{id}/distance");
    let assumed = || {
        let distance = |n| if n == position { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
        (0..nr).map(distance).collect()
    };
    let consequence =
        format!("{LOCAL_DISTANCE} to itself and {REMOTE_DISTANCE} to others is assumed");
    let Some(text) = files.read(&path) else {
        if nr > 1 {
            files.note(&path, "missing", consequence);
        }
        return assumed();
    };
    let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    match row {
        Ok(row) if row.len() == nr => row,
        Ok(row) => {
            files.note(&path, format!("{} distances for {nr} nodes", row.len()), consequence);
            assumed()
        }
        Err(_) => {
            files.note(&path, "not a list of distances", consequence);
            assumed()
        }
    }
}

pub(super) fn read(files: &mut Files, online: &Cpumask) -> Nodes {
    let width = online.width();
    let mut ids = files.numbered(NODE_DIR, "node");
    if let Some(list) = node_list(files, "online") {
        // The list names what runs; a directory without being listed is a node that is off.
        ids.retain(|id| list.contains(id));
    }
    ids.retain(|&id| id < MAX_NODES);
    let with_memory = node_list(files, "has_memory");
    let mut nodes = Vec::with_capacity(ids.len());
    for (position, &id) in ids.iter().enumerate() {
        let cpus = cpus_of(files, id, width).unwrap_or_else(|| {
            let consequence = "the node counts as one without CPUs".to_string();
            files.note(&format!("{NODE_DIR}/node{id}"), "neither cpulist nor cpumap", consequence);
            Cpumask::new(width)
        });
        nodes.push(Node {
            id: NodeId(id),
            cpus: cpus.and(online),
            has_memory: memory_of(files, id, with_memory.as_deref()),
            distances: distances_of(files, id, position, ids.len()),
        });
    }
    if nodes.is_empty() {
        files.note(NODE_DIR, "no nodes", "one node 0 with all CPUs is assumed".to_string());
        nodes.push(Node {
            id: NodeId(0),
            cpus: online.clone(),
            has_memory: true,
            distances: vec![LOCAL_DISTANCE],
        });
    }
    let node_of = settle(files, &mut nodes, online);
    note_odd_distances(files, &nodes);
    Nodes { nodes, node_of }
}

/// Gives each online CPU exactly one node.
fn settle(files: &mut Files, nodes: &mut [Node], online: &Cpumask) -> Vec<Option<u32>> {
    let mut node_of: Vec<Option<u32>> = vec![None; online.width()];
    for (position, node) in nodes.iter_mut().enumerate() {
        for cpu in node.cpus.clone().iter() {
            match node_of[cpu.index()] {
                None => node_of[cpu.index()] = Some(position as u32),
                Some(_) => {
                    node.cpus.clear(cpu);
                    let path = format!("{NODE_DIR}/node{}/cpulist", node.id);
                    let consequence = "the node listed first keeps them".to_string();
                    files.note(&path, "names CPUs of another node", consequence);
                }
            }
        }
    }
    for cpu in online.iter() {
        if node_of[cpu.index()].is_none() {
            node_of[cpu.index()] = Some(0);
            nodes[0].cpus.set(cpu);
            let consequence = format!("such CPUs count to node {}", nodes[0].id);
            files.note(NODE_DIR, "an online CPU is in no node", consequence);
        }
    }
    node_of
}

/// Says which distances among nodes with CPUs will surprise.
fn note_odd_distances(files: &mut Files, nodes: &[Node]) {
    let with_cpus: Vec<usize> = (0..nodes.len()).filter(|&n| !nodes[n].cpus.is_empty()).collect();
    let mut seen = BTreeMap::new();
    let mut uneven = false;
    for &a in &with_cpus {
        for &b in &with_cpus {
            seen.entry(nodes[a].distances[b]).or_insert((a, b));
            uneven |= nodes[a].distances[b] != nodes[b].distances[a];
        }
    }
    let path = format!("{NODE_DIR}/node*/distance");
    if with_cpus.len() > 1 && seen.len() == 1 {
        let consequence = "one level over all of them, and it is not a NUMA level".to_string();
        files.note(&path, "all distances are equal, even to the node itself", consequence);
    }
    if uneven {
        let consequence = "each node's levels follow its own row".to_string();
        files.note(&path, "not the same in both directions", consequence);
    }
}

impl Nodes {
    pub(super) fn of(&self, cpu: CpuId) -> Option<u32> {
        self.node_of.get(cpu.index()).copied().flatten()
    }
}
