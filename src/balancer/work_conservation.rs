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
    /// Since when that queue has always had something waiting.
    pub since: Nanos,
}

/// What is known of why an idle CPU took no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyIdle {
    /// A CPU does not react: it was told to look for work and has not run since, or the CPU on which
    /// the task waits runs nothing, or has no tick. It is deep asleep, kept by something of a higher
    /// class, or a virtual CPU that its host does not run; no policy helps.
    NoReaction,
    /// Its last pass did nothing.
    Skipped(SkipReason),
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
    /// Why the CPU did nothing, if that is known.
    pub why: Option<WhyIdle>,
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
            Some(WhyIdle::NoReaction) => f.write_str("; one of the two did not react"),
            Some(WhyIdle::Skipped(reason)) => write!(f, "; its last pass: {reason}"),
            None => Ok(()),
        }
    }
}

/// The checker, to be fed with successive snapshots.
#[derive(Clone, Debug)]
pub struct WorkConservation {
    /// By CPU: when a violation was last counted. What began before belongs to that one.
    counted_at: Vec<Option<Nanos>>,
    violations: u64,
    no_reaction: u64,
    longest: Nanos,
    first: Option<Violation>,
}

impl WorkConservation {
    /// A checker for a machine of `width` CPU ids.
    pub fn new(width: usize) -> Self {
        Self {
            counted_at: vec![None; width],
            violations: 0,
            no_reaction: 0,
            longest: Nanos::ZERO,
            first: None,
        }
    }

    /// Looks at one snapshot and what waits at that time. A violation is a CPU that has idled without
    /// a break, and a queue elsewhere that has had something waiting without a break, for longer than
    /// `limit`, if a task there may run on the CPU. Each is counted once, however long, if a look falls
    /// into it. `why` tells why a CPU took
    /// nothing from another one.
    pub fn check(
        &mut self,
        snapshot: &Snapshot,
        cpus: &Cpumask,
        limit: Nanos,
        waiting: &[Waiting],
        may_run: impl Fn(&Waiting, CpuId) -> bool,
        why: impl Fn(CpuId, CpuId) -> Option<WhyIdle>,
    ) {
        let now = snapshot.now;
        for cpu in cpus.iter() {
            let view = snapshot.cpu(cpu);
            if !view.idle || view.nr_running > 0 {
                continue;
            }
            let elsewhere = waiting.iter().filter(|w| w.cpu != cpu && may_run(w, cpu));
            let Some(work) = elsewhere.min_by_key(|w| w.since) else { continue };
            let since = view.idle_since.max(work.since);
            let idle_for = now - since;
            self.longest = self.longest.max(idle_for);
            let counted_at = &mut self.counted_at[cpu.index()];
            if idle_for <= limit || counted_at.is_some_and(|at| since < at) {
                continue;
            }
            *counted_at = Some(now);
            self.violations += 1;
            let why = why(cpu, work.cpu);
            self.no_reaction += u64::from(why == Some(WhyIdle::NoReaction));
            if self.first.is_none() {
                let in_queue = waiting.iter().filter(|w| w.cpu == work.cpu).count() as u32;
                self.first =
                    Some(Violation { at: now, cpu, idle_for, waiting: *work, in_queue, why });
            }
        }
    }

    /// How often the limit was passed.
    pub fn violations(&self) -> u64 {
        self.violations
    }

    /// How many of them were for want of a reaction ([`WhyIdle::NoReaction`]).
    pub fn no_reaction(&self) -> u64 {
        self.no_reaction
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

    /// At `ms`, CPUs idle and queues have something waiting since the times given with them.
    fn check(wc: &mut WorkConservation, ms: u64, idle: &[(u32, u64)], waiting: &[(u32, u32, u64)]) {
        let mut snapshot = Snapshot::new(4);
        snapshot.now = Nanos::from_ms(ms);
        snapshot.cpus.iter_mut().for_each(|view| view.nr_running = 1);
        for &(cpu, since) in idle {
            let view = &mut snapshot.cpus[cpu as usize];
            (view.idle, view.nr_running, view.idle_since) = (true, 0, Nanos::from_ms(since));
        }
        let queue = |&(pid, cpu, since): &(u32, u32, u64)| Waiting {
            task: TaskKey { pid, generation: 1 },
            cpu: CpuId(cpu),
            since: Nanos::from_ms(since),
        };
        let waiting: Vec<Waiting> = waiting.iter().map(queue).collect();
        // Pid 9 is bound to CPU 0.
        let may_run = |w: &Waiting, cpu: CpuId| w.task.pid != 9 || cpu == CpuId(0);
        let why = |cpu, _| match cpu {
            CpuId(0) => Some(WhyIdle::NoReaction),
            _ => Some(WhyIdle::Skipped(SkipReason::CacheHot)),
        };
        wc.check(&snapshot, &Cpumask::full(4), LIMIT, &waiting, may_run, why);
    }

    #[test]
    fn one_stretch_is_one_violation_with_its_circumstances() {
        let mut wc = WorkConservation::new(4);
        for ms in [5, 10, 15, 16, 35] {
            check(&mut wc, ms, &[(2, 0)], &[(7, 1, 5), (8, 1, 5)]);
            assert_eq!(wc.violations(), u64::from(ms > 15), "at {ms} ms");
        }
        let first = wc.first().unwrap();
        assert_eq!((first.cpu, first.waiting.cpu, first.in_queue), (CpuId(2), CpuId(1), 2));
        assert_eq!(
            first.to_string(),
            "CPU 2 idled for 11000 us while pid 7 waited on CPU 1 (2 waiting there); its last \
             pass: the tasks that could move were cache-hot"
        );
        assert_eq!(wc.longest(), Nanos::from_ms(30));
        // It worked, and idles again; then the queue was empty, and is not any more.
        check(&mut wc, 51, &[(2, 40)], &[(7, 1, 5)]);
        check(&mut wc, 70, &[(2, 40)], &[(7, 1, 59)]);
        assert_eq!(wc.violations(), 3);
    }

    #[test]
    fn cpus_that_do_not_react_are_told_apart() {
        let mut wc = WorkConservation::new(4);
        check(&mut wc, 11, &[(0, 0), (2, 0)], &[(7, 1, 0)]);
        assert_eq!((wc.violations(), wc.no_reaction()), (2, 1));
        assert!(wc.first().unwrap().to_string().ends_with("one of the two did not react"));
    }

    #[test]
    fn bound_tasks_and_breaks_do_not_count() {
        let mut wc = WorkConservation::new(4);
        for ms in 0..50 {
            // Pid 9 cannot go to CPU 3; another queue is not empty for long; its own is its own.
            let recent = ms.max(9) - 9;
            check(&mut wc, ms, &[(3, 0)], &[(9, 1, 0), (5, 1, recent), (6, 3, 0)]);
        }
        assert_eq!((wc.violations(), wc.first()), (0, None));
    }
}
