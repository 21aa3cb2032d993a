//! The machine as read at one start, and what is derived from it before anything is loaded.

use super::live::WorkerView;
use super::meters::Meters;
use super::{Config, loader, shards};
use crate::balancer::{Balancer, Shared};
use crate::cpumask::Cpumask;
use crate::domains::{self, DomainTree};
use crate::policy::facts::Facts;
use crate::sched_ext;
use crate::stats::latency::Latencies;
use crate::topology::Topology;
use crate::units::{Capacity, Nanos};
use anyhow::{Context, Result, bail};
use log::{info, warn};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Facts and shares of one run.
pub(crate) struct Machine {
    pub(crate) topology: Topology,
    pub(crate) shards: Vec<Cpumask>,
    pub(crate) capacities: Vec<Capacity>,
    pub(crate) tick: Nanos,
    tree: Arc<DomainTree>,
    facts: Arc<Facts>,
    shared: Arc<Shared>,
}

impl Machine {
    pub(crate) fn read(config: &Config) -> Result<Self> {
        let topology = Topology::read(Path::new("/")).context("the machine cannot be read")?;
        for note in &topology.notes {
            warn!("{note}");
        }
        let built = domains::build_with(&topology, &config.domains);
        for dropped in &built.dropped {
            log::debug!("no level {}: {}", dropped.level, dropped.why);
        }
        if let Some(violation) = domains::sanity(&built.tree).first() {
            bail!("the sched domains of this machine contradict themselves: {violation}");
        }
        let facts = Facts::new(&built.tree);
        let tick = config.tick.unwrap_or_else(kernel_tick);
        let shards = shards::shards(&topology, &built.tree, config.workers);
        info!("{} workers, tick {} us", shards.len(), tick.0 / 1_000);
        Ok(Self {
            capacities: (0..topology.width).map(|c| topology.capacity(c.into())).collect(),
            shared: Arc::new(Shared::new(&built.tree, &facts, tick)),
            topology,
            shards,
            tick,
            facts: Arc::new(facts),
            tree: Arc::new(built.tree),
        })
    }

    /// A balancer for each shard, and where each can be watched.
    pub(crate) fn balancers(&self) -> (Vec<Balancer>, Vec<WorkerView>) {
        self.shards
            .iter()
            .map(|shard| {
                let (tree, facts) = (Arc::clone(&self.tree), Arc::clone(&self.facts));
                let balancer =
                    Balancer::new(tree, facts, Arc::clone(&self.shared), shard).tickless(true);
                let view = WorkerView {
                    shard: shard.clone(),
                    cpus: shard.iter().collect(),
                    newidle_latency: Latencies::default(),
                    counters: balancer.counters(),
                    decisions: balancer.decisions(),
                    meters: Arc::new(Meters::default()),
                };
                (balancer, view)
            })
            .unzip()
    }

    /// CPUs on which the agent may run: none that was set apart for others (`isolcpus=`, isolated
    /// cpusets, `nohz_full=`), unless there is no other.
    pub(crate) fn housekeeping(&self) -> Cpumask {
        let t = &self.topology;
        let rest = t.online.and_not(&t.isolated).and_not(&t.nohz_full);
        if rest.is_empty() { t.online.clone() } else { rest }
    }

    /// Where the worker of a shard runs: in its shard as far as that is for housekeeping.
    pub(crate) fn home(&self, shard: &Cpumask) -> Cpumask {
        let inside = shard.and(&self.housekeeping());
        if inside.is_empty() { self.housekeeping() } else { inside }
    }

    /// How many nodes have a fork plan; at least one, so that there is a table.
    pub(crate) fn nr_homes(&self) -> usize {
        self.facts.nr_nodes().max(1)
    }

    /// By CPU id: the number of its node, or [`Machine::nr_homes`] if it is not balanced.
    pub(crate) fn homes(&self) -> Vec<u32> {
        let none = self.nr_homes() as u32;
        let home = |(cpu, &node): (usize, &u16)| {
            let balanced = !self.tree.chain(cpu.into()).is_empty();
            if balanced { u32::from(node) } else { none }
        };
        self.facts.node_of().iter().enumerate().map(home).collect()
    }

    /// All CPUs that are balanced.
    pub(crate) fn balanced(&self) -> Cpumask {
        let mut all = Cpumask::new(self.topology.width);
        self.shards.iter().for_each(|shard| all.or_assign(shard));
        all
    }
}

/// Keeps the calling thread, and threads that it starts, on these CPUs. If the kernel refuses (a
/// cpuset forbids them), it stays where it may run: slower, not wrong.
pub(crate) fn pin_to(cpus: &Cpumask) {
    let words = cpus.words();
    // SAFETY: the mask is valid for the length given; 0 is the calling thread.
    let ret = unsafe { libc::sched_setaffinity(0, size_of_val(words), words.as_ptr().cast()) };
    if ret != 0 {
        warn!("the agent cannot be kept on CPUs {cpus}: a cpuset forbids them");
    }
}

/// The kernel's tick, from its configuration; 4 ms where that is not told.
fn kernel_tick() -> Nanos {
    const USUAL: u64 = 250;
    let hz = loader::kernel_release()
        .ok()
        .and_then(|release| crate::kconfig::Kconfig::find(Path::new("/"), &release))
        .and_then(|config| config.options().get("CONFIG_HZ")?.parse().ok())
        .unwrap_or(USUAL);
    Nanos(1_000_000_000 / hz.clamp(24, 1_000))
}

/// Longest wait for a burst of CPU hotplug to end.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
const SETTLE_QUIET: Duration = Duration::from_millis(200);

/// Waits until no CPU has come or gone for a while.
pub(crate) fn settle_hotplug() {
    let root = Path::new("/");
    let (mut seen, mut waited) = (sched_ext::hotplug_seq(root), Duration::ZERO);
    while waited < SETTLE_LIMIT {
        std::thread::sleep(SETTLE_QUIET);
        waited += SETTLE_QUIET;
        let seq = sched_ext::hotplug_seq(root);
        if seq == seen {
            return;
        }
        seen = seq;
    }
}
