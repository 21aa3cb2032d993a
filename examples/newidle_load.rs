//! Workloads whose CPUs run out of work all the time, for looking at newidle balancing:
//!
//!     newidle_load burst SECONDS        waves of short tasks, all of them woken on one node
//!     newidle_load messengers SECONDS   2 messengers that wake 1,024 workers in turn
//!     newidle_load reply SECONDS        pairs that wait for each other, twice as many as CPUs
//!     newidle_load sparse SECONDS       tasks that sleep far longer than they run
//!
//! Each prints one line. `burst` says how long CPUs idled while tasks waited: a wave has always
//! more tasks than CPUs until its last ones, so the time that the CPUs did not work is that time.

use anyhow::{Context, Result, bail};
use rustix::thread::{
    CpuSet, clock_nanosleep_absolute, futex, sched_getaffinity, sched_setaffinity,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use scx_baton::cpumask::Cpumask;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, Thread, current, park};
use std::time::{Duration, Instant};

/// Stack of a task: there are up to a thousand.
const STACK: usize = 64 << 10;
/// How long a task of a wave computes.
const BURST_WORK: Duration = Duration::from_millis(10);
/// Tasks of a wave for each CPU.
const BURST_TASKS: usize = 8;
const MESSENGERS: usize = 2;
const WORKERS: usize = 1024;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let usage = "newidle_load burst|messengers|reply|sparse SECONDS";
    let [_, name, seconds] = &args[..] else { bail!("{usage}") };
    let time = Duration::from_secs(seconds.parse().context(usage)?);
    match name.as_str() {
        "burst" => burst(time),
        "messengers" => messengers(time),
        "reply" => reply(time),
        "sparse" => sparse(time),
        _ => bail!("{usage}"),
    }
}

/// Computes until this thread has used `time` of CPU.
fn work(time: Duration) {
    let used = || {
        let t = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    };
    let end = used() + time;
    while used() < end {
        (0..500).for_each(|i| {
            std::hint::black_box(i);
        });
    }
}

fn task(run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    Builder::new().stack_size(STACK).spawn(run).context("a task cannot be started")
}

/// CPUs of the first node.
fn first_node() -> Result<CpuSet> {
    let text = std::fs::read_to_string("/sys/devices/system/node/node0/cpulist")
        .context("the first node's CPUs cannot be read")?;
    let cpus = Cpumask::parse_list(text.trim(), CpuSet::MAX_CPU)
        .map_err(|why| anyhow::anyhow!("{why}"))?;
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu.index()));
    Ok(set)
}

/// What the tasks of a wave share.
struct Wave {
    quit: AtomicBool,
    /// Which wave is on; tasks wait for it to change.
    number: AtomicU32,
    /// When all of its tasks wake, monotonic.
    starts_ns: AtomicU64,
    finished_ns: AtomicU64,
    unfinished: AtomicUsize,
    main: Thread,
}

/// How long the tasks have to go where they are to wake.
const GATHERING: Duration = Duration::from_millis(300);

fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Wave {
    /// Lets the next wave begin; returns when.
    fn next(&self, tasks: usize) -> Result<u64> {
        let starts = now_ns() + GATHERING.as_nanos() as u64;
        self.starts_ns.store(starts, Ordering::Relaxed);
        self.finished_ns.store(0, Ordering::Relaxed);
        self.unfinished.store(tasks, Ordering::Relaxed);
        self.number.fetch_add(1, Ordering::Release);
        futex::wake(&self.number, futex::Flags::PRIVATE, i32::MAX as u32)?;
        Ok(starts)
    }

    /// One task: each wave wakes it, by a timer, on the first node.
    fn task(&self, home: &CpuSet, everywhere: &CpuSet) {
        for number in 0.. {
            while self.number.load(Ordering::Acquire) == number {
                let _ = futex::wait(&self.number, futex::Flags::PRIVATE, number, None);
            }
            if self.quit.load(Ordering::Acquire) {
                return;
            }
            // To the first node and free again: where it sleeps is where it wakes.
            let _ = sched_setaffinity(None, home);
            let _ = sched_setaffinity(None, everywhere);
            let ns = self.starts_ns.load(Ordering::Relaxed);
            let starts = Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as _,
            };
            let _ = clock_nanosleep_absolute(ClockId::Monotonic, &starts);
            work(BURST_WORK);
            self.finished_ns.fetch_max(now_ns(), Ordering::AcqRel);
            if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.main.unpark();
            }
        }
    }
}

