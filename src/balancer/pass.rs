//! One balancing attempt of one CPU at one level, from the election to the moves (kernel:
//! `sched_balance_rq`). Deciding is the policy's; this file asks the host and keeps the order.

use super::{Cx, Inner};
use crate::balancer::host::{Host, MoveOutcome};
use crate::cpumask::Cpumask;
use crate::domains::{GroupId, Link};
use crate::policy::active::need_active_balance;
use crate::policy::decide::{Ending, PassOutcome, Plan, decide, settle};
use crate::policy::detach::select_tasks;
use crate::policy::env::{Env, IdleType, PassKind};
use crate::policy::serialize::SerializeGuard;
use crate::policy::should_balance::should_we_balance;
use crate::policy::skip::SkipReason;
use crate::policy::tunables::SerializeOnLoss;
use crate::stats::counters::PassCounters;
use crate::stats::decision_log::{Decision, TASKS_NAMED, Verdict};
use crate::units::{CpuId, TaskKey};

/// Which attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    /// For this CPU.
    pub(super) cpu: CpuId,
    /// Position in its chain.
    pub(super) level: usize,
    /// The domain there.
    pub(super) link: Link,
    /// Index of the state of this CPU and level.
    pub(super) state: usize,
    /// What the CPU is doing.
    pub(super) idle: IdleType,
    /// Which pass this is.
    pub(super) pass: PassKind,
}

/// How an attempt ended, for the walk over the levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Waiting tasks that moved.
    pub(super) moved: u32,
    /// Whether this CPU should go on to wider levels.
    pub(super) continue_balancing: bool,
    /// Why nothing was done, if so.
    pub(super) skip: Option<SkipReason>,
}

/// A pass under way: where it pulls to, what is left, what it met.
struct Pull {
    dst: CpuId,
    moved: u32,
    left: u64,
    some_pinned: bool,
    all_pinned: bool,
    tried: bool,
    skip: SkipReason,
}

