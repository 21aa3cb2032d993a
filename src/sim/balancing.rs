//! Calls of the balancer, with what they cost and what they do to shared lines.

use super::Event;
use super::costs::{Access, Cause, LineId, MASK_LINE, Site};
use super::engine::{Change, Executors, Sim};
use super::machine::{CpuState, Machine};
use crate::balancer::{Balancer, WhyIdle};
use crate::domains::LevelKind;
use crate::policy::serialize::SerializeGuard;
use crate::policy::skip::SkipReason;
use crate::policy::tunables::{Newidle, NohzCount, NohzMask, SerializeScope};
use crate::stats::counters::Counters;
use crate::stats::decision_log::Verdict;
use crate::units::{CpuId, Nanos};
use std::sync::Arc;

/// Longest rest of a worker that has nothing to do.
const LONGEST_REST: Nanos = Nanos::from_ms(100);

/// What is asked of the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Tick,
    EnterIdle,
    Newidle,
    Round,
}

/// Parts of the counters that say what a pass did to shared lines.
#[derive(Clone, Copy, Debug, Default)]
struct Shares {
    attempts: u64,
    acquired: u64,
    line_writes: u64,
    checks: u64,
}

impl Shares {
    fn of(counters: &Counters) -> Self {
        let mut s = Self {
            line_writes: counters.nohz_line_writes,
            checks: counters.nohz_checks,
            ..Self::default()
        };
        for level in counters.levels.iter().filter(|l| matches!(l.level, LevelKind::Numa(_))) {
            for pass in [&level.busy, &level.idle, &level.newidle] {
                s.attempts += pass.serialize_attempts;
                s.acquired += pass.serialize_acquired;
            }
        }
        s
    }
}

/// The part of the nohz mask in which a CPU is.
fn mask_part(m: &Machine, layout: NohzMask, cpu: CpuId) -> u16 {
    match layout {
        NohzMask::Global => (cpu.index() / MASK_LINE) as u16,
        NohzMask::Node => m.places.node(cpu) as u16,
    }
}

/// The first part in which some CPU idles, the last one if none does: how far a look goes.
fn first_idle_part(m: &Machine, layout: NohzMask) -> u16 {
    let (found, nr) = match layout {
        NohzMask::Global => {
            let first = m.idle.first().map(|cpu| cpu.index() / MASK_LINE);
            (first, m.width().div_ceil(MASK_LINE))
        }
        NohzMask::Node => {
            let first = m.places.nodes().position(|node| node.intersects(&m.idle));
            (first, m.places.nodes().count())
        }
    };
    found.unwrap_or(nr.saturating_sub(1)) as u16
}

impl Sim {
    /// A CPU's timer tick.
    pub(super) fn tick(&mut self, cpu: CpuId) {
        let m = &mut self.machine;
        let c = &mut m.cpus[cpu.index()];
        c.tick_planned = false;
        if c.state == CpuState::Offline || (c.state == CpuState::Idle && m.rules.tickless) {
            return;
        }
        m.plan_tick(cpu);
        m.steal(cpu, Cause::Tick, m.costs.tick_ns);
        // The one before is still at a shared line.
        if m.cpus[cpu.index()].line_asked.is_none() && self.setup.executors == Executors::Cpu {
            self.call(cpu, Call::Tick);
        }
    }

