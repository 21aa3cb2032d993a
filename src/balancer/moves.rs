//! The moves of a pass: waiting tasks pulled, the running one pushed (kernel: the second half of
//! `sched_balance_rq`).

use super::pass::{At, Pull};
use super::{Cx, Inner};
use crate::balancer::host::{Host, MoveOutcome, NR_MIGRATE, TaskView};
use crate::policy::active::need_active_balance;
use crate::policy::decide::{Ending, Plan};
use crate::policy::detach::select_tasks;
use crate::policy::env::IdleType;
use crate::policy::imbalance::MigrationType;
use crate::policy::skip::SkipReason;
use crate::stats::counters::PassCounters;
use crate::stats::decision_log::Decision;
use crate::units::{CpuId, TaskKey};

impl Inner {
    /// Moves waiting tasks of the plan's source; where affinity keeps them from the destination,
    /// once more to another CPU of its group that they may use (kernel: `LBF_DST_PINNED`).
    pub(super) fn pull<H: Host>(
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
                let undone = cx.shared.note_move(chosen.key, plan.src, pull.dst, now);
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
        let bound = |t: &&TaskView| !t.allowed_on_dst && !t.migration_disabled && !t.percpu_kthread;
        let alternatives = &self.alternatives;
        self.tasks
            .iter()
            .filter(bound)
            .take(NR_MIGRATE)
            .find_map(|t| host.allowed_in(t.key, alternatives))
    }

    /// Pushes the source's running task if that is called for (kernel: active balance).
    pub(super) fn push<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        at: &At,
        plan: &Plan,
        pull: &mut Pull,
        record: &mut Decision,
    ) -> Ending {
        let failed = Ending::Unbalanced { moved: 0, pushed: false };
        let counts = at.idle != IdleType::NewlyIdle && plan.unit != MigrationType::Misfit;
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
            let undone = cx.shared.note_move(task, plan.src, at.cpu, self.view.now());
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