fn burst(time: Duration) -> Result<()> {
    let everywhere = sched_getaffinity(None)?;
    let nr_cpus = everywhere.count() as usize;
    let nr_tasks = BURST_TASKS * nr_cpus;
    let home = first_node()?;
    let wave = Arc::new(Wave {
        quit: AtomicBool::new(false),
        number: AtomicU32::new(0),
        starts_ns: AtomicU64::new(0),
        finished_ns: AtomicU64::new(0),
        unfinished: AtomicUsize::new(0),
        main: current(),
    });
    let tasks = (0..nr_tasks).map(|_| {
        let wave = Arc::clone(&wave);
        task(move || wave.task(&home, &everywhere))
    });
    let tasks = tasks.collect::<Result<Vec<_>>>()?;
    let (mut waves, mut idle_ms) = (0_u32, 0.0);
    let worked_ms = nr_tasks as f64 * BURST_WORK.as_secs_f64() * 1e3;
    let began = Instant::now();
    while began.elapsed() < time || waves < 3 {
        let starts = wave.next(nr_tasks)?;
        while wave.unfinished.load(Ordering::Acquire) > 0 {
            park();
        }
        let took = wave.finished_ns.load(Ordering::Acquire) - starts;
        idle_ms += took as f64 / 1e6 * nr_cpus as f64 - worked_ms;
        waves += 1;
    }
    wave.quit.store(true, Ordering::Release);
    wave.next(nr_tasks)?;
    tasks.into_iter().for_each(|task| drop(task.join()));
    let idle_ms = idle_ms / f64::from(waves);
    println!(
        "{waves} waves of {nr_tasks} tasks: {idle_ms:.1} ms of CPU idle while tasks waited, a wave ({worked_ms:.0} ms of work)"
    );
    Ok(())
}

/// Few messengers with many workers, as schbench has them: a messenger wakes its workers in turn
/// and waits until all have answered.
fn messengers(time: Duration) -> Result<()> {
    let rounds = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let messenger = |_| {
        let rounds = Arc::clone(&rounds);
        task(move || {
            let (answer, answers) = channel();
            let workers = (0..WORKERS / MESSENGERS).map(|_| worker(answer.clone()));
            let Ok(workers) = workers.collect::<Result<Vec<_>>>() else { return };
            while start.elapsed() < time {
                if workers.iter().any(|(asks, _)| asks.send(()).is_err()) {
                    return;
                }
                answers.iter().take(workers.len()).for_each(drop);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            for (asks, task) in workers {
                drop(asks);
                let _ = task.join();
            }
        })
    };
    let all = (0..MESSENGERS).map(messenger).collect::<Result<Vec<_>>>()?;
    all.into_iter().for_each(|t| drop(t.join()));
    println!("{} rounds of {} workers", rounds.load(Ordering::Relaxed), WORKERS / MESSENGERS);
    Ok(())
}

/// A task that answers each message after a little work, until its channel is closed.
fn worker(answer: Sender<()>) -> Result<(Sender<()>, JoinHandle<()>)> {
    let (asks, asked): (Sender<()>, Receiver<()>) = channel();
    let task = task(move || {
        while asked.recv().is_ok() {
            work(Duration::from_micros(100));
            if answer.send(()).is_err() {
                return;
            }
        }
    })?;
    Ok((asks, task))
}

fn reply(time: Duration) -> Result<()> {
    let start = Instant::now();
    let replies = Arc::new(AtomicU64::new(0));
    let pairs = 2 * sched_getaffinity(None)?.count();
    let pair = |_| {
        let replies = Arc::clone(&replies);
        task(move || {
            let (answer, answers) = channel();
            let Ok((asks, other)) = worker(answer) else { return };
            while start.elapsed() < time && asks.send(()).is_ok() && answers.recv().is_ok() {
                work(Duration::from_micros(100));
                replies.fetch_add(1, Ordering::Relaxed);
            }
            drop(asks);
            let _ = other.join();
        })
    };
    let all = (0..pairs).map(pair).collect::<Result<Vec<_>>>()?;
    all.into_iter().for_each(|t| drop(t.join()));
    println!("{} replies of {pairs} pairs", replies.load(Ordering::Relaxed));
    Ok(())
}

fn sparse(time: Duration) -> Result<()> {
    let start = Instant::now();
    let runs = Arc::new(AtomicU64::new(0));
    let sleepers = 4 * sched_getaffinity(None)?.count();
    let sleeper = |i: u32| {
        let runs = Arc::clone(&runs);
        task(move || {
            while start.elapsed() < time {
                std::thread::sleep(Duration::from_millis(20 + u64::from(i % 16)));
                work(Duration::from_micros(200));
                runs.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let all = (0..sleepers).map(sleeper).collect::<Result<Vec<_>>>()?;
    all.into_iter().for_each(|t| drop(t.join()));
    println!("{} runs of {sleepers} sleepers", runs.load(Ordering::Relaxed));
    Ok(())
}
