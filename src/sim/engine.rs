//! The simulation: events in order, the machine that they happen to, and the very same balancer
//! that runs live.

use super::balancing::Call;
use super::bugs::Bug;
use super::costs::Costs;
use super::events::Event;
use super::machine::{CpuState, ForkRule, Machine, Rules};
use super::program::Workload;
use super::random::{Purpose, Stream};
use super::trace::Tracer;
use crate::balancer::{Balancer, Config, Shared, Snapshot, Waiting, WorkConservation};
use crate::cpumask::Cpumask;
use crate::domains::{BuildOptions, DomainTree, build_with};
use crate::policy::facts::Facts;
use crate::policy::tunables::{ForkPlacement, Newidle, OnOff, Tunables};
use crate::stats::counters::Counters;
use crate::topology::Topology;
use crate::units::{CpuId, Nanos};
use std::sync::Arc;

/// Who runs the balancing passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Executors {
    /// Each CPU at its own tick, as the kernel.
    #[default]
    Cpu,
    /// One worker of the agent for each last-level cache.
    Llc,
    /// One for each node.
    Node,
    /// One for all.
    One,
}

/// A planned change of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A CPU goes out of service.
    Offline(CpuId),
    /// A CPU comes back.
    Online(CpuId),
    /// The clock jumps ahead (suspend).
    Clock(Nanos),
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The machine.
    pub topology: Topology,
    /// What runs on it.
    pub workload: Arc<Workload>,
    /// What things cost.
    pub costs: Costs,
    /// How it schedules.
    pub rules: Rules,
    /// The policy's settings.
    pub tunables: Tunables,
    /// How its domains are built.
    pub domains: BuildOptions,
    /// Who balances.
    pub executors: Executors,
    /// How long a worker of the agent takes to react.
    pub reaction: Nanos,
    /// Seed of all random streams.
    pub seed: u64,
    /// How long it runs.
    pub duration: Nanos,
    /// Planned changes.
    pub changes: Vec<(Nanos, Change)>,
    /// A bug to put back.
    pub bug: Option<Bug>,
    /// Time between two looks of the work-conservation checker; zero: never.
    pub check_every: Nanos,
    /// Whether to keep a heat map.
    pub heat: bool,
    /// Whether to keep every stretch of running.
    pub trace: bool,
}

impl Setup {
    /// A run of the default policy.
    pub fn new(topology: Topology, workload: Workload, duration: Nanos) -> Self {
        Self {
            topology,
            workload: Arc::new(workload),
            costs: Costs::default(),
            rules: Rules::default(),
            tunables: Tunables::default(),
            domains: BuildOptions::default(),
            executors: Executors::Cpu,
            reaction: Nanos::from_us(50),
            seed: 1,
            duration,
            changes: Vec::new(),
            bug: None,
            check_every: Nanos::from_ms(1),
            heat: false,
            trace: false,
        }
    }
}

/// A simulation under way.
#[derive(Debug)]
pub struct Sim {
    pub(crate) setup: Setup,
    pub(crate) machine: Machine,
    pub(super) balancers: Vec<Balancer>,
    pub(super) worker_of: Vec<u32>,
    pub(super) tree: Arc<DomainTree>,
    pub(super) shared: Arc<Shared>,
    pub(super) config: Config,
    sources: Vec<Stream>,
    /// Who has the serialize flag, and until when it was last held.
    pub(super) holder: Option<CpuId>,
    pub(super) held_until: Nanos,
    /// Counters of balancers that hotplug has replaced.
    pub(super) past: Option<Counters>,
    pub(super) snapshot: Snapshot,
    pub(super) waiting: Vec<Waiting>,
    pub(crate) conservation: WorkConservation,
}

fn shards(topology: &Topology, tree: &DomainTree, executors: Executors) -> Vec<Cpumask> {
    let all = topology.active();
    let parts: Vec<Cpumask> = match executors {
        // One balancer that runs each CPU at its own tick.
        Executors::Cpu | Executors::One => vec![all.clone()],
        Executors::Llc => (0..topology.llcs.len()).map(|p| topology.llcs.mask(p)).collect(),
        Executors::Node => topology.nodes.iter().map(|n| n.cpus.clone()).collect(),
    };
    let balanced = |mask: &Cpumask| {
        let cpus = mask.iter().filter(|&c| all.test(c) && !tree.chain(c).is_empty());
        Cpumask::from_cpus(topology.width, cpus)
    };
    parts.iter().map(balanced).filter(|s| !s.is_empty()).collect()
}

