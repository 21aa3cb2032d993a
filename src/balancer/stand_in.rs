//! Pull plans ordered by distance: near before far, and within a level the longest queues first.

use super::host::{Host, PULL_PLAN_LEN, Snapshot};
use crate::cpumask::Cpumask;
use crate::domains::DomainTree;
use crate::units::CpuId;

/// Keeps the plans of one shard.
pub struct StandIn {
    shard: Vec<CpuId>,
    cpus: Cpumask,
    /// The other CPUs of each CPU of the shard, nearest level first.
    neighbours: Vec<Vec<Vec<CpuId>>>,
    snapshot: Snapshot,
    sources: Vec<CpuId>,
}

impl StandIn {
    /// For the CPUs of `shard`.
    pub fn new(tree: &DomainTree, shard: &Cpumask) -> Self {
        let width = tree.chains.len();
        let shard: Vec<CpuId> = shard.iter().collect();
        let cpus = (0..width).map(CpuId::from).filter(|&c| !tree.chain(c).is_empty());
        let neighbours = shard
            .iter()
            .map(|&cpu| {
                let mut seen = Cpumask::from_cpus(width, [cpu]);
                let levels = tree.chain(cpu).iter().map(|link| {
                    let new = tree.domain(link.domain).span.and_not(&seen);
                    seen.or_assign(&new);
                    // Starting beside the CPU itself spreads the pulls of idle CPUs.
                    new.iter_wrap(cpu).collect()
                });
                levels.collect()
            })
            .collect();
        Self {
            shard,
            cpus: Cpumask::from_cpus(width, cpus),
            neighbours,
            snapshot: Snapshot::new(width),
            sources: Vec::with_capacity(width),
        }
    }

    /// New plans for all CPUs of the shard.
    pub fn round(&mut self, host: &mut impl Host) {
        host.observe(&self.cpus, &mut self.snapshot);
        for (&cpu, levels) in self.shard.iter().zip(&self.neighbours) {
            self.sources.clear();
            for level in levels {
                let start = self.sources.len();
                self.sources.extend_from_slice(level);
                let snapshot = &self.snapshot;
                self.sources[start..]
                    .sort_unstable_by_key(|&c| std::cmp::Reverse(snapshot.cpu(c).nr_running));
            }
            host.set_pull_plan(cpu, &self.sources[..self.sources.len().min(PULL_PLAN_LEN)]);
        }
    }
}
