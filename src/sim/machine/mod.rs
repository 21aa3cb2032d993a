//! The simulated machine: CPUs with queues, tasks that follow programs, shared cache lines. It
//! knows nothing of balancing policy; it is what the balancer's [`Host`](crate::balancer::Host)
//! trait is implemented for.

mod cpu;
mod host;
mod objects;
mod placement;
mod run;
mod steps;

pub(crate) use cpu::{Cpu, CpuState};
pub use objects::Held;
pub(crate) use placement::ForkRule;
pub use placement::Placement;

use super::costs::{Access, Cause, Costs, Distance, Lines, Site};
use super::events::{Event, EventQueue, TaskId};
use super::program::Workload;
use super::task::{Task, TaskState};
use super::trace::Tracer;
use crate::balancer::CpuView;
use crate::cpumask::Cpumask;
use crate::topology::{Partition, Topology};
use crate::units::{CpuId, Nanos};
use objects::Objects;
use serde::Serialize;
use std::sync::Arc;

/// How the machine schedules between balancing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Time between two ticks of a CPU.
    pub tick: Nanos,
    /// Whether all CPUs' ticks come at the same moment, as without `skew_tick`.
    pub aligned_ticks: bool,
    /// Longest stretch for which a task runs while another waits; zero: for ever.
    pub slice: Nanos,
    /// By how much a woken task must be behind the running one to take its place; zero: never.
    pub preempt: Nanos,
    /// Whether idle CPUs stop their ticks.
    pub tickless: bool,
    /// Where woken and new tasks are put.
    pub placement: Placement,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            tick: Nanos::from_ms(1),
            aligned_ticks: true,
            slice: Nanos::from_ms(3),
            preempt: Nanos::ZERO,
            tickless: true,
            placement: Placement::Anywhere,
        }
    }
}

/// What happened, in sums.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Events handled.
    pub events: u64,
    /// Task switches.
    pub switches: u64,
    /// Wake-ups.
    pub wakeups: u64,
    /// Wake-ups that put the task on another CPU than its last.
    pub wakeups_moved: u64,
    /// Pieces of work done, by template.
    pub done: Vec<u64>,
    /// Tasks ended, by template.
    pub ended: Vec<u64>,
    /// Sum of the lifetimes of ended tasks, by template.
    pub lifetime_ns: Vec<u64>,
    /// Time spent waiting in queues, by all tasks.
    pub waited_ns: u64,
    /// Longest single wait in a queue.
    pub longest_wait_ns: u64,
    /// Bytes read from pipes.
    pub piped_bytes: u64,
    /// Bytes that crossed nodes.
    pub cross_node_bytes: u64,
    /// Tasks moved by the balancer, by distance (core, LLC, package, far).
    pub moves: [u64; 4],
}

/// Where one CPU is.
#[derive(Clone, Copy, Debug)]
struct Place {
    core: u32,
    llc: u32,
    package: u32,
}

/// A set of CPUs with the words of its mask that hold them, so that looking through a small one
/// does not read the whole width.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    mask: Cpumask,
    words: std::ops::Range<usize>,
}

impl Region {
    fn new(mask: Cpumask) -> Self {
        let word = |cpu: CpuId| cpu.index() / 64;
        let first = mask.first().map_or(0, word);
        let end = mask.iter().last().map_or(first, |cpu| word(cpu) + 1);
        Self { mask, words: first..end }
    }
}

/// Where CPUs are, in tables that are quick to ask.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    by_cpu: Vec<Place>,
    node: Vec<u32>,
    /// For each word of a mask: the package that all its CPUs are of, if it is one.
    word_package: Vec<Option<u32>>,
    pub(crate) siblings: Vec<Vec<CpuId>>,
    llcs: Vec<Region>,
    nodes: Vec<Region>,
    /// For each node, all nodes, nearest first.
    near: Vec<Vec<u32>>,
}