impl Sim {
    /// A machine at time zero.
    pub fn new(setup: Setup) -> Self {
        let mut rules = setup.rules;
        rules.tickless &= setup.tunables.nohz == OnOff::On;
        let workload = Arc::clone(&setup.workload);
        let mut machine =
            Machine::new(&setup.topology, Arc::clone(&workload), setup.costs, rules, setup.seed);
        if setup.heat || setup.trace {
            machine.tracer = Tracer::new(machine.width(), setup.duration, setup.trace);
        }
        let width = machine.width();
        let stream = |i| Stream::new(setup.seed, Purpose::Arrivals(i as u32));
        let facts = Arc::new(Facts::new(&DomainTree::default()));
        let tree = Arc::new(DomainTree::default());
        let shared = Arc::new(Shared::new(&tree, &facts, rules.tick));
        let mut sim = Self {
            sources: (0..workload.sources.len()).map(stream).collect(),
            config: Config { epoch: 0, tunables: setup.tunables },
            balancers: Vec::new(),
            worker_of: Vec::new(),
            tree,
            shared,
            holder: None,
            held_until: Nanos::ZERO,
            past: None,
            snapshot: Snapshot::new(width),
            waiting: Vec::new(),
            conservation: WorkConservation::new(width),
            machine,
            setup,
        };
        sim.build_balancers(false);
        sim.enter_idle_all();
        sim.begin();
        sim
    }

    fn begin(&mut self) {
        let workload = Arc::clone(&self.setup.workload);
        for start in &workload.starts {
            if start.at == Nanos::ZERO {
                for _ in 0..start.nr {
                    self.machine.spawn(start.template, None, start.on.map(CpuId));
                }
            }
        }
        for (i, source) in workload.sources.iter().enumerate() {
            let first = self.sources[i].time(&source.interval);
            self.machine.events.plan(first, Event::Arrival(i as u32));
        }
        let nr_changes = self.setup.changes.len();
        for (i, (at, _)) in self.setup.changes.iter().enumerate() {
            self.machine.events.plan(*at, Event::Change(i as u32));
        }
        for (i, start) in workload.starts.iter().enumerate() {
            if start.at > Nanos::ZERO {
                self.machine.events.plan(start.at, Event::Change((nr_changes + i) as u32));
            }
        }
        if self.setup.check_every > Nanos::ZERO {
            self.machine.events.plan(self.setup.check_every, Event::Sample);
        }
        self.settle();
    }

    /// Lets fresh nohz state know which CPUs idle.
    pub(super) fn enter_idle_all(&mut self) {
        if self.setup.executors != Executors::Cpu || !self.machine.rules.tickless {
            return;
        }
        for i in 0..self.machine.width() {
            // At no cost: they have idled all along.
            let worker = self.worker_of[i] as usize;
            if self.machine.cpus[i].state == CpuState::Idle
                && let Some(balancer) = self.balancers.get_mut(worker)
            {
                balancer.enter_idle(&mut self.machine, &self.config, CpuId::from(i));
            }
        }
    }

