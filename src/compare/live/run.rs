//! One run: the workload's processes, what is seen of them meanwhile, what was counted.

use super::kernel::{sight, sight_with_settings};
use super::process::{Options, Process, signal_group};
use super::scheduler::Started;
use super::watch::{Counts, Watch};
use crate::compare::machine::{Job, Observation, Sight};
use crate::compare::side::Scheduler;
use crate::compare::workload::{LOGS, Printed};
use crate::topology::Topology;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// When the tasks are looked at first.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// How often they are looked at then; each look reads a few files of each task.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// What surrounds a run.
#[derive(Default)]
pub(super) struct Place<'a> {
    /// For the node of a CPU.
    pub(super) topology: Option<&'a Topology>,
    /// The scheduler that was started.
    pub(super) scheduler: Option<&'a mut Started>,
    /// Process group of the database server.
    pub(super) servers: Option<u32>,
}

/// Runs the workload; `None` if told to stop.
pub(super) fn run(
    job: &Job<'_>,
    mut place: Place<'_>,
    stop: &AtomicBool,
) -> Result<Option<Observation>> {
    let scheduler = place.scheduler.as_ref().map(|s| s.pid());
    // One that has left its work to another process before is not missed.
    let was_running = place.scheduler.as_mut().is_some_and(|s| s.ended().is_none());
    let logs = job.invocation.latency_logs.then(tempfile::tempdir).transpose();
    let logs = logs.context("no directory for logs can be made")?;
    let dir = logs.as_ref().map(|dir| dir.path().display().to_string()).unwrap_or_default();
    let words: Vec<String> = job.invocation.words.iter().map(|w| w.replace(LOGS, &dir)).collect();
    let look = || match job.scheduler {
        Scheduler::Baton { .. } => sight_with_settings(),
        _ => sight(),
    };
    let before = look();
    let mut watch = Watch::new(place.topology, place.servers);
    watch.look();
    let counts = Counts::now(place.topology, scheduler);
    let start = Instant::now();
    let mut processes = Vec::new();
    for _ in 0..job.invocation.copies {
        processes.push(Process::start(&words, &Options::default())?);
    }
    watch.groups(processes.iter().map(Process::group));
    let Some(statuses) = wait(&mut processes, &mut watch, start, stop)? else { return Ok(None) };
    let elapsed_s = statuses.iter().map(|(_, at)| *at).max().unwrap_or_default().as_secs_f64();
    let mut counters = Counts::now(place.topology, scheduler).since(&counts, elapsed_s);
    watch.add_to(&mut counters, elapsed_s);
    let after: Sight = look();
    let scheduler_ended = place.scheduler.filter(|_| was_running).and_then(Started::ended);
    let failure = processes
        .iter_mut()
        .zip(&statuses)
        .find_map(|(process, (status, _))| process.failure(*status));
    let printed = Printed {
        stdout: processes.iter_mut().map(Process::stdout).collect(),
        elapsed_s,
        latencies_ms: logs.as_ref().map(|dir| latencies(dir.path())).unwrap_or_default(),
    };
    let charge = watch.charge;
    Ok(Some(Observation { printed, failure, before, after, scheduler_ended, charge, counters }))
}

