//! Nohz idle balancing in rounds: what each CPU's tick does about it, and the helper's walk (kernel:
//! `nohz_balancer_kick`, `_nohz_idle_balance`).
//!
//! A walk covers all idle CPUs of the machine, but a worker owns the state of its shard only. So
//! the helper does its shard's part and hands the walk on, like a baton, to the next idle CPU of
//! another shard; the last one ends it.

use super::view::View;
use super::{Cx, Inner};
use crate::balancer::host::Host;
use crate::cpumask::Cpumask;
use crate::domains::{Link, SdFlags};
use crate::policy::env::{Env, IdleType, PassKind, asym_prefer};
use crate::policy::group_stats::capacity_reduced;
use crate::policy::nohz::{BusyTick, Candidates, Kick, Traffic, find_new_ilb};
use crate::policy::skip::SkipReason;
use crate::policy::tunables::OnOff;
use crate::units::{CpuId, Load, Nanos, Util};

/// The idle mask, looked at CPU by CPU.
struct Idlers<'a, H> {
    host: &'a mut H,
    view: &'a mut View,
    mask: &'a Cpumask,
}

impl<H: Host> Candidates for Idlers<'_, H> {
    fn next_idle(&mut self, mut from: CpuId) -> Option<CpuId> {
        loop {
            let cpu = self.host.next_maybe_idle(self.mask, from)?;
            if self.idles(cpu) {
                return Some(cpu);
            }
            from = CpuId(cpu.0 + 1);
        }
    }

    fn idles(&mut self, cpu: CpuId) -> bool {
        self.view.idles(self.host, cpu)
    }
}

impl Inner {
    /// One CPU's part in a round: it enters or leaves the idle mask, and if busy may kick a helper.
    pub(super) fn nohz_tick<H: Host>(&mut self, cx: Cx, host: &mut H, slot: usize) {
        let tunables = &cx.config.tunables;
        let (cpu, idle) = (self.slots[slot].cpu, self.slots[slot].idle);
        let nohz = &cx.shared.nohz;
        let mut traffic = Traffic::default();
        if nohz.is_idle(cpu) != idle {
            self.counters.nohz_transitions += 1;
            if idle {
                nohz.enter_idle(tunables, cpu, &mut traffic);
            } else {
                nohz.exit_idle(tunables, cpu, &mut traffic);
            }
        }
        if !idle {
            let now = self.view.now();
            let tick = || self.busy_tick(cx, cpu);
            let asked = nohz.kick_decision(tunables, now, tick, &mut traffic);
            let sent = asked.and_then(|kick| self.kick_helper(cx, host, kick));
            match sent {
                Ok(()) => self.counters.nohz_kicks += 1,
                Err(reason) => self.counters.nohz_skips[reason.index()] += 1,
            }
        }
        self.counters.nohz_checks += traffic.checks;
        self.counters.nohz_early_checks += traffic.early_checks;
        self.counters.nohz_line_writes += traffic.line_writes;
    }

    fn kick_helper<H: Host>(&mut self, cx: Cx, host: &mut H, kick: Kick) -> Result<(), SkipReason> {
        let nohz = &cx.shared.nohz;
        let rule = cx.config.tunables.ilb;
        let Self { view, nohz_idle, .. } = self;
        let times = (view.now(), cx.shared.pace.tick);
        let choose = |last| {
            nohz.idle_cpus(nohz_idle);
            let mut idlers = Idlers { host: &mut *host, view, mask: nohz_idle };
            find_new_ilb(rule, cx.facts, &mut idlers, last)
        };
        let helper = nohz.kick_ilb(&cx.config.tunables, kick, times, choose)?;
        host.kick(helper);
        Ok(())
    }