impl Places {
    fn new(topology: &Topology) -> Self {
        let width = topology.width;
        let of = |p: &Partition, c| p.of(CpuId::from(c)).map_or(u32::MAX, |n| n as u32);
        let nr = topology.nodes.len();
        let near = |from: usize| {
            let mut order: Vec<u32> = (0..nr as u32).collect();
            order.sort_by_key(|&to| (topology.distance(from, to as usize), to));
            order
        };
        let node = |c| topology.node_index(CpuId::from(c)).map_or(0, |n| n as u32);
        let by_cpu: Vec<Place> = (0..width)
            .map(|c| Place {
                core: of(&topology.cores, c),
                llc: of(&topology.llcs, c),
                package: of(&topology.packages, c),
            })
            .collect();
        let one_package = |cpus: &[Place]| {
            let package = cpus[0].package;
            cpus.iter().all(|c| c.package == package).then_some(package)
        };
        Self {
            word_package: by_cpu.chunks(64).map(one_package).collect(),
            by_cpu,
            node: (0..width).map(node).collect(),
            siblings: (0..width)
                .map(|c| {
                    let cpu = CpuId::from(c);
                    let part = topology.cores.of(cpu);
                    part.map_or(vec![cpu], |p| topology.cores.mask(p).iter().collect())
                })
                .collect(),
            llcs: (0..topology.llcs.len()).map(|p| Region::new(topology.llcs.mask(p))).collect(),
            nodes: topology.nodes.iter().map(|n| Region::new(n.cpus.clone())).collect(),
            near: (0..nr).map(near).collect(),
        }
    }

    /// How far two CPUs are from each other.
    pub(crate) fn distance(&self, a: CpuId, b: CpuId) -> Distance {
        if a == b {
            return Distance::Same;
        }
        let (a, b) = (&self.by_cpu[a.index()], &self.by_cpu[b.index()]);
        if a.core == b.core {
            Distance::Core
        } else if a.llc == b.llc {
            Distance::Llc
        } else if a.package == b.package {
            Distance::Package
        } else {
            Distance::Far
        }
    }

    /// How far a CPU is from all CPUs of a mask's word, where that is one distance.
    pub(crate) fn distance_to_word(&self, cpu: CpuId, word: usize) -> Option<Distance> {
        let far = |package| package != self.by_cpu[cpu.index()].package;
        self.word_package[word].filter(|&p| far(p)).map(|_| Distance::Far)
    }

    pub(crate) fn widest_node(&self) -> usize {
        self.nodes.iter().map(|n| n.mask.weight()).max().unwrap_or(0)
    }

    pub(crate) fn node_of(&self) -> &[u32] {
        &self.node
    }

    pub(crate) fn node(&self, cpu: CpuId) -> u32 {
        self.node[cpu.index()]
    }

    /// The CPUs of the CPU's node.
    pub(crate) fn node_mask(&self, cpu: CpuId) -> &Cpumask {
        &self.nodes[self.node(cpu) as usize].mask
    }

    /// The CPUs of each node.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Cpumask> {
        self.nodes.iter().map(|node| &node.mask)
    }
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) now: Nanos,
    pub(crate) events: EventQueue,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) tasks: Vec<Task>,
    free: Vec<TaskId>,
    spawned: u32,
    queued: u64,
    pub(crate) online: Cpumask,
    /// Idle CPUs.
    pub(crate) idle: Cpumask,
    pub(crate) places: Places,
    pub(crate) workload: Arc<Workload>,
    masks: Vec<Option<Arc<Cpumask>>>,
    /// Where tasks that are not bound may run: all but the isolated CPUs; `None`: anywhere.
    unbound: Option<Arc<Cpumask>>,
    objects: Objects,
    pub(crate) costs: Costs,
    pub(crate) rules: Rules,
    pub(crate) lines: Lines,
    /// When each node's link to the others is free.
    links: Vec<Nanos>,
    seed: u64,
    /// CPUs that ran out of work during this event.
    pub(crate) entering: Vec<CpuId>,
    /// Who looks, and how much of the look is paid for.
    pub(crate) looker: Option<CpuId>,
    pub(crate) look_time: Nanos,
    /// By how much the clock that the balancer reads is ahead (clock jumps).
    pub(crate) clock_ahead: Nanos,
    /// By what rule new tasks are spread over nodes; `None`: they are not.
    pub(crate) forks: Option<ForkRule>,
    /// See [`crate::sim::bugs::Bug::GroupImbalance`].
    pub(crate) averages_only: bool,
    pub(crate) totals: Totals,
    pub(crate) tracer: Tracer,
    largest: crate::units::Capacity,
    scratch: Vec<(Nanos, TaskId)>,
    views: Vec<CpuView>,
}

