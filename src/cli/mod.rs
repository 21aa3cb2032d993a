//! The lab's command line: options, help, and where output goes. What a command computes lives in
//! the library; here it is only shown.

pub mod check;
pub mod compare;
pub mod live;
mod output;
#[cfg(feature = "live")]
pub mod scheduler;
pub mod sim;
pub mod topo;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Exit status for bad input or a file that cannot be read or written; 1 is a command's own "no".
const EXIT_ERROR: u8 = 2;

/// The lab around scx_baton.
#[derive(Debug, Parser)]
#[command(name = "baton", version, about = "The lab around scx_baton: see the machine as the \
    load balancer sees it, and more", long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the machine and its tree of sched domains
    Topo(topo::Args),
    /// Run the balancer on a simulated machine
    Sim(Box<sim::Args>),
    /// Say what this machine lacks to run scx_baton, and how to get it
    Check(check::Args),
    /// Compare schedulers or settings on a workload: is B better than A here?
    Compare(Box<compare::Args>),
    /// Show the settings of the running scheduler
    Get(live::GetArgs),
    /// Change settings of the running scheduler
    Set(live::SetArgs),
    /// Show what the running scheduler does and costs
    Status(live::StatusArgs),
    /// Explain the running scheduler's last balancing decisions
    Why(live::WhyArgs),
}

/// Runs `baton` with these arguments (the program's name first) and returns its exit status: 0,
/// 1 where the command's answer is "no", 2 on errors.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let result = match &cli.command {
        Command::Topo(args) => topo::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Check(args) => check::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Get(args) => live::get(args),
        Command::Set(args) => live::set(args),
        Command::Status(args) => live::status(args),
        Command::Why(args) => live::why(args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("baton: {error:#}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}