    /// What a busy CPU knows at its tick. Only called when idle balancing is due and wanted.
    fn busy_tick(&self, cx: Cx, cpu: CpuId) -> BusyTick {
        let view = self.view.snapshot.cpu(cpu);
        let nr_running = view.nr_running;
        if nr_running >= 2 {
            // Reason enough; the rest takes looking around.
            return BusyTick { nr_running, ..BusyTick::default() };
        }
        let chain = cx.tree.chain(cpu);
        let domain = |link: &Link| cx.tree.domain(link.domain);
        let with = |flag| move |link: &&Link| domain(link).flags.contains(flag);
        let idles_in = |link: &Link| {
            domain(link).span.iter().filter(|&c| cx.shared.nohz.is_idle(c)).count() as u32
        };
        let llc_busy = chain
            .iter()
            .rfind(with(SdFlags::SHARE_LLC))
            .map_or(0, |llc| domain(llc).weight.saturating_sub(idles_in(llc)));
        let asym = chain.iter().enumerate().rfind(|(_, l)| with(SdFlags::ASYM_PACKING)(l));
        BusyTick {
            nr_running,
            reduced: chain.first().is_some_and(|l| capacity_reduced(view, domain(l).imbalance_pct)),
            asym: asym.is_some_and(|(level, link)| self.preferred_idles(cx, cpu, level, *link)),
            misfit: chain
                .iter()
                .any(|l| domain(l).flags.contains(SdFlags::ASYM_CPUCAPACITY_FULL))
                .then_some(view.misfit_load > Load::ZERO),
            llc_busy,
        }
    }

    /// Whether an idle CPU of a packing domain is preferred to `cpu`.
    fn preferred_idles(&self, cx: Cx, cpu: CpuId, level: usize, link: Link) -> bool {
        let env = Env {
            tree: cx.tree,
            facts: cx.facts,
            tunables: &cx.config.tunables,
            marks: &cx.shared.marks,
            id: link.domain,
            local: link.local as usize,
            is_root: level + 1 == cx.tree.chain(cpu).len(),
            dst: cpu,
            idle: IdleType::NotIdle,
            cpus: &cx.tree.domain(link.domain).span,
            idle_cpus: &self.view.idle_cpus,
        };
        let idle = |c: &CpuId| cx.shared.nohz.is_idle(*c);
        env.cpus.iter().filter(idle).any(|c| asym_prefer(c, cpu) && env.use_asym_prio(c))
    }

    /// The helper's walk over the shard's idle CPUs, from its own position with wrap, itself last.
    pub(super) fn nohz_idle_balance<H: Host>(
        &mut self,
        cx: Cx,
        host: &mut H,
        shard: &Cpumask,
        helper: usize,
    ) {
        let nohz = &cx.shared.nohz;
        let helper_cpu = self.slots[helper].cpu;
        let kick = nohz.take_pending(helper_cpu);
        if cx.config.tunables.nohz == OnOff::Off || kick.is_empty() {
            return;
        }
        if !self.view.idles(host, helper_cpu) {
            return self.abort_walk(cx, kick);
        }
        if !kick.contains(Kick::RELAY) {
            self.counters.ilb_runs += 1;
            nohz.begin_walk(helper_cpu, kick, self.view.now());
        }
        let mut next = Nanos::MAX;
        let mut has_blocked = false;
        let n = self.slots.len();
        for i in (1..=n).map(|step| (helper + step) % n) {
            let cpu = self.slots[i].cpu;
            if !nohz.is_idle(cpu) || !self.view.idles(host, cpu) {
                continue;
            }
            // What it has pulled for itself, or been given, comes first.
            if !self.view.idle_cpus.test(helper_cpu) {
                return self.abort_walk(cx, kick);
            }
            if kick.contains(Kick::STATS) {
                let view = self.view.snapshot.cpu(cpu);
                has_blocked |= view.load > Load::ZERO || view.util > Util::ZERO;
            }
            if kick.contains(Kick::BALANCE) && self.view.now() >= self.slots[i].due_idle {
                self.balance_domains(cx, host, i, IdleType::Idle, PassKind::Nohz);
                self.counters.ilb_cpus_balanced += 1;
            }
            next = next.min(self.slots[i].due_idle);
        }
        nohz.note_walk(next, has_blocked);
        nohz.idle_cpus(&mut self.nohz_idle);
        match nohz.next_helper(&self.nohz_idle, shard, helper_cpu) {
            Some(cpu) => {
                if nohz.hand_on(cpu, kick | Kick::RELAY) {
                    host.kick(cpu);
                }
            }
            None => nohz.end_walk(kick, self.view.now()),
        }
    }

    fn abort_walk(&mut self, cx: Cx, kick: Kick) {
        cx.shared.nohz.abort_walk(kick);
        self.counters.nohz_skips[SkipReason::NohzAborted.index()] += 1;
    }
}
