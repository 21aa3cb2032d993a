//! `scx_baton`, the scheduler: reads the command line, runs the agent, turns its end into an
//! exit status.

use anyhow::{Context, Result};
use log::{LevelFilter, error, info};
use scx_baton::agent::{self, Exit};
use scx_baton::cli::scheduler::Opts;
use scx_rustland_core::ALLOCATOR;
use simplelog::{ColorChoice, ConfigBuilder, TermLogger, TerminalMode};
use std::alloc::{GlobalAlloc, Layout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn main() -> ExitCode {
    let opts = match Opts::read(std::env::args_os()) {
        Ok(opts) => opts,
        Err(message) => message.exit(),
    };
    match run(&opts) {
        Ok(Exit::Stopped | Exit::Restart) => ExitCode::SUCCESS,
        Ok(Exit::Ejected(why)) => {
            error!("ended by the kernel: {why}");
            ExitCode::from(2)
        }
        Ok(Exit::Replaced(by)) => {
            error!("{by} is in charge now");
            ExitCode::from(3)
        }
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(opts: &Opts) -> Result<Exit> {
    if opts.help_stats {
        agent::stats::describe(&mut std::io::stdout())?;
        return Ok(Exit::Stopped);
    }
    let mut config = opts.config().map_err(anyhow::Error::msg)?;
    config.alloc_entry = entry_of(&ALLOCATOR);
    start_log(opts.verbose)?;
    if opts.monitor.is_none() {
        agent::preflight()?;
    }

    let stop = Arc::new(AtomicBool::new(false));
    let main_thread = std::thread::current();
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        flag.store(true, Ordering::Relaxed);
        main_thread.unpark();
    })
    .context("SIGINT and SIGTERM cannot be handled")?;

    if let Some(interval) = opts.monitor {
        agent::stats::monitor(interval, &stop)?;
        return Ok(Exit::Stopped);
    }
    if let Some(interval) = opts.stats {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || agent::stats::monitor(interval, &stop));
    }
    ALLOCATOR.lock_memory();
    let ended = agent::run_until(&config, &stop);
    ALLOCATOR.unlock_memory();
    let ended = ended?;
    if ended == Exit::Stopped {
        info!("stopped; the kernel's scheduler is in charge");
    }
    Ok(ended)
}

/// Address of the function that serves every allocation of this program.
fn entry_of<A: GlobalAlloc>(_: &A) -> usize {
    let alloc: unsafe fn(&A, Layout) -> *mut u8 = A::alloc;
    alloc as *const () as usize
}

fn start_log(verbose: u8) -> Result<()> {
    let level = if verbose > 0 { LevelFilter::Debug } else { LevelFilter::Info };
    let config = ConfigBuilder::new().set_target_level(LevelFilter::Off).build();
    TermLogger::init(level, config, TerminalMode::Stderr, ColorChoice::Auto)
        .context("the log cannot be started")
}
