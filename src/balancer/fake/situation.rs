//! One moment of a machine, made by hand, and what the policy says to it.

use crate::balancer::{CpuView, Snapshot, TaskView};
use crate::cpumask::Cpumask;
use crate::domains::{DomainTree, GroupId, SchedDomain, SdFlags};
use crate::policy::active::need_active_balance;
use crate::policy::detach::{Chosen, Selection, select_tasks};
use crate::policy::imbalance::MigrationType;
use crate::policy::marks::GroupMarks;
use crate::policy::should_balance::should_we_balance;
use crate::policy::{Env, Facts, IdleType, Plan, SdStats, SkipReason, Tunables, decide};
use crate::units::{Capacity, CpuId, Load, Nanos, Util};

/// A machine at one time.
#[derive(Debug)]
pub struct Situation {
    /// Its domains; change them before asking.
    pub tree: DomainTree,
    /// The settings.
    pub tunables: Tunables,
    /// Marks of groups that affinity kept from balancing.
    pub marks: GroupMarks,
    /// The CPUs.
    pub snapshot: Snapshot,
    /// CPUs given up in this pass.
    pub excluded: Vec<CpuId>,
}

impl Situation {
    /// All CPUs idle, of full capacity, at one second past zero.
    pub fn new(tree: DomainTree) -> Self {
        let mut snapshot = Snapshot::new(tree.chains.len());
        snapshot.now = Nanos::from_secs(1);
        for view in &mut snapshot.cpus {
            view.capacity = Capacity::SCALE;
            view.capacity_orig = Capacity::SCALE;
            view.idle = true;
        }
        Self {
            marks: GroupMarks::new(tree.groups.len()),
            tunables: Tunables::default(),
            excluded: Vec::new(),
            snapshot,
            tree,
        }
    }

    /// A CPU's view, to be changed at will.
    pub fn cpu(&mut self, cpu: u32) -> &mut CpuView {
        &mut self.snapshot.cpus[cpu as usize]
    }

    /// Gives each of `cpus` that many tasks that always want to run.
    pub fn hogs(&mut self, cpus: impl IntoIterator<Item = u32>, n: u32) -> &mut Self {
        for cpu in cpus {
            let view = self.cpu(cpu);
            view.nr_running = n;
            view.load = Load(1024 * u64::from(n));
            view.runnable = Util(1024 * u64::from(n));
            view.util = Util(if n == 0 { 0 } else { view.capacity.0 });
            view.idle = n == 0;
        }
        self
    }

    /// Changes the domain at a level of a CPU's chain.
    pub fn domain(&mut self, cpu: u32, level: usize) -> &mut SchedDomain {
        let id = self.tree.chain(CpuId(cpu))[level].domain;
        &mut self.tree.domains[id.0 as usize]
    }

    /// Sets flags at a level of a CPU's chain.
    pub fn flag(&mut self, cpu: u32, level: usize, flags: SdFlags) -> &mut Self {
        self.domain(cpu, level).flags |= flags;
        self
    }

    /// Takes flags away from all domains.
    pub fn unflag(&mut self, flags: SdFlags) -> &mut Self {
        self.tree.domains.iter_mut().for_each(|d| d.flags -= flags);
        self
    }

    /// The `n`th group of the domain at a level of a CPU's chain.
    pub fn group(&self, cpu: u32, level: usize, n: usize) -> GroupId {
        self.tree.domain(self.tree.chain(CpuId(cpu))[level].domain).groups[n]
    }

    /// Calls `f` with the environment of an attempt.
    pub fn with_env<R>(
        &self,
        dst: u32,
        level: usize,
        idle: IdleType,
        f: impl FnOnce(&Env) -> R,
    ) -> R {
        let facts = Facts::new(&self.tree);
        let chain = self.tree.chain(CpuId(dst));
        let link = chain[level];
        let mut cpus = self.tree.domain(link.domain).span.clone();
        self.excluded.iter().for_each(|&c| cpus.clear(c));
        let is_idle = |c: &CpuId| {
            let view = self.snapshot.cpu(*c);
            view.idle && view.nr_running == 0
        };
        let width = facts.width();
        let idle_cpus = Cpumask::from_cpus(width, (0..width).map(CpuId::from).filter(is_idle));
        f(&Env {
            tree: &self.tree,
            facts: &facts,
            tunables: &self.tunables,
            marks: &self.marks,
            id: link.domain,
            local: link.local as usize,
            is_root: level + 1 == chain.len(),
            dst: CpuId(dst),
            idle,
            cpus: &cpus,
            idle_cpus: &idle_cpus,
        })
    }

    /// What an elected CPU decides, and the numbers it compared.
    pub fn decide(
        &self,
        dst: u32,
        level: usize,
        idle: IdleType,
    ) -> (Result<Plan, SkipReason>, SdStats) {
        let mut sds = SdStats::default();
        let plan = self.with_env(dst, level, idle, |env| decide(env, &self.snapshot, &mut sds));
        (plan, sds)
    }

    /// Whether the CPU is the one to balance.
    pub fn elected(&self, dst: u32, level: usize, idle: IdleType) -> Result<(), SkipReason> {
        self.with_env(dst, level, idle, |env| should_we_balance(env, &self.snapshot))
    }

    /// Whether the running task of `src` would be pushed.
    pub fn pushes(
        &self,
        (dst, level, idle): (u32, usize, IdleType),
        src: u32,
        unit: MigrationType,
        nr_balance_failed: u32,
    ) -> bool {
        self.with_env(dst, level, idle, |env| {
            need_active_balance(env, &self.snapshot, CpuId(src), unit, nr_balance_failed)
        })
    }

    /// Which of `tasks`, waiting on `src`, would come.
    pub fn select(
        &self,
        (dst, level, idle): (u32, usize, IdleType),
        src: u32,
        tasks: &[TaskView],
        amount: (MigrationType, u64),
        nr_balance_failed: u32,
    ) -> (Vec<Chosen>, Selection) {
        let mut chosen = Vec::new();
        let view = self.snapshot.cpu(CpuId(src));
        let source = (view.nr_running, view.capacity);
        let found = self.with_env(dst, level, idle, |env| {
            let now = self.snapshot.now;
            select_tasks(env, tasks, now, amount, source, nr_balance_failed, &mut chosen)
        });
        (chosen, found)
    }
}
