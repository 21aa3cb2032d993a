//! The work-conservation checker on the live machine: samples all CPUs at every round and lists
//! what waits, but only while some CPU idles and some task waits.

use super::live::Live;
use super::live_host::LiveHost;
use crate::balancer::{Config, Host, Snapshot, TaskView, Waiting, WhyIdle, WorkConservation};
use crate::cpumask::Cpumask;
use crate::policy::skip::SkipReason;
use crate::stats::decision_log::Verdict;
use crate::units::{CpuId, Nanos};

/// Waiting tasks that one sample looks at, over all queues.
const SAMPLED: usize = 32;

/// The checker and its scratch space, sized once.
pub(crate) struct Conservation {
    checker: WorkConservation,
    /// Shortest time after which a CPU that has not ticked counts as one that does not react.
    patience: Nanos,
    cpus: Cpumask,
    snapshot: Snapshot,
    listed: Vec<TaskView>,
    waiting: Vec<Waiting>,
    /// CPUs on which each of `waiting` may run.
    allowed: Vec<Cpumask>,
}

impl Conservation {
    /// A checker for these CPUs, which tick every `tick` while they are busy.
    pub(crate) fn new(cpus: Cpumask, tick: Nanos) -> Self {
        let width = cpus.width();
        Self {
            checker: WorkConservation::new(width),
            patience: tick + tick,
            snapshot: Snapshot::new(width),
            listed: Vec::with_capacity(SAMPLED),
            waiting: Vec::with_capacity(SAMPLED),
            allowed: vec![Cpumask::new(width); SAMPLED],
            cpus,
        }
    }

    /// One sample.
    pub(crate) fn check(&mut self, host: &mut LiveHost<'_>, live: &Live, config: &Config) {
        host.observe(&self.cpus, &mut self.snapshot);
        self.waiting.clear();
        let snapshot = &self.snapshot;
        let idle = |cpu: &CpuId| snapshot.cpu(*cpu).idle && snapshot.cpu(*cpu).nr_running == 0;
        if let Some(dst) = self.cpus.iter().find(idle) {
            for src in self.cpus.iter().filter(|c| snapshot.cpu(*c).nr_running > 1) {
                host.list_queue(src, dst, &mut self.listed);
                // After the list: what came to an empty queue meanwhile brings its own time.
                let since = host.queued_since(src);
                for task in self.listed.iter().filter(|t| !t.migration_disabled) {
                    let Some(allowed) = self.allowed.get_mut(self.waiting.len()) else { break };
                    if host.affinity(task.key, allowed) {
                        self.waiting.push(Waiting { task: task.key, cpu: src, since });
                    }
                }
            }
        }
        let (waiting, allowed) = (&self.waiting, &self.allowed);
        let may_run = |w: &Waiting, cpu| {
            let i = waiting.iter().position(|other| other.task == w.task);
            i.is_some_and(|i| allowed[i].test(cpu))
        };
        let limit = Nanos::from_ms(u64::from(config.tunables.wc_limit_ms));
        let found = |c: &WorkConservation| (c.violations(), c.longest());
        let before = found(&self.checker);
        let patience = limit.max(self.patience);
        let why = |cpu, src| match host.reacts(cpu, src, snapshot, patience) {
            false => Some(WhyIdle::NoReaction),
            true => last_skip(live, cpu).map(WhyIdle::Skipped),
        };
        self.checker.check(&self.snapshot, &self.cpus, limit, waiting, may_run, why);
        if found(&self.checker) != before {
            live.note_violations(&self.checker);
        }
    }
}

/// Why the last pass for a CPU did nothing, if it did nothing.
fn last_skip(live: &Live, cpu: CpuId) -> Option<SkipReason> {
    let worker = live.workers.iter().find(|w| w.shard.test(cpu))?;
    match worker.decisions.last_for(cpu)?.verdict {
        Verdict::Skipped(reason) => Some(reason),
        Verdict::Moved(_) => None,
    }
}