impl Machine {
    /// An idle machine on which a workload is about to begin.
    pub(crate) fn new(
        topology: &Topology,
        workload: Arc<Workload>,
        costs: Costs,
        rules: Rules,
        seed: u64,
    ) -> Self {
        let width = topology.width;
        let cpus: Vec<Cpu> =
            (0..width).map(|c| Cpu::new(topology.capacity(CpuId::from(c)))).collect();
        let templates = workload.templates.len();
        let totals = Totals {
            done: vec![0; templates],
            ended: vec![0; templates],
            lifetime_ns: vec![0; templates],
            ..Totals::default()
        };
        let isolates = !topology.isolated.is_empty() && !topology.active().is_empty();
        let unbound = isolates.then(|| Cpumask::full(width).and_not(&topology.isolated));
        let unbound = unbound.map(Arc::new);
        let bound = |mask: &Option<Cpumask>| mask.clone().map(Arc::new);
        let masks = workload.templates.iter();
        let masks = masks.map(|t| bound(&t.allowed).or_else(|| unbound.clone())).collect();
        let mut machine = Self {
            now: Nanos::ZERO,
            events: EventQueue::default(),
            tasks: Vec::new(),
            free: Vec::new(),
            spawned: 0,
            queued: 0,
            online: Cpumask::new(width),
            idle: Cpumask::new(width),
            places: Places::new(topology),
            masks,
            unbound,
            objects: Objects::new(&workload),
            workload,
            costs,
            rules,
            lines: Lines::new(width, topology.nodes.len()),
            links: vec![Nanos::ZERO; topology.nodes.len()],
            seed,
            entering: Vec::new(),
            looker: None,
            look_time: Nanos::ZERO,
            clock_ahead: Nanos::ZERO,
            forks: None,
            averages_only: false,
            totals,
            tracer: Tracer::default(),
            largest: cpus.iter().map(|c| c.capacity).max().unwrap_or_default(),
            scratch: Vec::new(),
            views: vec![CpuView::default(); width],
            cpus,
        };
        topology.online.iter().for_each(|cpu| machine.bring_online(cpu));
        machine
    }

    /// CPU ids there are.
    pub(crate) fn width(&self) -> usize {
        self.cpus.len()
    }

    /// A CPU begins service, idle.
    pub(crate) fn bring_online(&mut self, cpu: CpuId) {
        self.online.set(cpu);
        self.idle.set(cpu);
        let c = &mut self.cpus[cpu.index()];
        c.average(self.now);
        c.state = CpuState::Idle;
        c.idle_since = self.now;
        if !self.rules.tickless {
            self.plan_tick(cpu);
        }
    }

    /// A CPU ends service: its tasks go where there is room.
    pub(crate) fn take_offline(&mut self, cpu: CpuId) {
        if self.cpus[cpu.index()].state == CpuState::Offline {
            return;
        }
        if self.cpus[cpu.index()].state == CpuState::Idle {
            self.account_idle(cpu);
        }
        self.online.clear(cpu);
        self.idle.clear(cpu);
        let running = self.stop_running(cpu);
        let c = &mut self.cpus[cpu.index()];
        c.average(self.now);
        c.state = CpuState::Offline;
        c.run = c.run.wrapping_add(1);
        c.lines.clear();
        (c.line_asked, c.deferred) = (None, false);
        let waiting: Vec<TaskId> = c.queue.drain(..).map(|q| q.task).collect();
        c.sum_weight = 0;
        for task in running.into_iter().chain(waiting) {
            self.tasks[task.index()].become_(TaskState::Waiting, self.now);
            let to = self.place(task, None);
            self.enqueue(task, to);
        }
    }