/// Waits for all; the times count from `start`. Told to stop, it ends them and returns `None`.
fn wait(
    processes: &mut [Process],
    watch: &mut Watch<'_>,
    start: Instant,
    stop: &AtomicBool,
) -> Result<Option<Vec<(ExitStatus, Duration)>>> {
    let groups: Vec<u32> = processes.iter().map(Process::group).collect();
    std::thread::scope(|scope| {
        let (ended, told) = channel();
        for (i, process) in processes.iter_mut().enumerate() {
            let ended = ended.clone();
            // A thread that only waits, so that the end is stamped as it happens.
            scope.spawn(move || {
                let status = process.wait();
                let _ = ended.send((i, status, start.elapsed()));
            });
        }
        drop(ended);
        let mut found: Vec<Option<(ExitStatus, Duration)>> = vec![None; groups.len()];
        let mut next = FIRST_LOOK;
        let mut stopped = false;
        loop {
            let wait = next.saturating_sub(start.elapsed()).min(Duration::from_millis(200));
            match told.recv_timeout(wait) {
                Ok((i, status, at)) => found[i] = Some((status?, at)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if found.iter().all(Option::is_some) {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                // Harder if it was asked before.
                let signal = if stopped { Signal::KILL } else { Signal::TERM };
                groups.iter().for_each(|&group| signal_group(group, signal));
                stopped = true;
                next = start.elapsed() + LOOK_PERIOD;
            } else if start.elapsed() >= next {
                watch.look();
                next = start.elapsed() + LOOK_PERIOD;
            }
        }
        // Told to stop, the workload may still have ended by itself; it does not matter.
        let all: Option<Vec<_>> = found.into_iter().collect();
        Ok(all.filter(|_| !stopped && !stop.load(Ordering::Relaxed)))
    })
}

/// The latencies of all transactions in pgbench's logs: the third word of a line, microseconds.
fn latencies(dir: &Path) -> Vec<f64> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let mut found = Vec::new();
    for text in texts {
        let us = text.lines().filter_map(|l| l.split_whitespace().nth(2)?.parse::<f64>().ok());
        found.extend(us.map(|us| us / 1e3));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::workload::Invocation;

    fn job<'a>(invocation: &'a Invocation) -> Job<'a> {
        Job { scheduler: &Scheduler::Kernel, invocation }
    }

    fn sh(script: &str, copies: u32) -> Invocation {
        let words = ["sh", "-c", script].map(String::from).into();
        Invocation { words, copies, latency_logs: false }
    }

    #[test]
    fn every_copy_runs_at_once_and_is_read() {
        let invocation = sh("sleep 0.3; echo done", 3);
        let run =
            run(&job(&invocation), Place::default(), &AtomicBool::new(false)).unwrap().unwrap();
        assert_eq!(run.printed.stdout, ["done\n"; 3]);
        assert!(run.printed.elapsed_s >= 0.3 && run.failure.is_none());
        assert!(run.counters.contains_key("context switches /s"), "{:?}", run.counters);
    }

    #[test]
    fn a_failing_workload_is_told() {
        let invocation = sh("echo why >&2; exit 1", 1);
        let run =
            run(&job(&invocation), Place::default(), &AtomicBool::new(false)).unwrap().unwrap();
        assert!(run.failure.unwrap().contains("status 1: why"));
    }

    #[test]
    fn a_scheduler_that_ends_during_the_run_is_told() {
        let ended = |script: &str| {
            let words = ["sh", "-c", script].map(String::from);
            let process = Process::start(&words, &Options::default()).unwrap();
            let mut scheduler = Started::of(process);
            let place = Place { scheduler: Some(&mut scheduler), ..Place::default() };
            let invocation = sh("sleep 0.6", 1);
            let run = run(&job(&invocation), place, &AtomicBool::new(false)).unwrap().unwrap();
            assert_eq!(run.failure, None);
            run.scheduler_ended
        };
        let killed = ended("sleep 0.2; echo stalled >&2; kill -KILL $$").unwrap();
        assert!(killed.contains("signal 9: stalled"), "{killed}");
        assert_eq!(ended("sleep 0.2").unwrap(), "without an error");
        assert_eq!(ended("exec sleep 1000"), None);
    }

    #[test]
    fn told_to_stop_it_ends_the_workload_soon() {
        let stop = AtomicBool::new(false);
        let invocation = sh("sleep 1000", 2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                stop.store(true, Ordering::Relaxed);
            });
            let start = Instant::now();
            assert!(run(&job(&invocation), Place::default(), &stop).unwrap().is_none());
            assert!(start.elapsed() < Duration::from_secs(10));
        });
    }

    #[test]
    fn pgbench_logs_become_milliseconds() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log.1"), "0 1 1500 0 17 2\n0 2 2500 0 17 9\n").unwrap();
        assert_eq!(latencies(dir.path()), [1.5, 2.5]);
    }
}
