//! One run.

use super::RunArgs;
use crate::cli::output;
use crate::domains::BuildOptions;
use crate::sim::random::Time;
use crate::sim::scenario::{self, Scenario};
use crate::sim::{Report, Setup, Sim, generators, html, rtapp};
use crate::topology::{Topology, synthetic};
use crate::units::Nanos;
use anyhow::{Context, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::Instant;

/// Shorter ones would leave a CPU no time for anything else.
const SHORTEST_TICK: Nanos = Nanos(10_000);
const DEFAULT_DURATION: Nanos = Nanos::from_secs(1);

fn scenario(args: &RunArgs) -> Result<Scenario> {
    let Some(file) = &args.file else { return Ok(Scenario::default()) };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the scenario {}", file.display()))?;
    let json = file.extension().is_some_and(|e| e == "json");
    let parsed = if json { rtapp::parse(&text) } else { scenario::parse(&text) };
    parsed.map_err(|e| anyhow!("{}, {e}", file.display()))
}

/// The run that the options describe, without the values of `--set`.
pub(super) fn setup(args: &RunArgs) -> Result<Setup> {
    let scenario = scenario(args)?;
    let spec = args.machine.clone().or(scenario.machine);
    let topology = match (&args.sysroot, spec) {
        (Some(root), _) => Topology::read(root)?,
        (None, Some(spec)) => synthetic::parse(&spec).map_err(|e| anyhow!("machine: {e}"))?,
        (None, None) => Topology::read(Path::new("/"))?,
    };
    let mut workload = scenario.workload;
    if args.file.is_none() {
        // Something to see: OLTP at full load.
        let cpus = topology.online.weight() as u32;
        let work = Time::Exponential(Nanos::from_us(500));
        let io = Time::Exponential(Nanos::from_us(800));
        generators::oltp(&mut workload, 2 * cpus, work, io, cpus);
    }
    for start in &workload.starts {
        if let Some(cpu) = start.on.filter(|&c| !topology.online.test(crate::units::CpuId(c))) {
            bail!("the scenario starts a task on CPU {cpu}; online are {}", topology.online);
        }
    }
    for start in &workload.starts {
        let kind = &workload.templates[start.template as usize];
        let isolated = |&cpu: &u32| topology.isolated.test(crate::units::CpuId(cpu));
        if let (None, Some(cpu)) = (&kind.allowed, start.on.filter(isolated)) {
            bail!("task {}: CPU {cpu} is isolated; give it `cpus` to bind it there", kind.name);
        }
    }
    for kind in &mut workload.templates {
        if let Some(mask) = &kind.allowed {
            let cpus = mask.iter().filter(|&c| topology.online.test(c));
            let usable = crate::cpumask::Cpumask::from_cpus(topology.width, cpus);
            if usable.is_empty() {
                bail!(
                    "task {}: none of its CPUs {mask} is online; online are {}",
                    kind.name,
                    topology.online
                );
            }
            kind.allowed = Some(usable);
        }
    }
    let duration = args.duration.or(scenario.duration).unwrap_or(DEFAULT_DURATION);
    let mut setup = Setup::new(topology, workload, duration);
    setup.changes = scenario.changes;
    setup.domains = BuildOptions { relax_domain_level: args.relax_domain_level };
    setup.executors = args.executors;
    setup.reaction = args.reaction;
    setup.seed = args.seed;
    if args.tick < SHORTEST_TICK {
        bail!("--tick: {} ns is too short: give 10us or more", args.tick.0);
    }
    setup.rules.tick = args.tick;
    setup.rules.aligned_ticks = !args.skew_ticks;
    setup.rules.slice = args.slice;
    setup.rules.preempt = args.preempt;
    for (name, value) in scenario.policy.iter().chain(&scenario.costs) {
        apply(&mut setup, name, value)?;
    }
    Ok(setup)
}

/// Sets a setting of the policy or a cost.
pub(super) fn apply(setup: &mut Setup, name: &str, value: &str) -> Result<()> {
    let is_cost = name == "line-costs" || crate::sim::costs::COSTS.iter().any(|c| c.0 == name);
    if is_cost {
        return setup.costs.set(name, value).map_err(|e| anyhow!("{e}"));
    }
    setup.tunables.set(name, value).map_err(|e| anyhow!("{e}"))
}

/// Runs with a progress bar if it takes long and somebody watches.
pub(super) fn simulate(setup: Setup) -> Sim {
    let duration = setup.duration;
    let mut sim = Sim::new(setup);
    let bar = ProgressBar::new(duration.0 / 1_000_000);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:40} {pos}/{len} ms of virtual time, {eta} left")
    {
        bar.set_style(style);
    }
    sim.run(|now| bar.set_position(now.0 / 1_000_000));
    bar.finish_and_clear();
    sim
}

/// Runs twice in step.
fn check_determinism(setup: &Setup) -> Result<bool> {
    let (mut a, mut b) = (Sim::new(setup.clone()), Sim::new(setup.clone()));
    let mut events = 0u64;
    loop {
        let (first, second) = (a.step(), b.step());
        if first != second {
            output::print(&format!(
                "seed {}: event {events} differs: {first:?} and {second:?}\n",
                setup.seed
            ))?;
            return Ok(false);
        }
        if first.is_none() {
            break;
        }
        events += 1;
    }
    a.finish();
    b.finish();
    let form = |sim: &Sim| serde_json::to_string(&Report::of(sim));
    let same = form(&a)? == form(&b)?;
    let verdict = if same { "identical" } else { "the reports differ" };
    output::print(&format!("seed {}: {events} events twice, {verdict}\n", setup.seed))?;
    Ok(same)
}

/// Runs once and reports.
pub(super) fn run(args: &RunArgs) -> Result<bool> {
    let mut setup = setup(args)?;
    for change in &args.set {
        let (name, value) = change
            .split_once('=')
            .ok_or_else(|| anyhow!("--set: `{change}` is not of the form NAME=VALUE"))?;
        apply(&mut setup, name, value)?;
    }
    if args.check_determinism {
        return check_determinism(&setup);
    }
    setup.trace = args.trace.is_some();
    setup.heat = args.html.is_some();
    let started = Instant::now();
    let sim = simulate(setup);
    let wall = started.elapsed().as_secs_f64();
    let report = Report::of(&sim);
    if let Some(file) = &args.trace {
        output::write_file(file, &sim.chrome_trace().to_string())?;
    }
    if let Some(file) = &args.html {
        output::write_file(file, &html::page(&sim, &report))?;
    }
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.text())?;
        let speed = report.totals.events as f64 / wall.max(1e-9);
        eprintln!("simulated in {wall:.2} s, {speed:.0} events/s");
    }
    Ok(true)
}