    pub(super) fn build_balancers(&mut self, rebuilt: bool) {
        let topology = self.setup.topology.with_online(&self.machine.online);
        let mut tree = build_with(&topology, &self.setup.domains).tree;
        if let Some(bug) = self.setup.bug {
            bug.spoil_tree(&mut tree, rebuilt);
            self.machine.averages_only = bug == Bug::GroupImbalance;
        }
        let facts = Arc::new(Facts::new(&tree));
        let tree = Arc::new(tree);
        let executors = self.setup.executors;
        let tick = self.machine.rules.tick;
        self.shared = Arc::new(Shared::new(&tree, &facts, tick));
        if let Some(old) = self.counters() {
            self.past = Some(old);
        }
        let tickless = executors == Executors::Cpu && self.machine.rules.tickless;
        let shards = shards(&topology, &tree, executors);
        self.worker_of = vec![u32::MAX; self.machine.width()];
        self.balancers = shards
            .iter()
            .enumerate()
            .map(|(i, shard)| {
                shard.iter().for_each(|c| self.worker_of[c.index()] = i as u32);
                let seed = self.setup.seed ^ (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let shared = Arc::clone(&self.shared);
                Balancer::new(Arc::clone(&tree), Arc::clone(&facts), shared, shard)
                    .tickless(tickless)
                    .seeded(seed)
            })
            .collect();
        let tunables = &self.config.tunables;
        self.machine.forks = (tunables.fork_placement == ForkPlacement::Numa).then(|| ForkRule {
            tree: Arc::clone(&tree),
            facts: Arc::clone(&facts),
            rule: tunables.numa_imbalance,
        });
        self.tree = tree;
        (self.holder, self.held_until) = (None, Nanos::ZERO);
        if executors != Executors::Cpu && !rebuilt {
            for worker in 0..self.balancers.len() as u32 {
                let at = self.machine.now + tick;
                self.machine.events.plan(at, Event::Round(worker));
            }
        }
    }

    /// The time of the next event, handled; `None` when the run is over.
    pub fn step(&mut self) -> Option<(Nanos, Event)> {
        let (at, event) = self.machine.events.next()?;
        if at > self.setup.duration {
            return None;
        }
        self.machine.now = at;
        self.machine.totals.events += 1;
        self.handle(event);
        self.settle();
        Some((at, event))
    }

    /// Runs to the end; `progress` is told the time now and then.
    pub fn run(&mut self, mut progress: impl FnMut(Nanos)) {
        let mut n = 0u32;
        while let Some((at, _)) = self.step() {
            n = n.wrapping_add(1);
            if n.is_multiple_of(65_536) {
                progress(at);
            }
        }
        self.finish();
    }

    /// The run as Chrome's trace events; empty unless a trace was kept.
    pub fn chrome_trace(&self) -> serde_json::Value {
        let names = self.setup.workload.templates.iter().map(|t| t.name.clone());
        self.machine.tracer.chrome(&names.collect::<Vec<_>>())
    }

    /// A CPU's share of time busy by column of the heat map, if one was kept.
    pub fn heat_row(&self, cpu: CpuId) -> Option<Vec<f64>> {
        self.machine.tracer.heat().map(|heat| heat.row(cpu).collect())
    }

    /// Brings the sums to the end of the run.
    pub fn finish(&mut self) {
        let end = self.setup.duration.max(self.machine.now);
        self.machine.finish(end);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::RunEnds { cpu, run } => self.machine.run_ends(cpu, run),
            Event::Tick(cpu) => self.tick(cpu),
            Event::Timer { task, sleep } => self.machine.timer(task, sleep),
            Event::LineDone(cpu) => {
                if self.machine.line_done(cpu) && self.holder == Some(cpu) {
                    self.holder = None;
                }
            }
            Event::Arrival(i) => self.machine.arrival(i, &mut self.sources[i as usize]),
            Event::Kick(cpu) => match self.setup.executors {
                Executors::Cpu => self.call(cpu, Call::Tick),
                _ => self.round(self.worker_of[cpu.index()], false),
            },
            Event::Round(worker) => self.round(worker, true),
            Event::Newidle(cpu) => self.call(cpu, Call::Newidle),
            Event::LookAgain(cpu) => {
                if self.machine.cpus[cpu.index()].state == CpuState::Idle {
                    self.look_for_work(cpu, true);
                }
            }
            Event::Change(i) => self.change(i as usize),
            Event::Sample => self.sample(),
        }
    }

    /// CPUs that have run out of work look for some or idle.
    fn settle(&mut self) {
        while let Some(cpu) = self.machine.entering.pop() {
            if self.machine.cpus[cpu.index()].state != CpuState::Entering {
                continue;
            }
            if self.machine.cpus[cpu.index()].queue.is_empty() {
                self.look_for_work(cpu, false);
            }
            let c = &self.machine.cpus[cpu.index()];
            match (c.state, c.queue.is_empty()) {
                (CpuState::Entering, false) => self.machine.dispatch(cpu),
                (CpuState::Entering, true) => {
                    self.machine.go_idle(cpu);
                    if self.setup.executors == Executors::Cpu && self.machine.rules.tickless {
                        self.call(cpu, Call::EnterIdle);
                    }
                }
                _ => {}
            }
        }
    }

    /// A CPU that runs out of work, or idles and was `told` of some, looks around.
    fn look_for_work(&mut self, cpu: CpuId, told: bool) {
        match (self.setup.executors, self.config.tunables.newidle) {
            (_, Newidle::Off) => {}
            (Executors::Cpu, _) => self.call(cpu, Call::Newidle),
            (_, Newidle::Plan) => {
                let report = self.machine.pull_by_plan(cpu, told);
                // While nothing waits anywhere nobody looks, and nothing is learned.
                if report.pulled.is_none() && !self.shared.is_overloaded() {
                    return;
                }
                let worker = self.worker_of[cpu.index()] as usize;
                if let Some(balancer) = self.balancers.get_mut(worker) {
                    balancer.report_pull(&self.config, &report);
                }
            }
            (_, Newidle::Agent) => {
                let at = self.machine.now + self.setup.reaction;
                self.machine.events.plan(at, Event::Newidle(cpu));
            }
        }
    }
}
