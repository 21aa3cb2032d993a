//! Newidle balancing in two ways: the agent's own pass for a CPU that asks, and the pull plans that
//! let a CPU help itself (kernel: `sched_balance_newidle`).

use super::pass::At;
use super::{Balancer, Config, CpuSlot, Cx, Inner, LevelSources, PullPlan};
use crate::balancer::host::Host;
use crate::domains::Link;
use crate::policy::env::{IdleType, PassKind};
use crate::policy::interval::next_balance;
use crate::policy::newidle::{
    may_start, may_visit, pull_sources, success_weight, throw_dice, update_newidle_cost,
    update_newidle_stats,
};
use crate::policy::serialize;
use crate::policy::skip::SkipReason;
use crate::policy::tunables::Newidle;
use crate::units::{CpuId, Nanos, TaskKey};

/// What a CPU did with its pull plan when it ran out of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullReport {
    /// The CPU.
    pub cpu: CpuId,
    /// The task that came and where it came from, if one did.
    pub pulled: Option<(TaskKey, CpuId)>,
    /// How long the search took.
    pub cost: Nanos,
    /// When.
    pub at: Nanos,
}

/// Groups of one level that a plan draws sources from: the busiest may have drained by the time.
const GROUPS_PLANNED: usize = 4;

/// Longest time for which a throw of the dice holds if the plan is not used, and for which the
/// sources of a serialized level are kept, so that plans do not contend for the flag at every
/// tick. Half the default limit of work conservation: neither can break it.
const PLAN_HOLD: Nanos = Nanos::from_ms(5);

impl Balancer {
    /// A newidle pass for a CPU of the shard that is about to idle; returns how many tasks came.
    pub fn newidle<H: Host>(&mut self, host: &mut H, config: &Config, cpu: CpuId) -> u32 {
        let Self { tree, facts, shared, published, inner, .. } = self;
        let cx = Cx { tree, facts, shared, config };
        let Ok(slot) = inner.slots.binary_search_by_key(&cpu, |s| s.cpu) else { return 0 };
        inner.begin_at(host, cx, cpu);
        let moved = inner.newidle_pass(cx, host, slot);
        published.publish(&inner.counters);
        moved
    }

    /// Brings the shard's pull plans up to date; the host hears of those that changed. Meant to be
    /// called at every tick at which a CPU of the machine may have work to give.
    pub fn publish_plans<H: Host>(&mut self, host: &mut H, config: &Config) {
        let Self { tree, facts, shared, shard, published, inner } = self;
        let cx = Cx { tree, facts, shared, config };
        // Nothing to give, and that is what the hosts have: no look at the machine at all.
        let none = config.tunables.newidle != Newidle::Plan || !shared.is_overloaded();
        if none && inner.plans_empty {
            return;
        }
        inner.begin(host, cx, shard);
        inner.plans_empty = none;
        inner.published_at = inner.view.now();
        for i in 0..inner.slots.len() {
            let plan = if none { PullPlan::default() } else { inner.plan_for(cx, host, i) };
            if plan != inner.slots[i].plan {
                host.set_pull_plan(inner.slots[i].cpu, plan.as_slice());
                inner.slots[i].plan = plan;
                inner.counters.plans_published += 1;
            }
        }
        published.publish(&inner.counters);
    }

    /// Learns from what a CPU did with its plan: the level at which a task was found succeeded, the
    /// planned ones below it failed, as did all if none was.
    pub fn report_pull(&mut self, config: &Config, report: &PullReport) {
        let Self { tree, facts, shared, inner, .. } = self;
        let Ok(slot) = inner.slots.binary_search_by_key(&report.cpu, |s| s.cpu) else { return };
        if let Some((task, src)) = report.pulled {
            let undone = shared.note_move(task, src, report.cpu, report.at);
            inner.counters.moves_undone += u64::from(undone);
        }
        let slot = &mut inner.slots[slot];
        // It ran out of work: from now on the shorter intervals count.
        slot.idle = report.pulled.is_none();
        slot.diced_until = Nanos::ZERO;
        let tried = slot.planned.count_ones().max(1);
        let cost = Nanos((report.cost.0 / u64::from(tried)).max(1));
        slot.max_idle_balance_cost = slot.max_idle_balance_cost.max(report.cost);
        for (level, link) in tree.chain(report.cpu).iter().enumerate() {
            let state = &mut inner.states[slot.first_state + level];
            if slot.diced >> level & 1 == 1 {
                update_newidle_stats(state, 0, report.at);
            }
            if slot.planned >> level & 1 == 0 {
                continue;
            }
            let found =
                report.pulled.is_some_and(|(_, src)| tree.domain(link.domain).span.test(src));
            let success = if found { success_weight(&config.tunables, state) } else { 0 };
            update_newidle_cost(state, cost, success, report.at);
            let count = &mut inner.counters.levels[facts.slot(link.domain)].newidle;
            count.plan_pulls += 1;
            count.plan_pulled += u64::from(found);
            count.newidle_cost_ns += cost.0;
            if found {
                break;
            }
        }
    }

