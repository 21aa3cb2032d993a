//! The simplest balancing that uses the whole machine: pull plans ordered by distance, and a
//! task pulled to each idle CPU from the busiest queue near it.

use super::host::{Host, MoveOutcome, NR_MIGRATE, PULL_PLAN_LEN, Snapshot, TaskView};
use crate::cpumask::Cpumask;
use crate::domains::DomainTree;
use crate::units::CpuId;

/// The other CPUs of one CPU, nearest level first.
struct Neighbours(Vec<Vec<CpuId>>);

/// Balancing state for one machine.
pub struct StandIn {
    cpus: Cpumask,
    neighbours: Vec<Neighbours>,
    snapshot: Snapshot,
    sources: Vec<CpuId>,
    listed: Vec<TaskView>,
    outcomes: Vec<MoveOutcome>,
}

/// What a round found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundSummary {
    /// CPUs with something to run.
    pub busy: usize,
    /// Tasks waiting behind a running one.
    pub waiting: u32,
    /// Tasks moved.
    pub moved: u32,
}

impl StandIn {
    /// For the CPUs that have a domain chain in `tree`.
    pub fn new(tree: &DomainTree) -> Self {
        let width = tree.chains.len();
        let cpus = (0..width).map(CpuId::from).filter(|&c| !tree.chain(c).is_empty());
        let cpus = Cpumask::from_cpus(width, cpus);
        let neighbours = (0..width)
            .map(CpuId::from)
            .map(|cpu| {
                let mut seen = Cpumask::from_cpus(width, [cpu]);
                let levels = tree.chain(cpu).iter().map(|link| {
                    let new = tree.domain(link.domain).span.and_not(&seen);
                    seen.or_assign(&new);
                    // Starting beside the CPU itself spreads the pulls of idle CPUs.
                    new.iter_wrap(cpu).collect()
                });
                Neighbours(levels.collect())
            })
            .collect();
        Self {
            cpus,
            neighbours,
            snapshot: Snapshot::new(width),
            sources: Vec::with_capacity(width),
            listed: Vec::with_capacity(NR_MIGRATE),
            outcomes: Vec::with_capacity(NR_MIGRATE),
        }
    }

    /// One round: new plans for all CPUs, one pull for each idle one.
    pub fn round(&mut self, host: &mut impl Host) -> RoundSummary {
        host.observe(&self.cpus, &mut self.snapshot);
        let mut summary = RoundSummary::default();
        for i in 0..self.neighbours.len() {
            let cpu = CpuId::from(i);
            if !self.cpus.test(cpu) {
                continue;
            }
            let view = *self.snapshot.cpu(cpu);
            summary.busy += usize::from(view.nr_running > 0);
            summary.waiting += view.nr_running.saturating_sub(1);
            self.order_sources(i);
            host.set_pull_plan(cpu, &self.sources[..self.sources.len().min(PULL_PLAN_LEN)]);
            if view.idle && view.nr_running == 0 {
                summary.moved += self.pull(host, cpu);
            }
        }
        summary
    }

    /// Near before far; within a level, long queues first.
    fn order_sources(&mut self, cpu: usize) {
        self.sources.clear();
        for level in &self.neighbours[cpu].0 {
            let start = self.sources.len();
            self.sources.extend_from_slice(level);
            let snapshot = &self.snapshot;
            self.sources[start..].sort_by_key(|&c| std::cmp::Reverse(snapshot.cpu(c).nr_running));
        }
    }

    fn pull(&mut self, host: &mut impl Host, dst: CpuId) -> u32 {
        for &src in &self.sources {
            if self.snapshot.cpu(src).nr_running < 2 {
                continue;
            }
            host.list_queue(src, dst, &mut self.listed);
            let Some(task) = self.listed.iter().find(|t| t.allowed_on_dst && !t.migration_disabled)
            else {
                continue;
            };
            host.move_tasks(src, dst, &[task.key], &mut self.outcomes);
            if self.outcomes.first() == Some(&MoveOutcome::Applied) {
                self.snapshot.cpus[src.index()].nr_running -= 1;
                return 1;
            }
        }
        0
    }
}
