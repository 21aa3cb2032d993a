//! Checks from outside that work is conserved: no CPU stays idle for longer than a limit while a
//! task that may run there waits elsewhere. It knows nothing of how balancing decides.

use crate::balancer::Snapshot;
use crate::cpumask::Cpumask;
use crate::policy::skip::SkipReason;
use crate::units::{CpuId, Nanos, TaskKey};
use serde::Serialize;
use std::fmt;

/// A task that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Which.
    pub task: TaskKey,
    /// In whose queue.
    pub cpu: CpuId,
}

/// One time that work was not conserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// When the limit was passed.
    pub at: Nanos,
    /// The CPU that idled.
    pub cpu: CpuId,
    /// For how long it had idled with a task waiting that it might have run.
    pub idle_for: Nanos,
    /// Such a task.
    pub waiting: Waiting,
    /// Tasks waiting in the same queue.
    pub in_queue: u32,
    /// Why the CPU's last pass did nothing, if that is known.
    pub why: Option<SkipReason>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CPU {} idled for {} us while pid {} waited on CPU {} ({} waiting there)",
            self.cpu,
            self.idle_for.0 / 1_000,
            self.waiting.task.pid,
            self.waiting.cpu,
            self.in_queue
        )?;
        match self.why {
            Some(reason) => write!(f, "; its last pass: {reason}"),
            None => Ok(()),
        }
    }
}

/// What one CPU is in the middle of.
#[derive(Clone, Copy, Debug, Default)]
struct Episode {
    /// Since when it idles with work waiting elsewhere.
    since: Option<Nanos>,
    /// Whether the limit was passed and counted.
    counted: bool,
}

/// The checker, to be fed with successive snapshots.
#[derive(Clone, Debug)]
pub struct WorkConservation {
    episodes: Vec<Episode>,
    violations: u64,
    longest: Nanos,
    first: Option<Violation>,
}

impl WorkConservation {
    /// A checker for a machine of `width` CPU ids.
    pub fn new(width: usize) -> Self {
        Self {
            episodes: vec![Episode::default(); width],
            violations: 0,
            longest: Nanos::ZERO,
            first: None,
        }
    }

    /// Looks at one snapshot and what waits at that time. An idle CPU's time counts from the first
    /// snapshot that showed it idle with work waiting, so sampling errs towards too few; each
    /// episode is one violation, however long. `why` tells why a CPU's last pass did nothing.
    pub fn check(
        &mut self,
        snapshot: &Snapshot,
        cpus: &Cpumask,
        limit: Nanos,
        waiting: &[Waiting],
        may_run: impl Fn(&Waiting, CpuId) -> bool,
        why: impl Fn(CpuId) -> Option<SkipReason>,
    ) {
        let now = snapshot.now;
        for cpu in cpus.iter() {
            let view = snapshot.cpu(cpu);
            let idle = view.idle && view.nr_running == 0;
            let work = idle.then(|| waiting.iter().find(|w| w.cpu != cpu && may_run(w, cpu)));
            let episode = &mut self.episodes[cpu.index()];
            let Some(work) = work.flatten() else {
                *episode = Episode::default();
                continue;
            };
            // It may have worked between two snapshots.
            let since = episode.since.map_or(now, |since| since.max(view.idle_since)).min(now);
            if episode.since.is_some_and(|before| before != since) {
                episode.counted = false;
            }
            episode.since = Some(since);
            let idle_for = now - since;
            self.longest = self.longest.max(idle_for);
            if idle_for <= limit || episode.counted {
                continue;
            }
            episode.counted = true;
            self.violations += 1;
            if self.first.is_none() {
                let in_queue = waiting.iter().filter(|w| w.cpu == work.cpu).count() as u32;
                let why = why(cpu);
                self.first =
                    Some(Violation { at: now, cpu, idle_for, waiting: *work, in_queue, why });
            }
        }
    }

    /// How often the limit was passed.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// The longest time that a CPU idled while work waited, within the limit or not.
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// The first violation.
    pub fn first(&self) -> Option<&Violation> {
        self.first.as_ref()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const LIMIT: Nanos = Nanos::from_ms(10);

    fn check(wc: &mut WorkConservation, ms: u64, idle: &[u32], waiting: &[(u32, u32)]) {
        let mut snapshot = Snapshot::new(4);
        snapshot.now = Nanos::from_ms(ms);
        for (cpu, view) in (0u32..).zip(&mut snapshot.cpus) {
            view.idle = idle.contains(&cpu);
            view.nr_running = u32::from(!view.idle);
        }
        let queue = |&(pid, cpu): &(u32, u32)| Waiting {
            task: TaskKey { pid, generation: 1 },
            cpu: CpuId(cpu),
        };
        let waiting: Vec<Waiting> = waiting.iter().map(queue).collect();
        // Pid 9 is bound to CPU 0.
        let may_run = |w: &Waiting, cpu: CpuId| w.task.pid != 9 || cpu == CpuId(0);
        let why = |_| Some(SkipReason::CacheHot);
        wc.check(&snapshot, &Cpumask::full(4), LIMIT, &waiting, may_run, why);
    }

    #[test]
    fn one_episode_is_one_violation_with_its_circumstances() {
        let mut wc = WorkConservation::new(4);
        for ms in [0, 5, 10, 11, 30] {
            check(&mut wc, ms, &[2], &[(7, 1), (8, 1)]);
            assert_eq!(wc.violations(), u64::from(ms > 10), "at {ms} ms");
        }
        let first = wc.first().unwrap();
        assert_eq!((first.cpu, first.waiting.cpu, first.in_queue), (CpuId(2), CpuId(1), 2));
        assert_eq!(
            first.to_string(),
            "CPU 2 idled for 11000 us while pid 7 waited on CPU 1 (2 waiting there); its last \
             pass: the tasks that could move were cache-hot"
        );
        assert_eq!(wc.longest(), Nanos::from_ms(30));
        check(&mut wc, 31, &[], &[(7, 1)]);
        check(&mut wc, 32, &[2], &[(7, 1)]);
        check(&mut wc, 43, &[2], &[(7, 1)]);
        assert_eq!(wc.violations(), 2);
    }

    #[test]
    fn bound_tasks_and_breaks_do_not_count() {
        let mut wc = WorkConservation::new(4);
        for ms in 0..50 {
            // Work for CPU 3 only every other time; pid 9 cannot go there; its own queue is its own.
            let work = if ms % 2 == 0 { [(9, 1), (5, 1)] } else { [(9, 1), (6, 3)] };
            check(&mut wc, ms, &[3], &work);
        }
        assert_eq!((wc.violations(), wc.first()), (0, None));
    }
}
