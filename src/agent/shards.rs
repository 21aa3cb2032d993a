//! Which worker balances which CPUs.

use crate::cpumask::Cpumask;
use crate::domains::DomainTree;
use crate::topology::Topology;
use crate::units::CpuId;
use clap::ValueEnum;
use serde::Serialize;

/// How the machine is divided among workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workers {
    /// One for each last-level cache.
    #[default]
    Llc,
    /// One for each node.
    Node,
    /// One for all.
    One,
    /// One for each CPU, as the kernel balances.
    Cpu,
}

/// The CPUs of each worker: all CPUs that are in a domain, each exactly once. A machine without
/// any domain (a single CPU) has one worker for its online CPUs.
pub(crate) fn shards(topology: &Topology, tree: &DomainTree, workers: Workers) -> Vec<Cpumask> {
    let width = topology.width;
    let balanced = |cpu: &CpuId| !tree.chain(*cpu).is_empty();
    let of =
        |cpus: &mut dyn Iterator<Item = CpuId>| Cpumask::from_cpus(width, cpus.filter(balanced));
    let parts: Vec<Cpumask> = match workers {
        Workers::Llc => topology.llcs.iter().map(|cpus| of(&mut cpus.iter().copied())).collect(),
        Workers::Node => topology.nodes.iter().map(|n| of(&mut n.cpus.iter())).collect(),
        Workers::One => vec![of(&mut topology.online.iter())],
        Workers::Cpu => topology.online.iter().map(|c| of(&mut std::iter::once(c))).collect(),
    };
    let shards: Vec<Cpumask> = parts.into_iter().filter(|s| !s.is_empty()).collect();
    if shards.is_empty() { vec![topology.online.clone()] } else { shards }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domains;
    use crate::topology::synthetic;

    #[test]
    fn every_balanced_cpu_has_exactly_one_worker() {
        let topology = synthetic::parse("genoa-nps4").unwrap();
        let tree = domains::build(&topology).tree;
        for workers in Workers::value_variants() {
            let shards = shards(&topology, &tree, *workers);
            let mut seen = Cpumask::new(topology.width);
            for shard in &shards {
                assert!(!seen.intersects(shard));
                seen.or_assign(shard);
            }
            assert_eq!(seen, topology.online, "{workers:?}");
        }
    }

    #[test]
    fn isolated_cpus_have_none() {
        let topology = synthetic::parse("1x1x4").unwrap();
        let isolated = Cpumask::parse_list("2-3", topology.width).unwrap();
        let topology = topology.with_isolated(&isolated);
        let tree = domains::build(&topology).tree;
        for workers in Workers::value_variants() {
            for shard in shards(&topology, &tree, *workers) {
                assert!(!shard.intersects(&isolated));
            }
        }
    }
}
