//! `baton topo`: the machine and its sched domains, as text, JSON or a picture.

mod kernel;
mod svg;
mod text;

use super::output;
use crate::domains::against_kernel::Difference;
use crate::domains::{
    BuildOptions, Built, DomainTree, DroppedLevel, Link, Violation, build_with, sanity,
};
use crate::topology::{Topology, presets, synthetic};
use crate::units::CpuId;
use anyhow::{Result, bail};
use serde::Serialize;
use std::path::PathBuf;

/// Version of the JSON form; raised when a field changes its meaning or goes away.
pub const JSON_VERSION: u32 = 1;

/// Options of `baton topo`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = presets_help())]
pub struct Args {
    /// Read the machine below DIR instead of / (a copy of /sys and /proc)
    #[arg(long, value_name = "DIR", default_value = "/")]
    sysroot: PathBuf,

    /// Describe the machine instead of reading one: a shape such as `2x3x40 smt=2` (packages x
    /// nodes x cores) or a preset's name, see below
    #[arg(long, value_name = "SPEC", conflicts_with = "sysroot")]
    synthetic: Option<String>,

    /// Show only CPU N's chain of domains
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,

    /// Print JSON (its `version` field tells the form)
    #[arg(long)]
    json: bool,

    /// Also write a picture to FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Take newidle balancing from the levels from row N of the kernel's table up, as its
    /// `relax_domain_level=` and scx_baton's option do (rows: SMT, CLS, MC, PKG, NODE, NUMA 1, …;
    /// 0 is SMT, or CLS on x86 without SMT)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=255))]
    relax_domain_level: Option<u32>,

    /// Compare with the kernel's own domains in /proc/schedstat (below DIR with --sysroot); the
    /// exit status is 1 if they differ
    #[arg(long, conflicts_with = "synthetic")]
    against_kernel: bool,
}

fn presets_help() -> String {
    let mut text = String::from("Presets for --synthetic (options may follow a name):\n");
    for preset in presets::PRESETS {
        text.push_str(&format!("  {:<20} {}\n", preset.name, preset.about));
    }
    text.push_str(
        "\nOptions in SPEC, after the shape: smt, llc, cluster, capacity, cache, dist, memless, \
         memonly, order, stride, offline, isolated, partition, arch, slit, reclaim, itmt. docs/topology.md \
         has the grammar. Example: '2x2x8 smt=2 llc=4 dist=10,12,21'",
    );
    text
}

/// All that is shown, in whichever form.
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    topology: &'a Topology,
    #[serde(skip_serializing_if = "Option::is_none")]
    relax_domain_level: Option<u32>,
    #[serde(flatten)]
    tree: &'a DomainTree,
    dropped: &'a [DroppedLevel],
    violations: &'a [Violation],
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<CpuId>,
    /// With `--cpu`: that CPU's entry of `chains`.
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<&'a [Link]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against_kernel: Option<&'a [Difference]>,
}

fn load(args: &Args) -> Result<Topology> {
    Ok(match &args.synthetic {
        Some(spec) => synthetic::parse(spec).map_err(|e| anyhow::anyhow!("--synthetic: {e}"))?,
        None => Topology::read(&args.sysroot)?,
    })
}

/// Runs `baton topo`; `false` if the tree differs from the kernel's or is not sane.
pub fn run(args: &Args) -> Result<bool> {
    let topology = load(args)?;
    let cpu = args.cpu.map(CpuId);
    if let Some(cpu) = cpu
        && !topology.online.test(cpu)
    {
        bail!("--cpu: CPU {cpu} is not online here; online are {}", topology.online);
    }
    let options = BuildOptions { relax_domain_level: args.relax_domain_level };
    let Built { tree, dropped } = build_with(&topology, &options);
    let violations = sanity(&tree);
    let differences = match args.against_kernel {
        true => Some(kernel::differences(&args.sysroot, &tree)?),
        false => None,
    };
    if let Some(file) = &args.svg {
        output::write_file(file, &svg::picture(&topology, &tree, cpu))?;
    }
    if args.json {
        output::print_json(&Report {
            version: JSON_VERSION,
            topology: &topology,
            relax_domain_level: args.relax_domain_level,
            tree: &tree,
            dropped: &dropped,
            violations: &violations,
            cpu,
            chain: cpu.map(|cpu| tree.chain(cpu)),
            against_kernel: differences.as_deref(),
        })?;
    } else {
        let mut text = match cpu {
            Some(cpu) => text::chain(&topology, &tree, cpu),
            None => text::machine(&topology, &tree, &dropped),
        };
        if let Some(n) = args.relax_domain_level {
            text.push_str(&text::relaxed(&tree, n));
        }
        text.push_str(&text::violations(&violations));
        if let Some(differences) = &differences {
            text.push_str(&kernel::text(differences));
        }
        output::print(&text)?;
    }
    Ok(violations.is_empty() && differences.is_none_or(|d| d.is_empty()))
}
