//! The live agent: loads the BPF component, balances until told to stop, and reports why it
//! ended.

mod bpf;
mod clock;
mod doorbell;
mod kconfig;
mod live_host;
mod loader;
mod mapped;
mod preflight;
mod programs;
mod report;
mod worker;

use crate::domains::DomainTree;
use crate::units::Nanos;
use anyhow::{Context, Result};
use doorbell::Doorbell;
use live_host::LiveHost;
use loader::Loaded;
use log::info;
use programs::Programs;
use report::Report;
use scx_utils::UserExitInfo;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use preflight::preflight;

/// What the command line decides about one run.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a task runs before another waiting one gets its turn.
    pub slice: Nanos,
    /// What the slice shrinks to when many tasks wait.
    pub slice_min: Nanos,
    /// Whether a task that wakes far behind in virtual time preempts the running one.
    pub wakeup_preempt: bool,
    /// Only tasks of policy SCHED_EXT.
    pub partial: bool,
    /// Bytes of the kernel's debug dump kept for the exit report; 0 = the kernel's default.
    pub exit_dump_len: u32,
    /// 0 = normal, 1 = debug messages, 2 = libbpf's too.
    pub verbose: u8,
    /// Time between two balancing rounds while there is something to balance.
    pub tick: Nanos,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Somebody asked for it.
    Stopped,
    /// The kernel asks for a new start with fresh facts (CPU hotplug).
    Restart,
    /// The kernel ended the scheduler; its reason.
    Ejected(String),
    /// Another scheduler is in charge now; its name.
    Replaced(String),
}

/// How often the main thread looks whether the kernel has ended the scheduler.
const WATCH_PERIOD: Duration = Duration::from_millis(500);

/// Longest wait for a burst of CPU hotplug to end.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);
const SETTLE_QUIET: Duration = Duration::from_millis(200);

/// Runs until `stop` is set or the kernel ends the scheduler for good; starts again whenever the
/// kernel asks for it, once for each burst of hotplug.
pub fn run_until(config: &Config, stop: &AtomicBool) -> Result<Exit> {
    loop {
        let tree = crate::domains::flat_possible()?;
        match run(config, &tree, stop)? {
            Exit::Restart if !stop.load(Ordering::Relaxed) => settle_hotplug(),
            end => return Ok(end),
        }
        info!("starting again with the CPUs that are online now");
    }
}

/// Waits until no CPU has come or gone for a while.
fn settle_hotplug() {
    let (mut seen, mut waited) = (loader::hotplug_seq(), Duration::ZERO);
    while waited < SETTLE_LIMIT {
        std::thread::sleep(SETTLE_QUIET);
        waited += SETTLE_QUIET;
        let seq = loader::hotplug_seq();
        if seq == seen {
            return;
        }
        seen = seq;
    }
}

/// Loads, attaches and balances until `stop` is set or the kernel ends it.
fn run(config: &Config, tree: &DomainTree, stop: &AtomicBool) -> Result<Exit> {
    let seq = loader::hotplug_seq();
    let mut storage = MaybeUninit::uninit();
    let mut loaded = loader::load(&mut storage, config, tree.chains.len(), 1)?;
    let programs = Programs::new(&loaded.skel)?;
    loaded.attach()?;
    if loader::hotplug_seq() != seq {
        info!("a CPU came or went while starting: starting again");
        loaded.detach();
        return Ok(Exit::Restart);
    }
    info!("scheduling {} CPUs", tree.chains.iter().filter(|c| !c.is_empty()).count());
    let report = balance(config, tree, &loaded, &programs, stop)?;
    report.log(&loaded.tables);
    let asked = stop.load(Ordering::Relaxed);
    Ok(ended(&loaded.detach(), asked))
}

/// Runs the worker until `stop` is set or the kernel has ended the scheduler.
fn balance(
    config: &Config,
    tree: &DomainTree,
    loaded: &Loaded<'_>,
    programs: &Programs,
    stop: &AtomicBool,
) -> Result<Report> {
    let quit = AtomicBool::new(false);
    let doorbell = Doorbell::new(&loaded.skel.maps.events, &loaded.tables.globals)?;
    let host = LiveHost::new(&loaded.tables, programs, 0);
    std::thread::scope(|scope| {
        let quit = &quit;
        let worker = std::thread::Builder::new()
            .name("baton-worker".into())
            .spawn_scoped(scope, move || worker::run(host, doorbell, tree, config.tick, quit))
            .context("the worker thread cannot be started")?;
        while !stop.load(Ordering::Relaxed) && !loaded.exited() && !worker.is_finished() {
            std::thread::park_timeout(WATCH_PERIOD);
        }
        quit.store(true, Ordering::Relaxed);
        worker.join().map_err(|_| anyhow::anyhow!("the worker thread panicked"))
    })
}

/// What the kernel's exit record means.
fn ended(info: &UserExitInfo, asked: bool) -> Exit {
    if asked {
        return Exit::Stopped;
    }
    if info.should_restart() {
        return Exit::Restart;
    }
    match loader::attached_ops() {
        Some(name) if !name.starts_with("baton") => return Exit::Replaced(name),
        _ => {}
    }
    match info.report() {
        Ok(()) => Exit::Ejected("the kernel unregistered it".into()),
        Err(why) => Exit::Ejected(format!("{why:#}")),
    }
}