impl Inner {
    /// The environment of an attempt; takes single fields, so that the others stay free.
    pub(super) fn env<'a>(
        cx: Cx<'a>,
        at: &At,
        dst: CpuId,
        cpus: &'a Cpumask,
        idle_cpus: &'a Cpumask,
    ) -> Env<'a> {
        Env {
            tree: cx.tree,
            facts: cx.facts,
            tunables: &cx.config.tunables,
            marks: &cx.shared.marks,
            id: at.link.domain,
            local: at.link.local as usize,
            is_root: at.level + 1 == cx.tree.chain(at.cpu).len(),
            dst,
            idle: at.idle,
            cpus,
            idle_cpus,
        }
    }

    /// Counters of an attempt.
    pub(super) fn count(&mut self, cx: Cx, at: &At) -> &mut PassCounters {
        self.counters.levels[cx.facts.slot(at.link.domain)].of_mut(at.idle)
    }

    /// Tries to take the serialize flag for an attempt.
    pub(super) fn take_flag<'s, H: Host>(
        &mut self,
        cx: Cx<'s>,
        host: &mut H,
        at: &At,
    ) -> Option<SerializeGuard<'s>> {
        let level = cx.tree.domain(at.link.domain).level;
        let guard = cx.shared.gate.try_acquire(cx.config.tunables.serialize_scope, level);
        let count = self.count(cx, at);
        count.serialize_attempts += 1;
        if guard.is_some() {
            count.serialize_acquired += 1;
            self.flag_taken = self.view.read_clock(host);
        } else {
            count.serialize_busy += 1;
        }
        guard
    }

    /// Gives the serialize flag back and counts for how long it was held.
    pub(super) fn give_flag_back<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        at: &At,
        guard: Option<SerializeGuard<'_>>,
    ) {
        if let Some(guard) = guard {
            drop(guard);
            let held = self.view.read_clock(host) - self.flag_taken;
            self.count(cx, at).serialize_hold_ns += held.0;
        }
    }

    /// One attempt. `needs_flag`: the flag is still to be taken, after the election; `guard` keeps
    /// it until the caller gives it back.
    pub(super) fn balance_rq<'s, H: Host>(
        &mut self,
        cx: Cx<'s>,
        host: &mut H,
        at: &At,
        needs_flag: bool,
        guard: &mut Option<SerializeGuard<'s>>,
    ) -> Attempt {
        let domain = cx.tree.domain(at.link.domain);
        self.view.see(host, &domain.span);
        self.cpus.clear_all();
        self.cpus.or_assign(&domain.span);
        self.count(cx, at).lb_count += 1;

        let mut pull = Pull {
            dst: at.cpu,
            moved: 0,
            left: 0,
            some_pinned: false,
            all_pinned: false,
            tried: false,
            skip: SkipReason::NoBusiest,
        };
        let mut record = self.record(cx, at);
        let mut continue_balancing = true;
        let mut log = true;

        // Once more for each source that turns out to be bound elsewhere altogether.
        let (ending, unit) = loop {
            let env = Self::env(cx, at, pull.dst, &self.cpus, &self.view.idle_cpus);
            if let Err(reason) = should_we_balance(&env, &self.view.snapshot) {
                let in_vain = guard.is_some() && !needs_flag && reason == SkipReason::NotElected;
                self.count(cx, at).serialize_not_elected += u64::from(in_vain);
                (pull.skip, continue_balancing, log) = (reason, false, false);
                break (Ending::Balanced, None);
            }
            if needs_flag && guard.is_none() {
                *guard = self.take_flag(cx, host, at);
                if guard.is_none() {
                    return self.lost(cx, at);
                }
                // What the last holder moved is seen: the flag was taken with acquire.
                self.view.look(host, &domain.span);
            }
            let env = Self::env(cx, at, pull.dst, &self.cpus, &self.view.idle_cpus);
            let decided = decide(&env, &self.view.snapshot, &mut self.sds);
            if env.is_root {
                cx.shared.set_overloaded(self.sds.overloaded);
            }
            record.local.1 = self.sds.local;
            record.busiest = self.sds.busiest.map(|id| (id, self.sds.busiest_stat));
            record.domain_load = self.sds.avg_load();
            let plan = match decided {
                Ok(plan) => plan,
                Err(reason) => {
                    let count = self.count(cx, at);
                    match reason {
                        SkipReason::NoBusiestQueue => count.lb_nobusyq += 1,
                        _ => count.lb_nobusyg += 1,
                    }
                    pull.skip = reason;
                    break (Ending::Balanced, None);
                }
            };
            record.plan = Some(plan);
            self.count(cx, at).imbalance(plan.unit, plan.imbalance);
            // As in the kernel: a source with a single task leaves this standing.
            pull.all_pinned = true;
            pull.left = plan.imbalance;
            pull.skip = SkipReason::OnlyRunning;
            if self.view.snapshot.cpu(plan.src).nr_running > 1 {
                self.pull(cx, host, at, &plan, &mut pull, &mut record);
                if pull.all_pinned && pull.moved == 0 {
                    pull.skip = SkipReason::AllPinned;
                    self.cpus.clear(plan.src);
                    let group = cx.tree.group(domain.groups[at.link.local as usize]);
                    if !self.cpus.is_subset(&group.balance_mask) {
                        continue;
                    }
                    break (Ending::AllPinned, Some(plan.unit));
                }
            }
            if pull.moved > 0 {
                let ending = Ending::Unbalanced { moved: pull.moved, pushed: false };
                break (ending, Some(plan.unit));
            }
            self.count(cx, at).lb_failed += 1;
            let ending = self.push(cx, host, at, &plan, &mut pull, &mut record);
            break (ending, Some(plan.unit));
        };

        let outcome = PassOutcome {
            ending,
            unit,
            some_pinned: pull.some_pinned,
            all_pinned: pull.all_pinned,
            imbalance_left: pull.left,
            tried_to_move: pull.tried,
        };
        let mark = settle(&mut self.states[at.state], domain, at.idle, &outcome);
        if let (Some(value), Some(group)) = (mark, Self::parent_group(cx, at)) {
            cx.shared.marks.set_imbalanced(group, value);
        }
        let (moved, pushed) = match ending {
            Ending::Unbalanced { moved, pushed } => (moved, pushed),
            _ => (0, false),
        };
        let done = moved + u32::from(pushed);
        let count = self.count(cx, at);
        if matches!(ending, Ending::Balanced | Ending::AllPinned) {
            count.lb_balanced += 1;
        }
        if done == 0 {
            count.skip(pull.skip);
            record.verdict = Verdict::Skipped(pull.skip);
        } else {
            record.verdict = Verdict::Moved(done);
        }
        if log {
            self.log.push(record);
        }
        Attempt { moved, continue_balancing, skip: (done == 0).then_some(pull.skip) }
    }

    /// The flag was taken by another CPU: nothing happens, or it counts as balanced.
    pub(super) fn lost(&mut self, cx: Cx, at: &At) -> Attempt {
        let reason = SkipReason::SerializeBusy;
        if cx.config.tunables.serialize_on_loss == SerializeOnLoss::Backoff {
            let domain = cx.tree.domain(at.link.domain);
            let state = &mut self.states[at.state];
            let mark = settle(state, domain, at.idle, &PassOutcome::BALANCED);
            if let (Some(value), Some(group)) = (mark, Self::parent_group(cx, at)) {
                cx.shared.marks.set_imbalanced(group, value);
            }
            self.count(cx, at).lb_balanced += 1;
        }
        self.count(cx, at).skip(reason);
        self.log.push(self.record(cx, at));
        Attempt { moved: 0, continue_balancing: true, skip: Some(reason) }
    }

    /// The CPU's own group at the next wider level.
    fn parent_group(cx: Cx, at: &At) -> Option<GroupId> {
        let parent = cx.tree.chain(at.cpu).get(at.level + 1)?;
        cx.tree.domain(parent.domain).groups.get(parent.local as usize).copied()
    }

    /// A record of the attempt, to be filled in.
    fn record(&self, cx: Cx, at: &At) -> Decision {
        let domain = cx.tree.domain(at.link.domain);
        Decision {
            seq: 0,
            at: self.view.now(),
            epoch: cx.config.epoch,
            pass: at.pass,
            cpu: at.cpu,
            idle: at.idle,
            level: domain.level,
            local: (domain.groups[at.link.local as usize], Default::default()),
            busiest: None,
            domain_load: Default::default(),
            nr_balance_failed: self.states[at.state].nr_balance_failed,
            plan: None,
            verdict: Verdict::Skipped(SkipReason::SerializeBusy),
            tasks: [None; TASKS_NAMED],
            nr_tasks: 0,
        }
    }

    /// Moves waiting tasks of the plan's source; where affinity keeps them from the destination,
    /// once more to another CPU of its group that they may use (kernel: `LBF_DST_PINNED`).
    fn pull<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        at: &At,
        plan: &Plan,
        pull: &mut Pull,
        record: &mut Decision,
    ) {
        pull.tried = true;
        loop {
            host.list_queue(plan.src, pull.dst, &mut self.tasks);
            if self.tasks.is_empty() {
                pull.all_pinned = false;
                pull.skip = SkipReason::SourceDrained;
                return;
            }
            let src = *self.view.snapshot.cpu(plan.src);
            let found = select_tasks(
                &Self::env(cx, at, pull.dst, &self.cpus, &self.view.idle_cpus),
                &self.tasks,
                self.view.now(),
                (plan.unit, pull.left),
                (src.nr_running, src.capacity),
                self.states[at.state].nr_balance_failed,
                &mut self.chosen,
            );
            pull.some_pinned |= found.pinned > 0;
            if found.looked_at > 0 {
                cx.shared.marks.set_bound(plan.group, found.pinned > 0);
            }
            pull.all_pinned &= !found.some_allowed;
            if !self.chosen.is_empty() {
                self.move_chosen(cx, host, at, plan, pull, record);
            } else if found.too_big > 0 {
                pull.skip = SkipReason::TooBig;
            } else if found.hot > 0 {
                pull.skip = SkipReason::CacheHot;
            }
            if found.pinned == 0 || pull.left == 0 || at.idle == IdleType::NewlyIdle {
                break;
            }
            let Some(other) = self.other_dst(cx, host, at) else { break };
            self.cpus.clear(pull.dst);
            pull.dst = other;
        }
        // The running task may be one that could come: then the queue is not bound elsewhere.
        if pull.all_pinned && src_may_give(self, host, plan.src, at.cpu) {
            pull.all_pinned = false;
        }
    }

    fn move_chosen<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        at: &At,
        plan: &Plan,
        pull: &mut Pull,
        record: &mut Decision,
    ) {
        self.keys.clear();
        self.keys.extend(self.chosen.iter().map(|c| c.key));
        host.move_tasks(plan.src, pull.dst, &self.keys, &mut self.outcomes);
        let mut gained = PassCounters::default();
        let now = self.view.now();
        for (i, chosen) in self.chosen.iter().enumerate() {
            // A host that answers for fewer tasks than were asked did not move the others.
            let outcome = self.outcomes.get(i).copied().unwrap_or(MoveOutcome::Expired);
            gained.moved(outcome);
            record.add_task(chosen.key, outcome, false);
            if outcome == MoveOutcome::Applied {
                gained.lb_gained += 1;
                gained.lb_hot_gained += u64::from(chosen.hot);
                pull.moved += 1;
                pull.left = pull.left.saturating_sub(chosen.value);
                let undone = self.recent.note(chosen.key, plan.src, pull.dst, now);
                self.counters.moves_undone += u64::from(undone);
            }
        }
        if pull.moved == 0 {
            pull.skip = SkipReason::MovesRefused;
        }
        self.count(cx, at).add(&gained);
        self.view.look_at(host, plan.src, pull.dst);
    }

    /// Another CPU of the destination's group on which one of the tasks that may not come could
    /// run.
    fn other_dst<H: Host>(&mut self, cx: Cx, host: &mut H, at: &At) -> Option<CpuId> {
        let domain = cx.tree.domain(at.link.domain);
        let group = cx.tree.group(domain.groups[at.link.local as usize]);
        self.alternatives.clear_all();
        for cpu in group.balance_mask.iter().filter(|&c| self.cpus.test(c)) {
            self.alternatives.set(cpu);
        }
        let bound = |t: &&crate::balancer::TaskView| {
            !t.allowed_on_dst && !t.migration_disabled && !t.percpu_kthread
        };
        let alternatives = &self.alternatives;
        self.tasks
            .iter()
            .filter(bound)
            .take(crate::balancer::NR_MIGRATE)
            .find_map(|t| host.allowed_in(t.key, alternatives))
    }

    /// Pushes the source's running task if that is called for (kernel: active balance).
    fn push<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        at: &At,
        plan: &Plan,
        pull: &mut Pull,
        record: &mut Decision,
    ) -> Ending {
        let failed = Ending::Unbalanced { moved: 0, pushed: false };
        let counts = at.idle != IdleType::NewlyIdle
            && plan.unit != crate::policy::imbalance::MigrationType::Misfit;
        let failures = self.states[at.state].nr_balance_failed.saturating_add(u32::from(counts));
        let env = Self::env(cx, at, pull.dst, &self.cpus, &self.view.idle_cpus);
        if !need_active_balance(&env, &self.view.snapshot, plan.src, plan.unit, failures) {
            return failed;
        }
        let task = self.view.snapshot.cpu(plan.src).current;
        if task == TaskKey::default() {
            pull.skip = SkipReason::PushRefused;
            return failed;
        }
        if !cx.shared.claim_push(plan.src) {
            pull.skip = SkipReason::ActiveBusy;
            return failed;
        }
        let outcome = host.push_running(plan.src, at.cpu, task);
        cx.shared.release_push(plan.src);
        let pushed = outcome == MoveOutcome::Applied;
        let count = self.count(cx, at);
        count.moved(outcome);
        count.alb_count += 1;
        count.alb_pushed += u64::from(pushed);
        count.alb_failed += u64::from(!pushed);
        record.add_task(task, outcome, true);
        if pushed {
            let undone = self.recent.note(task, plan.src, at.cpu, self.view.now());
            self.counters.moves_undone += u64::from(undone);
        }
        self.view.look_at(host, plan.src, at.cpu);
        match outcome {
            MoveOutcome::Applied => Ending::Unbalanced { moved: 0, pushed: true },
            MoveOutcome::RefusedAffinity => {
                pull.skip = SkipReason::RunningPinned;
                Ending::OnePinned
            }
            _ => {
                pull.skip = SkipReason::PushRefused;
                failed
            }
        }
    }
}

/// Whether the source's running task may run on the destination.
fn src_may_give<H: Host>(inner: &mut Inner, host: &mut H, src: CpuId, dst: CpuId) -> bool {
    let running = inner.view.snapshot.cpu(src).current;
    if running == TaskKey::default() {
        return false;
    }
    inner.alternatives.clear_all();
    inner.alternatives.set(dst);
    host.allowed_in(running, &inner.alternatives).is_some()
}
