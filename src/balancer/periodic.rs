//! The periodic pass: each CPU's chain, bottom-up, level by level as it comes due (kernel:
//! `sched_balance_domains`).

use super::pass::{At, Attempt};
use super::{Balancer, Config, Cx, Inner};
use crate::balancer::host::Host;
use crate::policy::env::{IdleType, PassKind};
use crate::policy::interval::{balance_interval, is_due, next_balance};
use crate::policy::newidle::{IDLE_COST_FLOOR, update_newidle_cost};
use crate::policy::serialize;
use crate::policy::skip::SkipReason;
use crate::policy::tunables::{OnOff, SerializeOnLoss, SerializeOrder, YesNo};
use crate::units::{CpuId, Nanos};

impl Balancer {
    /// Runs everything that is due for the shard, under one configuration. Allocates nothing.
    pub fn round<H: Host>(&mut self, host: &mut H, config: &Config) {
        let Self { tree, facts, shared, shard, published, inner } = self;
        let cx = Cx { tree, facts, shared, config };
        inner.begin(host, cx, shard);
        inner.idle_waits = inner.tickless && config.tunables.nohz == OnOff::On;
        for i in 0..inner.slots.len() {
            let cpu = inner.slots[i].cpu;
            inner.slots[i].idle = inner.view.idle_cpus.test(cpu);
            // Set as soon as it is seen (kernel: `add_nr_running`); only the root takes it back.
            if inner.view.snapshot.cpu(cpu).nr_running > 1 {
                shared.set_overloaded(true);
            }
            inner.nohz_tick(cx, host, i);
        }
        // Before the periodic passes, so that idle CPUs come first to what there is.
        for i in 0..inner.slots.len() {
            if cx.shared.nohz.is_pending(inner.slots[i].cpu) {
                inner.nohz_idle_balance(cx, host, shard, i);
            }
        }
        let now = inner.view.now();
        for i in 0..inner.slots.len() {
            let slot = &mut inner.slots[i];
            slot.idle = inner.view.idle_cpus.test(slot.cpu);
            if slot.idle && inner.idle_waits {
                continue;
            }
            let due = if slot.idle { slot.due_idle } else { slot.due_busy };
            if now >= due {
                let idle = if slot.idle { IdleType::Idle } else { IdleType::NotIdle };
                inner.balance_domains(cx, host, i, idle, PassKind::Periodic);
            }
        }
        inner.counters.rounds += 1;
        published.publish(&inner.counters);
    }
}

impl Inner {
    /// Starts a round: a fresh look at the shard, and fresh counters if the configuration changed.
    pub(super) fn begin<H: Host>(&mut self, host: &mut H, cx: Cx, shard: &crate::cpumask::Cpumask) {
        self.check_epoch(cx);
        self.view.begin(host, shard);
    }

    /// The same with a look at one CPU only.
    pub(super) fn begin_at<H: Host>(&mut self, host: &mut H, cx: Cx, cpu: CpuId) {
        self.check_epoch(cx);
        self.view.begin_at(host, cpu);
    }

    fn check_epoch(&mut self, cx: Cx) {
        if self.counters.epoch != cx.config.epoch {
            self.counters.restart(cx.config.epoch);
            // The dice too are thrown under one configuration.
            self.slots.iter_mut().for_each(|slot| slot.throws_left = 0);
        }
    }

    /// Balances every due level of one CPU and works out when it is due next.
    pub(super) fn balance_domains<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        slot: usize,
        mut idle: IdleType,
        pass: PassKind,
    ) {
        let (cpu, first) = (self.slots[slot].cpu, self.slots[slot].first_state);
        let pace = cx.shared.pace;
        let mut continue_balancing = true;
        let (mut due_busy, mut due_idle) = (Nanos::MAX, Nanos::MAX);
        let mut worth_busy = Nanos::MAX;
        let mut max_cost = Nanos::ZERO;
        let mut decayed = false;
        self.counters.visits += 1;
        for (level, &link) in cx.tree.chain(cpu).iter().enumerate() {
            let domain = cx.tree.domain(link.domain);
            let state = first + level;
            // Here because this is the regular visit to all levels.
            let now = self.view.now();
            decayed = update_newidle_cost(&mut self.states[state], Nanos::ZERO, 0, now);
            max_cost += self.states[state].max_newidle_lb_cost;
            // Another CPU of the group carries the balance further up; costs still decay.
            if !continue_balancing {
                if decayed {
                    continue;
                }
                break;
            }
            let busy = idle != IdleType::Idle;
            let due = is_due(&self.states[state], domain, busy, pace, now);
            let at = At { cpu, level, link, state, idle, pass };
            let mut unelected = false;
            if let Some(attempt) = self.visit(cx, host, &at, busy, due) {
                unelected = attempt.skip == Some(SkipReason::NotElected);
                if attempt.moved > 0 {
                    // Tasks may have gone to another CPU of the group: look again.
                    let idles = self.view.idle_cpus.test(cpu);
                    idle = if idles { IdleType::Idle } else { IdleType::NotIdle };
                }
                continue_balancing = attempt.continue_balancing;
                if self.stamps(cx, attempt.skip) {
                    self.states[state].last_balance = self.view.now();
                }
            }
            let next = next_balance(&self.states[state], domain, true, pace);
            due_busy = due_busy.min(next);
            // Due again at once, in case it is elected then, but no reason to come for.
            let interval = balance_interval(&self.states[state], domain, true, pace);
            worth_busy = worth_busy.min(if unelected { now + interval } else { next });
            due_idle = due_idle.min(next_balance(&self.states[state], domain, false, pace));
        }
        let slot = &mut self.slots[slot];
        if decayed {
            slot.max_idle_balance_cost = max_cost.max(IDLE_COST_FLOOR);
        }
        // A level that was not stamped is tried again at the next tick, not at once.
        let earliest = self.view.now() + pace.tick;
        slot.due_busy = due_busy.max(earliest);
        slot.worth_busy = worth_busy.max(earliest);
        slot.due_idle = due_idle.max(earliest);
        slot.idle = idle == IdleType::Idle;
    }

    /// One level: the serialize flag in the configured order, and the attempt if it is due.
    pub(super) fn visit<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        at: &At,
        busy: bool,
        due: bool,
    ) -> Option<Attempt> {
        let tunables = &cx.config.tunables;
        let domain = cx.tree.domain(at.link.domain);
        let gated = serialize::applies(tunables, domain, at.pass, busy);
        let order = tunables.serialize_order;
        let mut guard = None;
        if gated && (order == SerializeOrder::Always || (order == SerializeOrder::Due && due)) {
            guard = self.take_flag(cx, host, at);
            if guard.is_none() {
                return due.then(|| self.lost(cx, at));
            }
        }
        if !due {
            let count = self.count(cx, at);
            count.skip(SkipReason::NotDue);
            count.serialize_not_due += u64::from(guard.is_some());
            self.give_flag_back(cx, host, at, guard);
            return None;
        }
        let needs_flag = gated && order == SerializeOrder::Elected;
        let attempt = self.balance_rq(cx, host, at, needs_flag, &mut guard);
        self.give_flag_back(cx, host, at, guard);
        Some(attempt)
    }

    /// Whether the attempt counts for the level's last balance.
    fn stamps(&self, cx: Cx, skip: Option<SkipReason>) -> bool {
        let tunables = &cx.config.tunables;
        match skip {
            Some(SkipReason::NotElected) => tunables.stamp_unelected == YesNo::Yes,
            Some(SkipReason::SerializeBusy) => {
                tunables.serialize_on_loss == SerializeOnLoss::Backoff
            }
            _ => true,
        }
    }
}