    /// Brings all sums to the end of the run.
    pub(crate) fn finish(&mut self, end: Nanos) {
        self.now = end;
        for i in 0..self.cpus.len() {
            let cpu = CpuId::from(i);
            if self.cpus[i].state == CpuState::Idle {
                self.account_idle(cpu);
            }
            self.account_run(cpu);
        }
        self.tracer.finish(end);
    }

    /// What each semaphore held.
    pub(crate) fn semaphores_held(&self) -> Vec<Held> {
        self.objects.semaphores.iter().map(|s| s.held).collect()
    }

    /// Plans the CPU's next tick unless it is planned.
    pub(crate) fn plan_tick(&mut self, cpu: CpuId) {
        let tick = self.rules.tick.0;
        let c = &mut self.cpus[cpu.index()];
        if c.tick_planned {
            return;
        }
        c.tick_planned = true;
        // Skewed ticks are spread evenly over the period.
        let phase = match self.rules.aligned_ticks {
            true => 0,
            false => tick * u64::from(cpu.0) / self.cpus.len() as u64,
        };
        let next = (self.now.0 + tick - phase) / tick * tick + phase;
        self.events.plan(Nanos(next), Event::Tick(cpu));
    }

    /// Notes that the CPU spends time, taken from its task or from its idleness.
    pub(crate) fn steal(&mut self, cpu: CpuId, cause: Cause, ns: u64) {
        let now = self.now;
        let c = &mut self.cpus[cpu.index()];
        c.spend(cause, ns);
        match c.state {
            CpuState::Busy(_) => c.stolen += ns,
            _ => c.kernel_until = c.kernel_until.max(now) + Nanos(ns),
        }
    }

    /// Begins the accesses that the CPU has before it; each waits for its line.
    pub(crate) fn access_lines(&mut self, cpu: CpuId) {
        let now = self.now;
        let Some(access) = self.cpus[cpu.index()].lines.pop() else { return };
        let done = self.access(cpu, access, now);
        self.cpus[cpu.index()].line_asked = Some((now, access));
        self.events.plan(done, Event::LineDone(cpu));
    }

    /// An access asked for at `from`; when it is done.
    fn access(&mut self, cpu: CpuId, access: Access, from: Nanos) -> Nanos {
        let Access { line: id, site } = access;
        let places = &self.places;
        let line = self.lines.get(id);
        let distance = |owner| places.distance(owner, cpu);
        let done = match id.is_read() {
            true => line.read(cpu, from, &self.costs, distance),
            false => line.access(cpu, from, &self.costs, distance),
        };
        self.lines.site_ns[site as usize] += (done - from).0;
        done
    }

    /// An access is done: the next one, or the CPU goes on. True when all are done.
    pub(crate) fn line_done(&mut self, cpu: CpuId) -> bool {
        let c = &mut self.cpus[cpu.index()];
        let Some((asked, access)) = c.line_asked.take() else { return false };
        let took = (self.now - asked).0;
        c.spend(cause_of(access), took);
        c.stolen += took;
        if !c.lines.is_empty() {
            self.access_lines(cpu);
            return false;
        }
        if std::mem::take(&mut c.deferred) {
            let run = c.run;
            self.run_ends(cpu, run);
        }
        true
    }

    /// An access at once, for a CPU that runs no task; the time it takes.
    pub(crate) fn access_now(&mut self, cpu: CpuId, access: Access) {
        let from = self.now.max(self.cpus[cpu.index()].kernel_until);
        let done = self.access(cpu, access, from);
        self.steal(cpu, cause_of(access), (done - from).0);
    }
}

fn cause_of(access: Access) -> Cause {
    match access.site {
        Site::Flag => Cause::Flag,
        _ => Cause::Nohz,
    }
}
