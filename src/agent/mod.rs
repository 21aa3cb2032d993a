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

use crate::domains::{self, DomainTree};
use crate::topology::Topology;
use crate::units::Nanos;
use anyhow::{Context, Result, bail};
use doorbell::Doorbell;
use live_host::LiveHost;
use loader::Loaded;
use log::{info, warn};
use programs::Programs;
use report::Report;
use scx_utils::UserExitInfo;
use std::mem::MaybeUninit;
use std::path::Path;
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
        match run(config, &Machine::read()?, stop)? {
            Exit::Restart if !stop.load(Ordering::Relaxed) => settle_hotplug(),
            end => return Ok(end),
        }
        info!("starting again with the CPUs that are online now");
    }
}

/// The machine as read at one start.
struct Machine {
    topology: Topology,
    tree: DomainTree,
}

impl Machine {
    fn read() -> Result<Self> {
        let topology = Topology::read(Path::new("/")).context("the machine cannot be read")?;
        for note in &topology.notes {
            warn!("{note}");
        }
        let tree = domains::build(&topology).tree;
        if let Some(violation) = domains::sanity(&tree).first() {
            bail!("the sched domains of this machine contradict themselves: {violation}");
        }
        Ok(Self { topology, tree })
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
fn run(config: &Config, machine: &Machine, stop: &AtomicBool) -> Result<Exit> {
    let Machine { topology, tree } = machine;
    let mut storage = MaybeUninit::uninit();
    let mut loaded = loader::load(&mut storage, config, topology.width, 1)?;
    let programs = Programs::new(&loaded.skel)?;
    loaded.attach()?;
    let attached = loader::enable_seq();
    if loader::hotplug_seq() != topology.hotplug_seq {
        info!("a CPU came or went while starting");
        loaded.detach();
        return Ok(Exit::Restart);
    }
    info!("scheduling {} CPUs", topology.online.weight());
    let report = balance(config, tree, &loaded, &programs, stop)?;
    report.log(&loaded.tables);
    let asked = stop.load(Ordering::Relaxed);
    Ok(ended(&loaded.detach(), asked, attached))
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

/// What the kernel's exit record means; `attached` is the enable count when this run began.
fn ended(info: &UserExitInfo, asked: bool, attached: Option<u64>) -> Exit {
    if asked {
        return Exit::Stopped;
    }
    if info.should_restart() {
        return Exit::Restart;
    }
    if loader::state().as_deref() == Some("enabled") && loader::enable_seq() != attached {
        return Exit::Replaced(loader::attached_ops().unwrap_or_else(|| "another one".into()));
    }
    match info.report() {
        Ok(()) => Exit::Ejected("it was unregistered by somebody else".into()),
        Err(why) => Exit::Ejected(format!("{why:#}")),
    }
}
