//! `baton sim`: the balancer on a machine that you do not own.

mod merge;
mod reproduce;
mod run;
mod sweep;

use anyhow::Result;
use std::path::PathBuf;

/// Options of `baton sim`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = costs_help())]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Repeat a published result: paper, simulated, ratio, with the assumptions made
    Reproduce(reproduce::Args),
    /// Put the parts of a sweep that was run with --shard together into one table
    Merge(merge::Args),
}

/// What to run, on what.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    /// Scenario: TOML, or JSON as rt-app reads it
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// The machine: a shape such as `2x3x40 smt=2` or a preset's name (see `baton topo --help`);
    /// default: the scenario's, else this machine
    #[arg(long, value_name = "SPEC")]
    machine: Option<String>,

    /// Take the machine below DIR (a copy of /sys and /proc)
    #[arg(long, value_name = "DIR", conflicts_with = "machine")]
    sysroot: Option<PathBuf>,

    /// Virtual time, with unit [default: the scenario's, else 1s]
    #[arg(long, value_name = "TIME", value_parser = crate::sim::random::parse_nanos)]
    duration: Option<crate::units::Nanos>,

    /// Seed of all random streams
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Who runs the balancing passes: each CPU as the kernel does, or workers of the agent
    #[arg(long, value_enum, default_value_t)]
    executors: crate::sim::Executors,

    /// How long a worker of the agent takes to react, with unit
    #[arg(long, value_name = "TIME", default_value = "50us",
        value_parser = crate::sim::random::parse_nanos)]
    reaction: crate::units::Nanos,

    /// A setting of the policy or a cost; several values, comma-separated, make a sweep
    #[arg(long, value_name = "NAME=VALUE[,VALUE..]")]
    set: Vec<String>,

    /// Take newidle balancing from the levels from row N of the kernel's table up, as scx_baton's
    /// option does; `baton topo` with the same option shows which those are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=255))]
    relax_domain_level: Option<u32>,

    /// Runs with so many seeds, from --seed up
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    seeds: u32,

    /// Of a sweep, do only the I-th of N parts (from 1) and print JSON for `baton sim merge`
    #[arg(long, value_name = "I/N")]
    shard: Option<String>,

    /// Print JSON (its `version` field tells the form)
    #[arg(long)]
    json: bool,

    /// Also write a trace for Chrome or Perfetto to FILE
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Also write one self-contained HTML page with pictures to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Run twice in step and stop at the first difference
    #[arg(long)]
    check_determinism: bool,

    /// Time between two ticks of a CPU, with unit
    #[arg(long, value_name = "TIME", default_value = "1ms",
        value_parser = crate::sim::random::parse_nanos)]
    tick: crate::units::Nanos,

    /// Spread the CPUs' ticks over the period instead of having them all at one moment
    #[arg(long)]
    skew_ticks: bool,

    /// Longest stretch of a task while another waits, with unit
    #[arg(long, value_name = "TIME", default_value = "3ms",
        value_parser = crate::sim::random::parse_nanos)]
    slice: crate::units::Nanos,

    /// By how much a woken task must be behind to take the running one's place, with unit; 0: never
    #[arg(long, value_name = "TIME", default_value = "0",
        value_parser = crate::sim::random::parse_nanos)]
    preempt: crate::units::Nanos,
}

fn costs_help() -> String {
    use crate::sim::costs::{COSTS, LINE_PRESETS};
    let mut text = String::from("Costs for --set (0 switches a part off):\n");
    for (name, unit, default, doc) in COSTS {
        text.push_str(&format!("  {name:<16} {doc} [{unit}, default {default}]\n"));
    }
    text.push_str(
        "  line-costs       Cache-line transfers, CORE/LLC/PACKAGE/FAR in ns, or a preset:\n",
    );
    for p in LINE_PRESETS {
        let ns = p.ns.map(|n| n.to_string()).join("/");
        text.push_str(&format!("    {:<16} {ns} ({})\n", p.name, p.source));
    }
    text
}

/// Runs `baton sim`; `false` if a check failed.
pub fn run(args: &Args) -> Result<bool> {
    match &args.command {
        Some(Command::Reproduce(args)) => reproduce::run(args),
        Some(Command::Merge(args)) => merge::run(args),
        None if sweep::is_sweep(&args.run) => sweep::run(&args.run),
        None => run::run(&args.run),
    }
}
