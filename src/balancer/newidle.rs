//! Newidle balancing in two ways: the agent's own pass for a CPU that asks, and the pull plans that
//! let a CPU help itself (kernel: `sched_balance_newidle`).

use super::pass::At;
use super::pull_plan::{
    DICE_THROWN, DICED_LEVELS, PULL_PLAN_LEN, PullPlan, PullReport, PullSource, dice_index,
};
use super::{Balancer, Config, CpuSlot, Cx, Inner, LevelSources};
use crate::balancer::host::Host;
use crate::domains::{Link, SdFlags};
use crate::policy::decide::MAX_PINNED_INTERVAL;
use crate::policy::env::{IdleType, PassKind};
use crate::policy::interval::next_balance;
use crate::policy::newidle::{
    may_start, may_visit, pass_cost, pull_sources, success_weight, throw_dice, update_newidle_cost,
    update_newidle_stats,
};
use crate::policy::serialize;
use crate::policy::skip::SkipReason;
use crate::policy::tunables::Newidle;
use crate::units::{CpuId, Nanos};

/// Groups of one level that a plan draws sources from: the busiest may have drained by the time.
const GROUPS_PLANNED: usize = 2;

/// Other nodes that a plan names as a whole.
const NODES_PLANNED: usize = 4;

/// Longest time for which the sources of a serialized level are kept, so that plans do not contend
/// for the flag at every tick. Half the default limit of work conservation: it cannot break it.
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
        let wanted = config.tunables.newidle == Newidle::Plan;
        // While nobody has work to give, the last plans are as good as any: no look at the machine.
        let settled = inner.planned_epoch == Some(config.epoch);
        if settled && !(wanted && shared.is_overloaded()) {
            return;
        }
        inner.begin(host, cx, shard);
        inner.planned_epoch = Some(config.epoch);
        inner.published_at = inner.view.now();
        for i in 0..inner.slots.len() {
            let plan = if wanted { inner.plan_for(cx, host, i) } else { PullPlan::default() };
            let cpu = inner.slots[i].cpu;
            if plan != inner.slots[i].plan {
                host.set_pull_plan(cpu, &plan);
                inner.slots[i].plan = plan;
                inner.counters.plans_published += 1;
            }
            inner.tell_idle(cx, host, i);
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
        slot.throws_left = slot.throws_left.saturating_sub(1);
        if report.pulled.is_some() {
            (slot.tell_after, slot.tell_pause) = (Nanos::ZERO, Nanos::ZERO);
        }
        let tried = (slot.planned & !report.left_out).count_ones().max(1);
        let took = Nanos((report.cost.0 / u64::from(tried)).max(1));
        let mut spent = Nanos::ZERO;
        for (level, link) in tree.chain(report.cpu).iter().enumerate() {
            let state = &mut inner.states[slot.first_state + level];
            let count = &mut inner.counters.levels[facts.slot(link.domain)].newidle;
            if slot.planned >> level & 1 == 0 {
                continue;
            }
            if report.left_out >> dice_index(level) & 1 == 1 {
                update_newidle_stats(state, 0, report.at);
                count.skip(SkipReason::NewidleDice);
                continue;
            }
            let found =
                report.pulled.is_some_and(|(_, src)| tree.domain(link.domain).span.test(src));
            let success = if found { success_weight(&config.tunables, state) } else { 0 };
            let cost = pass_cost(&config.tunables, state, took);
            spent += cost;
            update_newidle_cost(state, cost, success, report.at);
            count.plan_pulls += 1;
            count.plan_pulled += u64::from(found);
            count.newidle_cost_ns += took.0;
            if found {
                break;
            }
        }
        slot.max_idle_balance_cost = slot.max_idle_balance_cost.max(spent);
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
    /// Tells a CPU that idles of work that has come to its sources since it looked. What waits there
    /// may be bound to where it is: told in vain, it is told half as often (as bound tasks slow a
    /// periodic pass down).
    fn tell_idle<H: Host>(&mut self, cx: Cx, host: &mut H, slot: usize) {
        let now = self.view.now();
        let slot = &mut self.slots[slot];
        let waits = |source: &PullSource| {
            let node = cx.facts.node_span(cx.facts.node_of()[source.cpu.index()]);
            let nr_running = |cpu| self.view.nr_seen(cpu);
            source.queues(node, nr_running).any(|cpu| nr_running(cpu) > 1)
        };
        let waiting = || slot.plan.sources().iter().any(waits);
        if now >= slot.tell_after && self.view.idle_cpus.test(slot.cpu) && waiting() {
            let pause = slot.tell_pause + slot.tell_pause;
            slot.tell_pause = pause.clamp(cx.shared.pace.tick, MAX_PINNED_INTERVAL);
            slot.tell_after = now + slot.tell_pause;
            host.look_again(slot.cpu);
        }
    }

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
            let took = Nanos((now - started).0.max(1));
            self.count(cx, &at).newidle_cost_ns += took.0;
            let cost = pass_cost(tunables, &mut self.states[at.state], took);
            spent += cost;
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
        plan.dice = self.dice_for(cx, slot);
        let (mut planned, mut filled) = (0, 0);
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
            let at_sources =
                cx.facts.numa_group(link).map_or(level, |numa_group| self.depth + numa_group);
            let made_for =
                self.sources[at_sources].made_for.filter(|(made_for, _)| *made_for == link);
            if made_for.is_none_or(|(_, until)| self.published_at >= until) {
                self.view.see(host, &domain.span);
                self.view.pretend_idle(cpu);
                let made = self.find_sources(cx, host, &at, at_sources);
                self.view.restore(cpu, &now_there);
                // Another one at the level: older sources do for this time, if there are any.
                if !made && made_for.is_none() {
                    self.count(cx, &at).skip(SkipReason::SerializeBusy);
                    continue;
                }
            }
            // Neighbours begin with different ones of equally good sources.
            let LevelSources { cpus: found, ties, .. } = &self.sources[at_sources];
            let (equal, rest) = found.split_at(*ties);
            let (last, first) = equal.split_at(slot % ties.max(&1));
            for &src in first.iter().chain(last).chain(rest) {
                plan.add(src, level);
            }
            planned |= 1 << level;
            spent += state.max_newidle_lb_cost;
            if !found.is_empty() || !domain.flags.contains(SdFlags::NUMA) {
                filled |= 1 << level;
            }
        }
        let mut far = [(0, 0); NODES_PLANNED];
        let far = self.far_nodes(cx, cpu, planned, &mut far);
        self.add_the_rest(cx, cpu, filled, PULL_PLAN_LEN - far.len(), &mut plan);
        for &(level, node) in far {
            let span = cx.facts.node_span(node);
            // Neighbours begin with different CPUs.
            let first = span.iter().nth(slot % span.weight().max(1)).unwrap_or(cpu);
            plan.add_node(first, level, span.weight() as u32 + 1);
        }
        self.slots[slot].planned = planned;
        plan
    }

    /// Fills `far` with the other nodes of the NUMA levels in `planned`, nearest first, each with the
    /// first of its levels, and gives the filled part. What the policy tolerates on another node while
    /// that has room ends when it has more tasks than CPUs: then its group is overloaded, and pulled
    /// from whatever its other numbers are.
    fn far_nodes<'a>(
        &self,
        cx: Cx,
        cpu: CpuId,
        planned: u32,
        far: &'a mut [(usize, u16)],
    ) -> &'a [(usize, u16)] {
        let chain = cx.tree.chain(cpu);
        let mut len = 0;
        for view in cx.facts.numa_views(cx.facts.node_of()[cpu.index()]) {
            let level = chain.iter().position(|link| link.domain == view.domain);
            let Some(level) = level.filter(|level| planned >> level & 1 == 1) else { continue };
            for &node in view.others.iter().flatten() {
                // Where nodes form a ring or a line, the groups of a level overlap those before it.
                if len < far.len() && far[..len].iter().all(|&(_, named)| named != node) {
                    far[len] = (level, node);
                    len += 1;
                }
            }
        }
        &far[..len]
    }

    /// Appends the other CPUs of the levels in `filled`, nearest first, until the plan has `room`: a plan
    /// is for what comes after it was made, and a source is looked at again when it is used. NUMA
    /// levels only while the policy finds something to pull there: it may tolerate what waits on
    /// another node.
    fn add_the_rest(&self, cx: Cx, cpu: CpuId, filled: u32, room: usize, plan: &mut PullPlan) {
        for (level, link) in cx.tree.chain(cpu).iter().enumerate() {
            if filled >> level & 1 == 0 {
                continue;
            }
            for src in cx.tree.domain(link.domain).span.iter_wrap(cpu).filter(|&src| src != cpu) {
                if plan.len() >= room {
                    return;
                }
                plan.add(src, level);
            }
        }
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
        let sources = &mut self.sources[at_sources];
        sources.cpus.clear();
        sources.ties = 0;
        for _ in 0..GROUPS_PLANNED {
            let env = Self::env(cx, at, at.cpu, &self.cpus, &self.view.idle_cpus);
            let add = |src| sources.add(src);
            let Some((group, equals)) = pull_sources(&env, &self.view.snapshot, &mut self.sds, add)
            else {
                break;
            };
            if sources.ties == 0 {
                sources.ties = equals.min(sources.cpus.len());
            }
            cx.tree.group(group).span.iter().for_each(|c| self.cpus.clear(c));
        }
        sources.made_for = Some((at.link, until));
        self.give_flag_back(cx, host, at, guard);
        true
    }

    /// The dice of a CPU's plan, thrown anew if all throws were used.
    fn dice_for(&mut self, cx: Cx, slot: usize) -> [u32; DICED_LEVELS] {
        let CpuSlot { cpu, first_state, throws_left, .. } = self.slots[slot];
        if throws_left > 0 {
            return self.slots[slot].plan.dice;
        }
        self.slots[slot].throws_left = DICE_THROWN;
        let mut dice = [0; DICED_LEVELS];
        for level in 0..cx.tree.chain(cpu).len() {
            let state = &self.states[first_state + level];
            let throws = (0..DICE_THROWN).map(|n| {
                let thrown = throw_dice(&cx.config.tunables, state, &mut self.rng);
                u32::from(thrown.is_none()) << n
            });
            dice[dice_index(level)] = throws.sum();
        }
        dice
    }
}
