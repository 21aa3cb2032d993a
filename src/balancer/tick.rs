//! One CPU's part in balancing, as the kernel runs it: each CPU at its own tick, with all state in
//! one place. For hosts whose executors are the CPUs themselves (the simulator); a worker of the
//! agent runs [`Balancer::round`] over its shard instead.

use super::{Balancer, Config, Cx};
use crate::balancer::host::Host;
use crate::policy::env::{IdleType, PassKind};
use crate::policy::tunables::OnOff;
use crate::units::CpuId;

impl Balancer {
    /// The tick of one CPU of the shard, or the kick of a helper (kernel: `sched_balance_trigger`,
    /// `nohz_balancer_kick`, `sched_balance_softirq`). Counters are not published; see
    /// [`Balancer::publish`].
    ///
    /// A CPU that idled since its last tick is due by its shorter intervals, as the kernel's one
    /// `rq->next_balance` is lowered at each idle entry.
    pub fn tick<H: Host>(&mut self, host: &mut H, config: &Config, cpu: CpuId) {
        let Some(i) = self.look_at_one(host, config, cpu) else { return };
        let Self { tree, facts, shared, shard, inner, .. } = self;
        let cx = Cx { tree, facts, shared, config };
        inner.idle_waits = inner.tickless && config.tunables.nohz == OnOff::On;
        let idled = inner.slots[i].idle;
        inner.slots[i].idle = inner.view.idle_cpus.test(cpu);
        if inner.view.snapshot.cpu(cpu).nr_running > 1 {
            shared.set_overloaded(true);
        }
        inner.nohz_tick(cx, host, i);
        if shared.nohz.is_pending(cpu) {
            inner.nohz_idle_balance(cx, host, shard, i);
        }
        let now = inner.view.now();
        let slot = &mut inner.slots[i];
        slot.idle = inner.view.idle_cpus.test(cpu);
        if slot.idle && inner.idle_waits {
            return;
        }
        let due = match (slot.idle, idled) {
            (true, _) => slot.due_idle,
            (false, true) => slot.due_busy.min(slot.due_idle),
            (false, false) => slot.due_busy,
        };
        if now >= due {
            let idle = if slot.idle { IdleType::Idle } else { IdleType::NotIdle };
            inner.balance_domains(cx, host, i, idle, PassKind::Periodic);
        }
        inner.counters.rounds += 1;
    }

    /// A CPU of the shard has stopped its tick: it enters the idle mask (kernel:
    /// `nohz_balance_enter_idle`).
    pub fn enter_idle<H: Host>(&mut self, host: &mut H, config: &Config, cpu: CpuId) {
        let Some(i) = self.look_at_one(host, config, cpu) else { return };
        let Self { tree, facts, shared, inner, .. } = self;
        inner.slots[i].idle = true;
        inner.nohz_tick(Cx { tree, facts, shared, config }, host, i);
    }

    /// A newidle pass for a CPU of the shard that is about to idle, as [`Balancer::newidle`] but
    /// without publishing the counters.
    pub fn newidle_quietly<H: Host>(&mut self, host: &mut H, config: &Config, cpu: CpuId) -> u32 {
        let Some(i) = self.look_at_one(host, config, cpu) else { return 0 };
        let Self { tree, facts, shared, inner, .. } = self;
        inner.newidle_pass(Cx { tree, facts, shared, config }, host, i)
    }

    /// Makes the counters of ticks and idle entries visible.
    pub fn publish(&self) {
        self.published.publish(&self.inner.counters);
    }

    /// The counters as they are now, for the thread that owns the balancer.
    pub fn running_counters(&self) -> &crate::stats::counters::Counters {
        &self.inner.counters
    }

    /// Starts a look at one CPU; its slot, if it is of the shard.
    fn look_at_one<H: Host>(&mut self, host: &mut H, config: &Config, cpu: CpuId) -> Option<usize> {
        let Self { tree, facts, shared, inner, .. } = self;
        let i = inner.slots.binary_search_by_key(&cpu, |s| s.cpu).ok()?;
        inner.begin_at(host, Cx { tree, facts, shared, config }, cpu);
        Some(i)
    }
}