    /// Calls the balancer for one CPU. The flag's holder may be in the middle of its pass in
    /// virtual time; whoever asks meanwhile finds it taken.
    pub(super) fn call(&mut self, cpu: CpuId, call: Call) {
        let worker = self.worker_of[cpu.index()] as usize;
        if worker >= self.balancers.len() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let held =
            self.machine.now < self.held_until || self.holder.is_some_and(|holder| holder != cpu);
        let blockers: Vec<SerializeGuard> = match (held, self.config.tunables.serialize_scope) {
            (false, _) => Vec::new(),
            (true, scope) => {
                let levels = match scope {
                    SerializeScope::Level => self.tree.chain(cpu).len() as u16,
                    _ => 1,
                };
                let take = |n| shared.gate.try_acquire(scope, LevelKind::Numa(n));
                (1..=levels).filter_map(take).collect()
            }
        };
        let balancer = &mut self.balancers[worker];
        let before = Shares::of(balancer.running_counters());
        let (m, config) = (&mut self.machine, &self.config);
        m.begin_look(cpu);
        match call {
            Call::Tick => balancer.tick(m, config, cpu),
            Call::EnterIdle => balancer.enter_idle(m, config, cpu),
            Call::Newidle => {
                balancer.newidle_quietly(m, config, cpu);
                m.cpus[cpu.index()].max_newidle_cost = balancer.max_idle_balance_cost(cpu);
            }
            Call::Round => {
                balancer.round(m, config);
                if config.tunables.newidle == Newidle::Plan {
                    balancer.publish_plans(m, config);
                }
            }
        }
        let after = Shares::of(balancer.running_counters());
        drop(blockers);
        let took = self.machine.end_look();
        self.charge_lines(cpu, call, (before, after), took);
    }

    /// Charges the accesses to shared lines that a call made.
    fn charge_lines(
        &mut self,
        cpu: CpuId,
        call: Call,
        (before, after): (Shares, Shares),
        took: Nanos,
    ) {
        let acquired = after.acquired - before.acquired;
        let m = &mut self.machine;
        let layout = self.config.tunables.nohz_mask;
        let own = LineId::Mask(mask_part(m, layout, cpu));
        let mut lines = std::mem::take(&mut m.cpus[cpu.index()].lines);
        let mut uses = |line, site| lines.push(Access { line, site });
        if m.costs.nohz_line > 0 {
            let counted = self.config.tunables.nohz_count == NohzCount::Counter;
            let site = if call == Call::EnterIdle { Site::EnterIdle } else { Site::ExitIdle };
            let writes = after.line_writes - before.line_writes;
            if writes > 0 {
                // Where the mask is stands in the record.
                uses(LineId::ReadRecord, site);
            }
            for i in 0..writes {
                let counter = counted && i % 2 == 1;
                uses(if counter { LineId::Record } else { own }, site);
            }
            match call {
                // The marks.
                Call::EnterIdle if writes > 0 => uses(LineId::Record, site),
                // Every busy tick reads the counter or the times.
                Call::Tick => uses(LineId::ReadRecord, Site::Kick),
                _ => {}
            }
            if !counted && after.checks > before.checks {
                let last = first_idle_part(m, layout);
                let looks = (before.checks..after.checks).flat_map(|_| 0..=last);
                looks.for_each(|part| uses(LineId::ReadMask(part), Site::Kick));
            }
        }
        if m.costs.flag_line > 0 {
            // Each attempt is a compare-exchange, each release a store.
            let flag = after.attempts - before.attempts + acquired;
            (0..flag).for_each(|_| uses(LineId::Flag, Site::Flag));
        }
        // The last one is taken first.
        lines.reverse();
        let busy = matches!(m.cpus[cpu.index()].state, CpuState::Busy(_));
        if acquired > 0 {
            self.held_until = m.now + took + Nanos(m.costs.line_ns[1]);
        }
        if busy {
            let any = !lines.is_empty();
            m.cpus[cpu.index()].lines = lines;
            if any {
                if acquired > 0 {
                    self.holder = Some(cpu);
                }
                m.access_lines(cpu);
            }
            return;
        }
        while let Some(line) = lines.pop() {
            m.access_now(cpu, line);
        }
        m.cpus[cpu.index()].lines = lines;
        if acquired > 0 {
            self.held_until = self.held_until.max(m.cpus[cpu.index()].kernel_until);
        }
    }

