//! Where woken and new tasks are put.

use super::{CpuState, Machine, Region, TaskId};
use crate::cpumask::Cpumask;
use crate::domains::DomainTree;
use crate::policy::facts::Facts;
use crate::policy::fork::dst_node;
use crate::policy::group_stats::GroupStats;
use crate::policy::tunables::NumaImbalance;
use crate::units::{Capacity, CpuId, Load, Util};
use std::sync::Arc;

/// What the node of a new task depends on besides what runs where.
#[derive(Clone, Debug)]
pub(crate) struct ForkRule {
    pub(crate) tree: Arc<DomainTree>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) rule: NumaImbalance,
}

/// How far placement looks for an idle CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Near first, then ever farther.
    Anywhere,
    /// Only on the node of the waker or, without one, of the last run: the "overload on wake-up"
    /// of the wasted-cores paper.
    WakersNode,
    /// The last CPU, whatever it does; new tasks where their parent is.
    Stay,
}

impl Machine {
    /// An idle CPU of `within` from `start` on: one on an idle core, else any.
    fn idle_in(&self, within: &Region, start: CpuId, task: TaskId) -> Option<CpuId> {
        let (idle, set) = (self.idle.words(), within.mask.words());
        let (from, nr) = (within.words.start, within.words.len());
        // A start outside is as good as the region's own.
        let first = (start.index() / 64).wrapping_sub(from);
        let first = if first < nr { first } else { 0 };
        let may = &self.tasks[task.index()];
        let mut any = None;
        for step in 0..=nr {
            let at = from + (first + step) % nr.max(1);
            let mut word = idle[at] & set[at];
            if word == 0 {
                continue;
            }
            // The word of `start` comes twice: from it on, and at the end the CPUs before it.
            let low = (1u64 << (start.0 % 64)) - 1;
            if step == 0 {
                word &= !low;
            } else if step == nr {
                word &= low;
            }
            while word != 0 {
                let cpu = CpuId(at as u32 * 64 + word.trailing_zeros());
                word &= word - 1;
                if !may.may_run_on(cpu) {
                    continue;
                }
                let core = &self.places.siblings[cpu.index()];
                if core.iter().all(|&s| self.idle.test(s)) {
                    return Some(cpu);
                }
                any = any.or(Some(cpu));
            }
        }
        any
    }

    fn llc_of(&self, cpu: CpuId) -> Option<&Region> {
        self.places.llcs.get(self.places.by_cpu[cpu.index()].llc as usize)
    }

    fn idle_on_node(&self, node: u32, start: CpuId, task: TaskId) -> Option<CpuId> {
        let cpus = self.places.nodes.get(node as usize)?;
        self.idle_in(cpus, start, task)
    }

    /// Where a woken task goes (kernel: `scx_select_cpu_dfl`).
    pub(super) fn place(&self, id: TaskId, waker: Option<CpuId>) -> CpuId {
        let task = &self.tasks[id.index()];
        let usable = |cpu: CpuId| self.online.test(cpu) && task.may_run_on(cpu);
        let prev = task.cpu;
        let home = usable(prev);
        if home && self.idle.test(prev) && self.rules.placement != Placement::WakersNode {
            return prev;
        }
        let found = match self.rules.placement {
            Placement::Stay => None,
            Placement::WakersNode => {
                let from = waker.unwrap_or(prev);
                let node = self.places.node(from);
                let here = self.idle_on_node(node, from, id);
                let stay = || (home && node == self.places.node(prev)).then_some(prev);
                let nodes = &self.places.nodes;
                let queue = || self.shortest(nodes.get(node as usize).map(|n| &n.mask), id);
                here.or_else(stay).or_else(queue)
            }
            Placement::Anywhere => self.idle_near(prev, id),
        };
        match found {
            Some(cpu) => cpu,
            None if home => prev,
            None => self.shortest(None, id).unwrap_or(prev),
        }
    }

    fn idle_near(&self, from: CpuId, id: TaskId) -> Option<CpuId> {
        if self.idle.is_empty() {
            return None;
        }
        let near = &self.places.near[self.places.node(from) as usize];
        let llc = self.llc_of(from).and_then(|llc| self.idle_in(llc, from, id));
        llc.or_else(|| near.iter().find_map(|&node| self.idle_on_node(node, from, id)))
    }

    /// The CPU near which a task that is forked on `parent` is to start, by the rule of its policy.
    fn fork_near(&self, parent: CpuId) -> CpuId {
        let Some(ForkRule { tree, facts, rule }) = &self.forks else { return parent };
        let node_of = facts.node_of();
        let home = node_of[parent.index()];
        if facts.numa_views(home).is_empty() {
            return parent;
        }
        let mut stats = vec![GroupStats::default(); facts.nr_nodes()];
        let balanced = |cpu: &CpuId| !tree.chain(*cpu).is_empty();
        for cpu in self.online.iter().filter(balanced) {
            let c = &self.cpus[cpu.index()];
            let (load, util, runnable) = c.averages();
            stats[usize::from(node_of[cpu.index()])].add(&GroupStats {
                weight: 1,
                nr_running: c.nr_running(),
                idle_cpus: u32::from(c.state == CpuState::Idle),
                load: Load(load),
                util: Util(util),
                runnable: Util(runnable),
                capacity: c.capacity.max(Capacity(1)),
                ..GroupStats::default()
            });
        }
        match dst_node(*rule, tree, facts, &stats, home) {
            node if node == home => parent,
            node => {
                let there = |cpu: &CpuId| balanced(cpu) && node_of[cpu.index()] == node;
                let cpus = self.online.iter().filter(there);
                cpus.min_by_key(|cpu| self.cpus[cpu.index()].nr_running()).unwrap_or(parent)
            }
        }
    }

    /// Where a new task goes: an idle CPU near its parent or on the node that the policy gives, else
    /// the shortest queue.
    pub(super) fn place_new(&self, id: TaskId, parent: Option<CpuId>) -> CpuId {
        let start = || self.online.iter_wrap(CpuId(id.0 % self.width() as u32)).next();
        let from = match parent {
            Some(parent) if self.rules.placement == Placement::Anywhere => self.fork_near(parent),
            _ => parent.or_else(start).unwrap_or_default(),
        };
        let found = match self.rules.placement {
            Placement::Stay => None,
            Placement::Anywhere => self.idle_near(from, id),
            Placement::WakersNode => self.idle_on_node(self.places.node(from), from, id),
        };
        let usable = self.online.test(from) && self.tasks[id.index()].may_run_on(from);
        let here = usable && self.rules.placement != Placement::Anywhere;
        found.or_else(|| here.then_some(from)).or_else(|| self.shortest(None, id)).unwrap_or(from)
    }

    /// The online CPU with the fewest tasks on which the task may run.
    fn shortest(&self, within: Option<&Cpumask>, id: TaskId) -> Option<CpuId> {
        let task = &self.tasks[id.index()];
        let cpus = within.unwrap_or(&self.online);
        let usable = |cpu: &CpuId| self.online.test(*cpu) && task.may_run_on(*cpu);
        cpus.iter().filter(usable).min_by_key(|cpu| self.cpus[cpu.index()].nr_running())
    }
}
