//! One worker: balances the CPUs of its shard while there is something to balance, and sleeps
//! while there is not.

use super::bpf::intf;
use super::live::Live;
use super::live_host::LiveHost;
use super::meters::{Meter, Meters};
use crate::balancer::{Balancer, StandIn};
use crate::cpumask::Cpumask;
use crate::units::Nanos;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How workers and the thread that hears the doorbell find each other.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) quit: AtomicBool,
    /// Workers that have nothing to balance.
    idle: AtomicUsize,
}

impl Roster {
    /// Whether all of `workers` have nothing to balance.
    pub(crate) fn all_idle(&self, workers: usize) -> bool {
        self.idle.load(Ordering::SeqCst) == workers
    }
}

/// What a worker needs to run.
pub(crate) struct Worker<'a> {
    pub(crate) balancer: Balancer,
    pub(crate) planner: StandIn,
    pub(crate) host: LiveHost<'a>,
    pub(crate) live: &'a Live,
    pub(crate) meters: &'a Meters,
    pub(crate) roster: &'a Roster,
    pub(crate) tick: Nanos,
    pub(crate) alloc_entry: usize,
}

/// Longest sleep while tasks run but none waits: what is left to find then is a better place for
/// a running one.
const QUIET_SLEEP: Nanos = Nanos::from_ms(100);
/// Longest sleep of an idle machine, shared among its workers.
const IDLE_SLEEP: Nanos = Nanos::from_secs(1);

/// What a shard's CPUs are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Idle,
    Running,
    Waiting,
}

impl Worker<'_> {
    /// Balances until told to quit.
    pub(crate) fn run(mut self) {
        pin_to(self.balancer.shard());
        let mut config = self.live.config.load();
        // The first round touches everything that later ones touch.
        self.round(&config);
        let mut meter = Meter::start(self.meters, self.alloc_entry);
        while !self.roster.quit.load(Ordering::Relaxed) {
            self.live.config.refresh(&mut config);
            self.round(&config);
            meter.publish();
            self.rest();
            meter.woke();
        }
        meter.publish();
    }

    fn round(&mut self, config: &crate::balancer::Config) {
        self.balancer.round(&mut self.host, config);
        self.planner.round(&mut self.host);
    }

    /// Sleeps until the next CPU is due, or until the doorbell rings if there is nothing to do.
    fn rest(&self) {
        let until_due = (self.balancer.next_due() - self.host.last_seen()).max(self.tick);
        match self.activity() {
            Activity::Waiting => park(until_due.min(QUIET_SLEEP)),
            Activity::Running => self.rest_idle(QUIET_SLEEP),
            Activity::Idle => {
                self.rest_idle(Nanos(IDLE_SLEEP.0 * self.live.workers.len() as u64));
            }
        }
    }

    fn rest_idle(&self, time: Nanos) {
        self.roster.idle.fetch_add(1, Ordering::SeqCst);
        park(time);
        self.roster.idle.fetch_sub(1, Ordering::SeqCst);
    }

    fn activity(&self) -> Activity {
        let cpus = &self.live.tables.cpus;
        let mut activity = Activity::Idle;
        for i in 0..cpus.len() {
            let cpu: intf::baton_cpu = cpus.read(i);
            if cpu.nr_queued > 0 {
                return Activity::Waiting;
            }
            // The agent itself does not count: it runs because it looks.
            if cpu.nr_runnable > 0 && self.balancer.shard().test(i.into()) {
                activity = Activity::Running;
            }
        }
        activity
    }
}

fn park(time: Nanos) {
    std::thread::park_timeout(Duration::from_nanos(time.0));
}

/// Keeps the calling thread on these CPUs. If the kernel refuses (a cpuset forbids them), it stays
/// where it may run: slower, not wrong.
fn pin_to(cpus: &Cpumask) {
    let words = cpus.words();
    // SAFETY: the mask is valid for the length given; 0 is the calling thread.
    let ret = unsafe { libc::sched_setaffinity(0, size_of_val(words), words.as_ptr().cast()) };
    if ret != 0 {
        log::warn!("a worker cannot be kept on CPUs {cpus}: a cpuset forbids them");
    }
}