    /// What a newidle pass of the CPU costs at most, for the cap of its average idle time; zero for
    /// CPUs outside the shard.
    pub fn max_idle_balance_cost(&self, cpu: CpuId) -> Nanos {
        let slots = &self.inner.slots;
        slots
            .binary_search_by_key(&cpu, |s| s.cpu)
            .map_or(Nanos::ZERO, |i| slots[i].max_idle_balance_cost)
    }
}

impl Inner {
    fn newidle_at(&self, slot: usize, level: usize, link: Link) -> At {
        At {
            cpu: self.slots[slot].cpu,
            level,
            link,
            state: self.slots[slot].first_state + level,
            idle: IdleType::NewlyIdle,
            pass: PassKind::Newidle,
        }
    }

    pub(super) fn newidle_pass<H: Host>(&mut self, cx: Cx, host: &mut H, slot: usize) -> u32 {
        let tunables = &cx.config.tunables;
        let (cpu, first) = (self.slots[slot].cpu, self.slots[slot].first_state);
        let chain = cx.tree.chain(cpu);
        let avg_idle = self.view.snapshot.cpu(cpu).avg_idle;
        let lowest = self.newidle_at(slot, 0, chain[0]);
        let start = may_start(tunables, cx.shared.is_overloaded(), avg_idle, &self.states[first]);
        if let Err(reason) = start {
            self.count(cx, &lowest).skip(reason);
            self.note_idle_entry(cx, slot);
            return 0;
        }
        let mut spent = Nanos::ZERO;
        let mut moved = 0;
        for (level, &link) in chain.iter().enumerate() {
            let at = self.newidle_at(slot, level, link);
            let domain = cx.tree.domain(link.domain);
            match may_visit(tunables, domain, &self.states[at.state], avg_idle, spent) {
                Ok(()) => {}
                Err(reason) => {
                    self.count(cx, &at).skip(reason);
                    if reason == SkipReason::IdleTooShort {
                        break;
                    }
                    continue;
                }
            }
            let Some(weight) = throw_dice(tunables, &self.states[at.state], &mut self.rng) else {
                update_newidle_stats(&mut self.states[at.state], 0, self.view.now());
                self.count(cx, &at).skip(SkipReason::NewidleDice);
                continue;
            };
            // A task may have come since the last level.
            self.view.look_at(host, cpu, cpu);
            let started = self.view.now();
            let attempt = self.visit(cx, host, &at, false, true);
            let now = self.view.read_clock(host);
            let cost = Nanos((now - started).0.max(1));
            spent += cost;
            self.count(cx, &at).newidle_cost_ns += cost.0;
            let (tasks, go_on) = attempt.map_or((0, true), |a| (a.moved, a.continue_balancing));
            moved += tasks;
            let success = if tasks > 0 { weight } else { 0 };
            update_newidle_cost(&mut self.states[at.state], cost, success, now);
            if moved > 0 || !go_on {
                break;
            }
        }
        let most = &mut self.slots[slot].max_idle_balance_cost;
        *most = spent.max(*most);
        if moved == 0 {
            self.note_idle_entry(cx, slot);
        }
        moved
    }

    /// The CPU goes idle: its levels are due by their shorter intervals from now on (kernel:
    /// `update_next_balance`).
    fn note_idle_entry(&mut self, cx: Cx, slot: usize) {
        let CpuSlot { cpu, first_state, .. } = self.slots[slot];
        let due = |(level, link): (usize, &Link)| {
            let domain = cx.tree.domain(link.domain);
            next_balance(&self.states[first_state + level], domain, false, cx.shared.pace)
        };
        let next = cx.tree.chain(cpu).iter().enumerate().map(due).min();
        let slot = &mut self.slots[slot];
        slot.idle = true;
        slot.due_idle = slot.due_idle.min(next.unwrap_or(Nanos::MAX));
    }

