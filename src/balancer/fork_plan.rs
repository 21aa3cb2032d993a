//! Where new tasks start: for each node a plan of when its forks go to other nodes, so that the host
//! need not ask at a fork.

use super::{Balancer, Config, Cx, Inner};
use crate::balancer::host::Host;
use crate::cpumask::Cpumask;
use crate::domains::DomainTree;
use crate::policy::facts::Facts;
use crate::policy::fork::dst_node;
use crate::policy::group_stats::GroupStats;
use crate::policy::tunables::ForkPlacement;
use crate::units::{CpuId, Nanos};

/// Forks that a plan sends away.
pub const FORK_PLAN_LEN: usize = 32;

/// How long a plan is good for at least, while there are rounds.
const HOLD: Nanos = Nanos::from_ms(20);

/// How long it is good for while nobody forks: the first fork after that long may find a plan as
/// old, the next ones a new one.
const HOLD_UNUSED: Nanos = Nanos::from_secs(1);

/// One fork that leaves its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkStep {
    /// From how many runnable tasks of the node on.
    pub limit: u32,
    /// The CPU at which it goes.
    pub near: CpuId,
}

/// Which forks leave a node: the first to find the first step's limit reached goes where that step
/// says, and so on; all others stay. A plan is about the node's own population, which the host counts
/// at the fork, so that children that have ended are not held against those that come; what runs on
/// other nodes is as it was when the plan was made, with the forks that it sent there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkPlan {
    steps: [ForkStep; FORK_PLAN_LEN],
    len: usize,
}

impl ForkPlan {
    /// The steps in order; limits never fall.
    pub fn steps(&self) -> &[ForkStep] {
        &self.steps[..self.len]
    }

    fn push(&mut self, step: ForkStep) {
        self.steps[self.len] = step;
        self.len += 1;
    }
}

/// What a balancer keeps for its nodes' plans.
#[derive(Debug)]
pub(super) struct Forks {
    /// The shard's nodes, as far as there are others. Workers with CPUs of one node make its plan in
    /// turn, whoever comes first.
    homes: Vec<u16>,
    /// All CPUs that are balanced.
    all: Cpumask,
    // Scratch space by node, sized once.
    seen: Vec<GroupStats>,
    with_forks: Vec<GroupStats>,
}

impl Forks {
    pub(super) fn new(tree: &DomainTree, facts: &Facts, shard: &Cpumask) -> Self {
        let width = facts.width();
        let balanced = |cpu: &CpuId| !tree.chain(*cpu).is_empty();
        let all = Cpumask::from_cpus(width, (0..width).map(CpuId::from).filter(balanced));
        let has_part =
            |node| all.iter().any(|c| shard.test(c) && facts.node_of()[c.index()] == node);
        let mine = |node: &u16| !facts.numa_views(*node).is_empty() && has_part(*node);
        let homes: Vec<u16> = (0..facts.nr_nodes() as u16).filter(mine).collect();
        let nr = if homes.is_empty() { 0 } else { facts.nr_nodes() };
        let sums = || vec![GroupStats::default(); nr];
        Self { homes, all, seen: sums(), with_forks: sums() }
    }
}

impl Balancer {
    /// Tells the host where tasks start that are forked on the shard's nodes, if that may have changed.
    /// Meant to be called with every round.
    pub fn publish_fork_plans<H: Host>(&mut self, host: &mut H, config: &Config) {
        let Self { tree, facts, shared, inner, .. } = self;
        let cx = Cx { tree, facts, shared, config };
        let now = inner.view.now();
        let spreads = config.tunables.fork_placement == ForkPlacement::Numa;
        let mut added_up = false;
        for i in 0..inner.forks.homes.len() {
            let home = inner.forks.homes[i];
            let hold = if host.has_forked(home) { HOLD } else { HOLD_UNUSED };
            if !shared.fork_plan(home).claim(now, hold, config.epoch) {
                continue;
            }
            if spreads && !added_up {
                inner.view.see(host, &inner.forks.all);
                inner.add_up_nodes(cx);
                added_up = true;
            }
            let plan = if spreads { inner.fork_plan(cx, home) } else { ForkPlan::default() };
            host.set_fork_plan(home, &plan);
        }
    }
}

/// The first of `from` to `last` for which `holds`, if it holds for all that follow that one; `last` if it
/// holds for none.
fn first_where(from: u32, last: u32, mut holds: impl FnMut(u32) -> bool) -> u32 {
    // Most often it is near.
    let (mut low, mut step) = (from, 1);
    let mut high = loop {
        let probe = (low + step - 1).min(last);
        if probe == last || holds(probe) {
            break probe;
        }
        (low, step) = (probe + 1, 2 * step);
    };
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}

impl Inner {
    fn add_up_nodes(&mut self, cx: Cx) {
        let node_of = cx.facts.node_of();
        self.forks.seen.fill(GroupStats::default());
        for cpu in self.forks.all.iter() {
            let idle = self.view.idle_cpus.test(cpu);
            let cpu_alone = GroupStats::of_cpu(self.view.snapshot.cpu(cpu), idle);
            self.forks.seen[usize::from(node_of[cpu.index()])].add(&cpu_alone);
        }
    }

    /// The plan of one node: how many tasks it may have before the rule sends the next one away, then
    /// how many before it sends another, and so on until it is full.
    fn fork_plan(&mut self, cx: Cx, home: u16) -> ForkPlan {
        let rule = cx.config.tunables.numa_imbalance;
        let Forks { all, seen, with_forks, .. } = &mut self.forks;
        let node_of = cx.facts.node_of();
        let cpus = &mut self.view.snapshot.cpus;
        with_forks.copy_from_slice(seen);
        let here = seen[usize::from(home)];
        let mut plan = ForkPlan::default();
        let mut population = 0;
        let last = here.weight.max(here.nr_running) + FORK_PLAN_LEN as u32;
        while plan.steps().len() < FORK_PLAN_LEN {
            let mut to_with = |population| {
                with_forks[usize::from(home)] = here.with_tasks(population);
                dst_node(rule, cx.tree, cx.facts, with_forks, home)
            };
            population = first_where(population, last, |population| to_with(population) != home);
            let to = to_with(population);
            if to == home {
                break;
            }
            let there = all.iter().filter(|cpu| node_of[cpu.index()] == to);
            let Some(near) = there.min_by_key(|cpu| cpus[cpu.index()].nr_running) else { break };
            with_forks[usize::from(to)].add_new_task();
            // For the next step; taken back below.
            cpus[near.index()].nr_running += 1;
            plan.push(ForkStep { limit: population, near });
        }
        for step in plan.steps() {
            cpus[step.near.index()].nr_running -= 1;
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_where_it_holds_is_found_by_few_questions() {
        for (from, last) in [(0, 0), (0, 9), (3, 70), (7, 5000)] {
            for first in from..=last + 1 {
                let mut asked = 0;
                let found = first_where(from, last, |n| {
                    asked += 1;
                    n >= first
                });
                assert_eq!(found, first.min(last));
                assert!(asked <= 2 * (last - from + 1).ilog2() + 3, "{asked} for {first}");
            }
        }
    }
}
