//! One worker: balances the CPUs of its shard while there is something to balance, and sleeps
//! while there is not.

use super::bell::Bell;
use super::budget::Budget;
use super::conservation::Conservation;
use super::live::{Live, WorkerView};
use super::live_host::LiveHost;
use super::machine::pin_to;
use super::meters::Meter;
use super::roster::Roster;
use crate::balancer::{Balancer, Config};
use crate::cpumask::Cpumask;
use crate::policy::tunables::Newidle;
use crate::units::Nanos;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a worker needs to run.
pub(crate) struct Worker<'a> {
    pub(crate) balancer: Balancer,
    pub(crate) host: LiveHost<'a>,
    pub(crate) live: &'a Live,
    pub(crate) view: &'a WorkerView,
    pub(crate) roster: &'a Roster,
    pub(crate) bell: Bell,
    /// Given to one worker only: it looks at the whole machine.
    pub(crate) conservation: Option<Conservation>,
    /// CPUs on which it runs.
    pub(crate) home: Cpumask,
    pub(crate) tick: Nanos,
    pub(crate) budget: Budget,
    pub(crate) alloc_entry: usize,
}

/// How long a CPU that was idle may be busy before the worker looks at it, in ticks.
const FRESH_TICKS: u64 = 16;
/// How late the balance of busy CPUs may be for the sake of the worker's budget, in intervals.
const PATIENCE: u64 = 15;
/// Longest sleep of an idle machine, shared among its workers.
const IDLE_SLEEP: Nanos = Nanos::from_secs(1);

/// What the machine is doing, to one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Nothing runs in the shard, nothing waits anywhere.
    Idle,
    /// Tasks run in the shard or wait somewhere.
    Busy,
    /// A task waits for a CPU that another class has: none of our ticks tells of it.
    Blocked,
}

impl Worker<'_> {
    /// Balances until told to quit.
    pub(crate) fn run(mut self) {
        pin_to(&self.home);
        let mut config = self.live.config.load();
        // The first round touches everything that later ones touch.
        self.round(&config);
        let mut meter = Meter::start(&self.view.meters, self.alloc_entry);
        while !self.roster.should_quit() {
            self.live.config.refresh(&mut config);
            self.round(&config);
            let took = meter.woke();
            self.rest(took);
        }
        meter.publish();
    }

    fn round(&mut self, config: &Config) {
        self.host.begin_round();
        for &cpu in &self.view.cpus {
            // kernel: update_rq_avg_idle() caps at twice the largest cost.
            self.host.cap_avg_idle(cpu, Nanos(2 * self.balancer.max_idle_balance_cost(cpu).0));
        }
        let asks = config.tunables.newidle == Newidle::Agent;
        self.host.set_newidle_ask(asks);
        self.report_pulls(config);
        let waited = self.host.is_overloaded();
        if waited {
            self.balancer.shared().set_overloaded(true);
        }
        self.balancer.round(&mut self.host, config);
        if waited && !self.balancer.shared().is_overloaded() {
            self.host.clear_overloaded();
        }
        if asks {
            self.answer_asks(config);
        }
        self.balancer.publish_plans(&mut self.host, config);
        self.balancer.publish_fork_plans(&mut self.host, config);
        if let Some(conservation) = &mut self.conservation {
            conservation.check(&mut self.host, self.live, config);
        }
    }

    /// Tells the policy what the shard's CPUs did with their plans since the last round.
    fn report_pulls(&mut self, config: &Config) {
        for i in 0..self.view.cpus.len() {
            let cpu = self.view.cpus[i];
            while let Some(report) = self.host.next_pull(cpu) {
                self.balancer.report_pull(config, &report);
            }
        }
    }

    /// `--newidle agent`: a pass for each CPU of the shard that asked.
    fn answer_asks(&mut self, config: &Config) {
        for i in 0..self.view.cpus.len() {
            let cpu = self.view.cpus[i];
            if let Some(asked) = self.host.asked_at(cpu) {
                self.balancer.newidle(&mut self.host, config, cpu);
                self.host.answered(cpu);
                self.host.set_clock();
                self.view.newidle_latency.note(self.host.read_clock() - asked);
            }
        }
    }

    /// Sleeps until the BPF component, at a tick of a busy CPU, finds that there is something to do,
    /// or another worker rings. Only what no tick will tell of takes a timer. `took` is the CPU time
    /// of the last round: for its sake what busy CPUs ask for may be put off, never what waits for an
    /// idle CPU.
    fn rest(&mut self, took: Nanos) {
        let now = self.host.read_clock();
        let fresh = now + Nanos(FRESH_TICKS * self.tick.0);
        self.budget.charge(now, took);
        let wanted = self.balancer.due_busy(fresh);
        let patience = Nanos(PATIENCE * self.balancer.busy_interval().0);
        let due = self.budget.put_off(wanted, patience);
        self.view.meters.put_off.fetch_add(u64::from(due > wanted), Ordering::Relaxed);
        let due_idle = self.balancer.due_idle();
        let in_time = |t: Nanos| Duration::from_nanos(t.0);
        let timeout = match self.activity(now) {
            Activity::Idle => in_time(Nanos(IDLE_SLEEP.0 * self.live.workers.len() as u64)),
            Activity::Busy if self.balancer.idle_waits() => Duration::MAX,
            _ => in_time((due_idle - now).max(self.tick)),
        };
        self.host.sleep(&self.bell, due, due_idle, timeout);
    }

    fn activity(&self, now: Nanos) -> Activity {
        let cpus = &self.live.tables.cpus;
        let mut activity = Activity::Idle;
        for i in 0..cpus.len() {
            let cpu = cpus.ptr(i);
            // SAFETY: the entry is inside the mapping; volatile because others write it.
            let (queued, runnable, since) = unsafe {
                (
                    (&raw const (*cpu).nr_queued).read_volatile(),
                    (&raw const (*cpu).nr_runnable).read_volatile(),
                    Nanos((&raw const (*cpu).state_at).read_volatile()),
                )
            };
            // Not for a moment only, as between two tasks and while an agent runs.
            if now - since > self.tick && self.live.tables.is_blocked(i) {
                return Activity::Blocked;
            }
            if queued > 0 || (runnable > 0 && self.balancer.shard().test(i.into())) {
                activity = Activity::Busy;
            }
        }
        activity
    }
}
