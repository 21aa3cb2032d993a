//! One balancing attempt of one CPU at one level, from the election to the moves (kernel:
//! `sched_balance_rq`). Deciding is the policy's; this file asks the host and keeps the order.

use super::{Cx, Inner};
use crate::balancer::host::Host;
use crate::cpumask::Cpumask;
use crate::domains::{GroupId, Link};
use crate::policy::decide::{Ending, PassOutcome, decide, settle};
use crate::policy::env::{Env, IdleType, PassKind};
use crate::policy::serialize::SerializeGuard;
use crate::policy::should_balance::should_we_balance;
use crate::policy::skip::SkipReason;
use crate::policy::tunables::SerializeOnLoss;
use crate::stats::counters::PassCounters;
use crate::stats::decision_log::{Decision, TASKS_NAMED, Verdict};
use crate::units::CpuId;

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
pub(super) struct Pull {
    pub(super) dst: CpuId,
    pub(super) moved: u32,
    pub(super) left: u64,
    pub(super) some_pinned: bool,
    pub(super) all_pinned: bool,
    pub(super) tried: bool,
    pub(super) skip: SkipReason,
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
        // The election asks for the own group only; most CPUs look no further.
        if at.idle != IdleType::NewlyIdle {
            let group = cx.tree.group(domain.groups[at.link.local as usize]);
            self.view.see(host, &group.balance_mask);
        }
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
            self.view.see(host, &domain.span);
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
}