    /// A CPU's pull plan: at each level that it may visit, the sources that a newidle pass would
    /// choose.
    fn plan_for<H: Host>(&mut self, cx: Cx, host: &mut H, slot: usize) -> PullPlan {
        let tunables = &cx.config.tunables;
        let cpu = self.slots[slot].cpu;
        // The plan is for the moment at which the CPU has run out of work.
        let now_there = *self.view.snapshot.cpu(cpu);
        let avg_idle = now_there.avg_idle;
        let mut plan = PullPlan::default();
        let diced = self.dice_for(cx, slot);
        let mut planned = 0;
        let mut spent = Nanos::ZERO;
        for (level, &link) in cx.tree.chain(cpu).iter().enumerate() {
            let at = self.newidle_at(slot, level, link);
            let domain = cx.tree.domain(link.domain);
            let state = self.states[at.state];
            match may_visit(tunables, domain, &state, avg_idle, spent) {
                Ok(()) => {}
                Err(reason) => {
                    self.count(cx, &at).skip(reason);
                    if reason == SkipReason::IdleTooShort {
                        break;
                    }
                    continue;
                }
            }
            if diced >> level & 1 == 1 {
                self.count(cx, &at).skip(SkipReason::NewidleDice);
                continue;
            }
            let at_sources =
                cx.facts.numa_group(link).map_or(level, |numa_group| self.depth + numa_group);
            let holds = |(made_for, until)| made_for == link && self.published_at < until;
            if !self.sources[at_sources].made_for.is_some_and(holds) {
                self.view.see(host, &domain.span);
                self.view.pretend_idle(cpu);
                let made = self.find_sources(cx, host, &at, at_sources);
                self.view.restore(cpu, &now_there);
                if !made {
                    self.count(cx, &at).skip(SkipReason::SerializeBusy);
                    continue;
                }
            }
            // Neighbours begin with different ones of equally good sources.
            let LevelSources { plan: found, ties, .. } = self.sources[at_sources];
            let (equal, rest) = found.as_slice().split_at(ties);
            let turn = slot % ties.max(1);
            equal[turn..].iter().chain(&equal[..turn]).chain(rest).for_each(|&src| plan.add(src));
            planned |= 1 << level;
            spent += state.max_newidle_lb_cost;
        }
        self.slots[slot].planned = planned;
        plan
    }

    /// Works out a level's sources for the CPUs of one group, as a newidle pass would choose them:
    /// the busiest group first, then the next ones. The serialize flag is taken for as long as a
    /// serialized level is looked at; false if another CPU has it.
    fn find_sources<H: Host>(&mut self, cx: Cx, host: &mut H, at: &At, at_sources: usize) -> bool {
        let domain = cx.tree.domain(at.link.domain);
        let mut guard = None;
        // Otherwise for this publication, for all CPUs of the group.
        let mut until = self.published_at + Nanos(1);
        if serialize::applies(&cx.config.tunables, domain, PassKind::Newidle, false) {
            until = self.published_at + domain.min_interval.min(PLAN_HOLD);
            guard = self.take_flag(cx, host, at);
            if guard.is_none() {
                return false;
            }
        }
        self.cpus.clear_all();
        self.cpus.or_assign(&domain.span);
        let (mut plan, mut ties) = (PullPlan::default(), 0);
        for _ in 0..GROUPS_PLANNED {
            let env = Self::env(cx, at, at.cpu, &self.cpus, &self.view.idle_cpus);
            let add = |src| plan.add(src);
            let Some((group, equals)) = pull_sources(&env, &self.view.snapshot, &mut self.sds, add)
            else {
                break;
            };
            if ties == 0 {
                ties = equals.min(plan.len);
            }
            cx.tree.group(group).span.iter().for_each(|c| self.cpus.clear(c));
        }
        self.sources[at_sources] = LevelSources { made_for: Some((at.link, until)), plan, ties };
        self.give_flag_back(cx, host, at, guard);
        true
    }

    /// The levels that the dice keep out of a CPU's plan, thrown anew if the last throw was used or
    /// is too old.
    fn dice_for(&mut self, cx: Cx, slot: usize) -> u32 {
        let now = self.view.now();
        let CpuSlot { cpu, first_state, diced_until, .. } = self.slots[slot];
        if now >= diced_until {
            let mut diced = 0;
            for level in 0..cx.tree.chain(cpu).len() {
                let state = &self.states[first_state + level];
                if throw_dice(&cx.config.tunables, state, &mut self.rng).is_none() {
                    diced |= 1 << level;
                }
            }
            self.slots[slot].diced = diced;
            self.slots[slot].diced_until = now + PLAN_HOLD;
        }
        self.slots[slot].diced
    }
}