    /// A worker of the agent runs a round on the first CPU of its shard.
    pub(super) fn round(&mut self, worker: u32, plan_next: bool) {
        let Some(balancer) = self.balancers.get(worker as usize) else { return };
        let Some(cpu) = balancer.shard().first() else { return };
        self.call(cpu, Call::Round);
        if !plan_next {
            return;
        }
        let now = self.machine.now;
        let tick = now + self.machine.rules.tick;
        let due = self.balancers[worker as usize].next_due();
        let waiting = self.shared.is_overloaded() || self.machine.idle.is_empty();
        let next = if waiting { tick } else { due.clamp(tick, now + LONGEST_REST) };
        self.machine.events.plan(next + self.setup.reaction, Event::Round(worker));
    }

    /// A planned change.
    pub(super) fn change(&mut self, i: usize) {
        let Some(&(_, change)) = self.setup.changes.get(i) else {
            let start = &self.setup.workload.starts[i - self.setup.changes.len()];
            let (template, on, nr) = (start.template, start.on.map(CpuId), start.nr);
            (0..nr).for_each(|_| self.machine.spawn(template, None, on));
            return;
        };
        let topology = &self.setup.topology;
        match change {
            Change::Clock(ahead) => {
                self.machine.clock_ahead += ahead;
                self.machine.cpus.iter_mut().for_each(|c| c.fresh_until = Nanos::ZERO);
            }
            Change::Offline(cpu) if self.machine.online.test(cpu) => {
                if self.machine.online.weight() > 1 {
                    self.machine.take_offline(cpu);
                    self.build_balancers(true);
                    self.enter_idle_all();
                }
            }
            Change::Online(cpu) if topology.online.test(cpu) && !self.machine.online.test(cpu) => {
                self.machine.bring_online(cpu);
                self.build_balancers(true);
                self.enter_idle_all();
            }
            Change::Offline(_) | Change::Online(_) => {}
        }
    }

    /// The work-conservation checker looks.
    pub(super) fn sample(&mut self) {
        let next = self.machine.now + self.setup.check_every;
        self.machine.events.plan(next, Event::Sample);
        let limit = Nanos::from_ms(u64::from(self.config.tunables.wc_limit_ms));
        if self.machine.idle.is_empty() {
            // Nobody can idle too long: what waits does not matter.
            self.waiting.clear();
        } else {
            self.machine.waiting(&mut self.waiting);
        }
        self.machine.observe_free(&mut self.snapshot);
        let (machine, online) = (&self.machine, &self.machine.online);
        let (balancers, worker_of) = (&self.balancers, &self.worker_of);
        self.conservation.check(
            &self.snapshot,
            online,
            limit,
            &self.waiting,
            |w, cpu| machine.may_run(w.task, cpu),
            |cpu, _| {
                let balancer = balancers.get(worker_of[cpu.index()] as usize)?;
                last_skip(balancer, cpu).map(WhyIdle::Skipped)
            },
        );
    }

    /// Counters of all balancers, those included that hotplug has replaced.
    pub fn counters(&self) -> Option<Counters> {
        let mut all = self.balancers.iter().map(|b| b.running_counters());
        let mut sum = all.next()?.clone();
        all.for_each(|c| sum.add(c));
        if let Some(past) = &self.past {
            add_by_level(&mut sum, past);
        }
        Some(sum)
    }
}

/// Why the last pass for a CPU did nothing, if it did nothing.
fn last_skip(balancer: &Balancer, cpu: CpuId) -> Option<SkipReason> {
    match balancer.decisions().last_for(cpu)?.verdict {
        Verdict::Skipped(reason) => Some(reason),
        Verdict::Moved(_) => None,
    }
}

/// Adds counters of a tree that may have had other levels.
fn add_by_level(sum: &mut Counters, past: &Counters) {
    let mut aligned = Counters { levels: Vec::new(), ..past.clone() };
    for level in &sum.levels {
        let old = past.levels.iter().find(|l| l.level == level.level);
        let mut zero = Counters::new(&[level.level]);
        aligned.levels.push(old.cloned().unwrap_or_else(|| zero.levels.remove(0)));
    }
    sum.add(&aligned);
}
