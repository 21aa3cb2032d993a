//! The live agent: loads the BPF component, balances until told to stop, and reports why it
//! ended.
//!
//! The main thread starts the workers and watches for the end. Each worker balances its shard,
//! woken by a bell of its own. Two more threads answer the control socket and the statistics socket; they
//! only read counters and swap the configuration.

mod allocations;
mod bell;
mod bpf;
mod budget;
mod clock;
mod conservation;
mod control_server;
mod live;
mod live_host;
mod loader;
mod machine;
mod mapped;
mod meters;
mod preflight;
mod programs;
mod roster;
mod shards;
pub mod stats;
mod summary;
mod worker;

use crate::domains::BuildOptions;
use crate::policy::tunables::Tunables;
use crate::sched_ext;
use crate::units::Nanos;
use anyhow::{Context, Result};
use bell::Bell;
use budget::Budget;
use conservation::Conservation;
use control_server::ControlServer;
use live::Live;
use live_host::LiveHost;
use log::info;
use machine::Machine;
use programs::Programs;
use roster::Roster;
use scx_utils::UserExitInfo;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use preflight::preflight;
pub use shards::Workers;

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
    /// Shortest time between two looks at a CPU; `None`: the kernel's tick.
    pub tick: Option<Nanos>,
    /// How the machine is divided among workers.
    pub workers: Workers,
    /// Thousandths of its CPUs' time that a worker may use before the balance of busy CPUs comes
    /// later; 0: no limit.
    pub agent_share: u32,
    /// How the sched domains are built.
    pub domains: BuildOptions,
    /// The policy's settings at the start.
    pub tunables: Tunables,
    /// Address of the allocator's entry, for counting what the workers allocate.
    pub alloc_entry: usize,
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

/// Enough for a round; every page of it is locked memory.
const WORKER_STACK: usize = 256 << 10;

/// How often the main thread looks whether the kernel has ended the scheduler, and whether tasks
/// wait for a CPU that another class keeps.
const WATCH_PERIOD: Duration = Duration::from_millis(500);

/// Runs until `stop` is set or the kernel ends the scheduler for good; starts again whenever the
/// kernel asks for it, once for each burst of hotplug. Settings that were changed meanwhile stay.
pub fn run_until(config: &Config, stop: &AtomicBool) -> Result<Exit> {
    stay_put();
    let mut config = config.clone();
    loop {
        let (end, tunables) = run(&config, &Machine::read(&config)?, stop)?;
        if end != Exit::Restart || stop.load(Ordering::Relaxed) {
            return Ok(end);
        }
        config.tunables = tunables;
        machine::settle_hotplug();
        info!("starting again with the CPUs that are online now");
    }
}

/// Takes this process out of automatic NUMA balancing, which unmaps a task's pages to see from where
/// it touches them: each such look is a page fault. Any explicit policy does; this one keeps what
/// is the default otherwise. Threads inherit it.
fn stay_put() {
    const MPOL_LOCAL: libc::c_int = 4;
    // SAFETY: no memory is passed. Failing (a kernel without NUMA) changes nothing.
    unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_LOCAL, std::ptr::null::<u64>(), 0) };
}

/// Loads, attaches and balances until `stop` is set or the kernel ends it. Returns also the
/// settings in force at the end.
fn run(config: &Config, machine: &Machine, stop: &AtomicBool) -> Result<(Exit, Tunables)> {
    machine::pin_to(&machine.housekeeping());
    let mut storage = MaybeUninit::uninit();
    let nr_workers = machine.shards.len();
    let sizes = loader::Sizes {
        nr_cpu_ids: machine.topology.width,
        nr_slots: nr_workers,
        nr_homes: machine.nr_homes(),
    };
    let mut loaded = loader::load(&mut storage, config, sizes)?;
    let programs = Arc::new(Programs::new(&loaded.skel)?);
    let tables = loaded.tables()?;
    let roster =
        Arc::new(Roster::new(machine.topology.width, &machine.shards, Arc::clone(&programs)));
    tables.assign(roster.workers_by_cpu());
    tables.assign_homes(&machine.homes());
    let bells = (0..nr_workers as u32).map(|worker| Bell::install(&loaded.skel.maps.bells, worker));
    let bells = bells.collect::<Result<Vec<_>>>()?;
    loaded.attach()?;
    let root = Path::new("/");
    let attached = sched_ext::enable_seq(root);
    if sched_ext::hotplug_seq(root) != machine.topology.hotplug_seq {
        info!("a CPU came or went while starting");
        loaded.detach();
        return Ok((Exit::Restart, config.tunables));
    }
    let (balancers, views) = machine.balancers();
    let live = Arc::new(Live::new(config.tunables, tables, views, Arc::clone(&roster)));
    let control =
        ControlServer::start(Arc::clone(&live)).context("the control socket cannot be opened")?;
    let statistics = stats::Server::start(Arc::clone(&live))?;
    info!("scheduling {} CPUs", machine.topology.online.weight());

    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(nr_workers);
        for (slot, (balancer, bell)) in balancers.into_iter().zip(bells).enumerate() {
            let worker = worker::Worker {
                balancer,
                host: LiveHost::new(
                    &live.tables,
                    &programs,
                    &machine.capacities,
                    &roster,
                    slot as u32,
                ),
                live: &live,
                view: &live.workers[slot],
                roster: &roster,
                bell,
                conservation: (slot == 0)
                    .then(|| Conservation::new(machine.balanced(), machine.tick)),
                home: machine.home(&machine.shards[slot]),
                tick: machine.tick,
                budget: Budget::new(config.agent_share, machine.shards[slot].weight()),
                alloc_entry: config.alloc_entry,
            };
            let spawned = std::thread::Builder::new()
                .name(format!("baton-{slot}"))
                .stack_size(WORKER_STACK)
                .spawn_scoped(scope, move || worker.run());
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(err) => {
                    roster.quit();
                    return Err(err).context("a worker thread cannot be started");
                }
            }
        }
        let all_alive = || threads.iter().all(|t| !t.is_finished());
        while !stop.load(Ordering::Relaxed) && !loaded.exited() && all_alive() {
            std::thread::park_timeout(WATCH_PERIOD);
            // Nobody's tick may tell the workers of such a queue.
            if (0..live.tables.cpus.len()).any(|cpu| live.tables.is_blocked(cpu)) {
                roster.wake_all();
            }
        }
        roster.quit();
        Ok(())
    })?;
    drop((control, statistics));
    summary::log(&live);
    let tunables = live.config.load().tunables;
    let asked = stop.load(Ordering::Relaxed);
    Ok((ended(&loaded.detach(), asked, attached), tunables))
}

/// What the kernel's exit record means; `attached` is the enable count when this run began.
fn ended(info: &UserExitInfo, asked: bool, attached: Option<u64>) -> Exit {
    if asked {
        return Exit::Stopped;
    }
    if info.should_restart() {
        return Exit::Restart;
    }
    let root = Path::new("/");
    let is_enabled = sched_ext::state(root).as_deref() == Some("enabled");
    if is_enabled && sched_ext::enable_seq(root) != attached {
        return Exit::Replaced(sched_ext::ops(root).unwrap_or_else(|| "another one".into()));
    }
    match info.report() {
        Ok(()) => Exit::Ejected("it was unregistered by somebody else".into()),
        Err(why) => Exit::Ejected(format!("{why:#}")),
    }
}
