//! One worker: balances the CPUs of its shard while there is something to balance, and sleeps
//! while there is not.

use super::bpf::intf;
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
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a worker needs to run.
pub(crate) struct Worker<'a> {
    pub(crate) balancer: Balancer,
    pub(crate) host: LiveHost<'a>,
    pub(crate) live: &'a Live,
    pub(crate) view: &'a WorkerView,
    pub(crate) roster: &'a Roster,
    /// Given to one worker only: it looks at the whole machine.
    pub(crate) conservation: Option<Conservation>,
    pub(crate) slot: usize,
    /// CPUs on which it runs.
    pub(crate) home: Cpumask,
    pub(crate) tick: Nanos,
    pub(crate) alloc_entry: usize,
}

/// Time between rounds while tasks run but none waits: all there is to find then is a better place
/// for a running one.
const QUIET_SLEEP: Nanos = Nanos::from_ms(100);
/// Longest sleep, in ticks, while tasks wait but every CPU of the shard is busy.
const FULL_TICKS: u64 = 3;
/// Longest sleep of an idle machine, shared among its workers.
const IDLE_SLEEP: Nanos = Nanos::from_secs(1);

/// What the machine is doing, to one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// Nothing runs in the shard, nothing waits anywhere.
    Idle,
    /// Tasks run in the shard, none waits anywhere.
    Running,
    /// Some task waits.
    Waiting,
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
            meter.woke();
            self.rest();
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
        self.balancer.round(&mut self.host, config);
        if asks {
            self.answer_asks(config);
        }
        self.balancer.publish_plans(&mut self.host, config);
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
                self.view.newidle_latency.note(self.host.read_clock() - asked);
            }
        }
    }

    /// Sleeps for a tick while some task waits; else until somebody rings or, now and then, to see
    /// whether a running task should run elsewhere.
    fn rest(&self) {
        match self.activity() {
            Activity::Waiting => {
                park(self.tick);
                // Busy CPUs are due every 64 ms or more: a look every few ticks is enough for them.
                if self.all_busy() {
                    let time = Nanos(FULL_TICKS * self.tick.0);
                    self.sleep(intf::baton_sleep_BATON_FULL, time, Activity::Idle);
                }
            }
            Activity::Running => {
                self.sleep(intf::baton_sleep_BATON_LIGHT, QUIET_SLEEP, Activity::Waiting);
            }
            Activity::Idle => {
                let time = Nanos(IDLE_SLEEP.0 * self.live.workers.len() as u64);
                self.sleep(intf::baton_sleep_BATON_DEEP, time, Activity::Waiting);
            }
        }
    }

    /// Sleeps in a way that the BPF component can end; not at all if the machine is doing
    /// `unless`.
    fn sleep(&self, depth: intf::baton_sleep, time: Nanos, unless: Activity) {
        let asleep = self.live.tables.slots.ptr(self.slot);
        // SAFETY: the field is inside the mapping, which `self.live` keeps; both sides touch it
        // with atomic operations only.
        let asleep = unsafe { AtomicU32::from_ptr(&raw mut (*asleep).asleep) };
        asleep.store(depth, Ordering::SeqCst);
        // A task that was queued just before saw nobody asleep.
        if self.activity() != unless {
            park(time);
        }
        asleep.store(intf::baton_sleep_BATON_AWAKE, Ordering::SeqCst);
    }

    /// Whether every CPU of the shard has something to run.
    fn all_busy(&self) -> bool {
        self.view.cpus.iter().all(|cpu| !self.host.is_idle(*cpu))
    }

    fn activity(&self) -> Activity {
        let cpus = &self.live.tables.cpus;
        let mut activity = Activity::Idle;
        for i in 0..cpus.len() {
            let cpu = cpus.ptr(i);
            // SAFETY: the entry is inside the mapping; volatile because others write it.
            let (queued, runnable) = unsafe {
                let queued = (&raw const (*cpu).nr_queued).read_volatile();
                (queued, (&raw const (*cpu).nr_runnable).read_volatile())
            };
            if queued > 0 {
                return Activity::Waiting;
            }
            if runnable > 0 && self.balancer.shard().test(i.into()) {
                activity = Activity::Running;
            }
        }
        activity
    }
}

const _: () = assert!(std::mem::align_of::<intf::baton_slot>() >= align_of::<AtomicU32>());

fn park(time: Nanos) {
    std::thread::park_timeout(Duration::from_nanos(time.0));
}
