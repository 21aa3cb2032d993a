//! `baton get`, `set`, `status` and `why`: what a running scheduler shows and lets change.

use super::output::print;
use crate::control::{Request, ask};
use crate::policy::tunables::{TUNABLES, Tunable, Tunables};
use crate::sched_ext;
use crate::units::CpuId;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How often `why --follow` asks.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);

/// Options of `baton get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Settings to show; all if none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Options of `baton set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Settings to change, all at once or, if one is wrong, none
    #[arg(value_name = "NAME=VALUE", required = true)]
    changes: Vec<String>,
}

/// Options of `baton status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// As JSON, with every counter
    #[arg(long)]
    json: bool,
    /// Say who schedules this task instead
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

/// Options of `baton why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Only decisions that concern this CPU, as destination or source
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Only decisions that name this task
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Go on with new decisions until interrupted
    #[arg(long)]
    follow: bool,
    /// As JSON, one decision a line
    #[arg(long)]
    json: bool,
}

fn known(name: &str) -> Result<&'static Tunable> {
    let mut scratch = Tunables::default();
    match TUNABLES.iter().find(|t| t.name == name) {
        Some(tunable) => Ok(tunable),
        // The table's own sentence, with the list of names.
        None => match scratch.set(name, "") {
            Err(err) => bail!("{err}"),
            Ok(()) => bail!("there is no setting `{name}`"),
        },
    }
}

/// `baton get`.
pub fn get(args: &GetArgs) -> Result<bool> {
    for name in &args.names {
        known(name)?;
    }
    let reply = ask(&Request::Get)?;
    let settings = &reply["settings"];
    if args.json {
        print(&format!(
            "{reply}
"
        ))?;
        return Ok(true);
    }
    let wanted = |t: &&Tunable| args.names.is_empty() || args.names.iter().any(|n| n == t.name);
    for tunable in TUNABLES.iter().filter(wanted) {
        let value = settings[tunable.name].as_str().unwrap_or("?");
        let note = if value == tunable.default_value() { "" } else { "  (changed)" };
        print(&format!("{:<24} {value:<10} of {}{note}\n", tunable.name, tunable.domain))?;
    }
    Ok(true)
}

/// `baton set`.
pub fn set(args: &SetArgs) -> Result<bool> {
    // Wrong names and values are told even where no scheduler runs.
    let mut scratch = Tunables::default();
    for change in &args.changes {
        scratch.apply(change).map_err(|e| anyhow::anyhow!("{e}"))?;
    }
    let reply = ask(&Request::Set(args.changes.clone()))?;
    print(&format!("{} in force since epoch {}\n", args.changes.join(", "), reply["epoch"]))?;
    Ok(true)
}

/// `baton status`.
pub fn status(args: &StatusArgs) -> Result<bool> {
    if let Some(pid) = args.pid {
        print(&format!("{}\n", who_schedules(pid)?))?;
        return Ok(true);
    }
    let reply = ask(&Request::Status)?;
    if args.json {
        print(&format!(
            "{reply}
"
        ))?;
        return Ok(true);
    }
    print(&show_status(&reply))?;
    Ok(true)
}

/// `chrt` goes on saying SCHED_OTHER; the kernel's own record of the task tells.
fn who_schedules(pid: u32) -> Result<String> {
    let record = std::fs::read_to_string(format!("/proc/{pid}/sched"))
        .with_context(|| format!("there is no task {pid}, or this kernel keeps no record of it"))?;
    let ours = record
        .lines()
        .find_map(|line| line.strip_prefix("ext.enabled")?.split(':').nth(1).map(str::trim));
    Ok(match ours {
        Some("1") => {
            let scheduler = sched_ext::ops(Path::new("/"));
            format!("task {pid}: sched_ext, by {}", scheduler.as_deref().unwrap_or("none any more"))
        }
        Some(_) => format!("task {pid}: the kernel's own scheduler"),
        None => format!("task {pid}: the kernel does not say (no ext.enabled in its record)"),
    })
}

/// The number there, 0 if there is none.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn show_status(reply: &Value) -> String {
    let agent = &reply["agent"];
    let tasks = &reply["tasks"];
    let requests = &reply["requests"];
    let ended: String = requests["ended"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, count)| number(count) > 0)
        .map(|(name, count)| format!(", {count} {name}"))
        .collect();
    let mut lines = vec![
        format!(
            "scx_baton, {:.0} s, configuration {}",
            number(&reply["uptime_ns"]) as f64 / 1e9,
            reply["settings"]["epoch"]
        ),
        format!(
            "agent     {:.2} % of one CPU, {} wake-ups, {} page faults, {} allocations after start",
            agent["cpu_pct"].as_f64().unwrap_or_default(),
            agent["wakeups"],
            number(&agent["minor_faults"]) + number(&agent["major_faults"]),
            agent["allocations"],
        ),
        format!(
            "tasks     {} switches, mean wait {:.1} us, {} pulled by plan",
            tasks["switches"],
            number(&tasks["wait_ns"]) as f64 / 1e3 / number(&tasks["switches"]).max(1) as f64,
            tasks["pulled"]
        ),
        format!("requests  {} issued{ended}", requests["issued"]),
    ];
    for worker in reply["workers"].as_array().into_iter().flatten() {
        lines.push(format!(
            "worker    CPUs {:<12} {} rounds ({} put off), {:.3} s of CPU, half of them below {:.0} us",
            worker["cpus"].as_str().unwrap_or_default(),
            worker["rounds"],
            worker["put_off"],
            number(&worker["cpu_ns"]) as f64 / 1e9,
            number(&worker["round_p50_ns"]) as f64 / 1e3
        ));
    }
    let counters = &reply["counters"];
    lines.push(format!("counters of configuration {}:", counters["epoch"]));
    for level in counters["levels"].as_array().into_iter().flatten() {
        lines.extend(["busy", "idle", "newidle"].iter().filter_map(|kind| show_level(level, kind)));
    }
    lines.join("\n") + "\n"
}

/// A level's counters of one idle type that are not zero; nothing if all are.
fn show_level(level: &Value, kind: &str) -> Option<String> {
    let shown: Vec<String> = level[kind]
        .as_object()?
        .iter()
        .filter(|(_, value)| number(value) > 0)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let name = match &level["level"] {
        Value::String(name) => name.clone(),
        numa => format!("NUMA{}", numa["NUMA"]),
    };
    (!shown.is_empty()).then(|| format!("  {name:<6} {kind:<8} {}", shown.join(", ")))
}

/// `baton why`.
pub fn why(args: &WhyArgs) -> Result<bool> {
    let mut after = Vec::new();
    loop {
        let cpu = args.cpu.map(CpuId);
        let reply = ask(&Request::Why { after, cpu, pid: args.pid })?;
        after = reply["next"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        for entry in reply["decisions"].as_array().into_iter().flatten() {
            let decision = &entry["decision"];
            match entry["text"].as_str() {
                Some(text) if !args.json => print(&format!("{text}\n"))?,
                _ => print(&format!("{decision}\n"))?,
            }
        }
        if !args.follow {
            return Ok(true);
        }
        std::thread::sleep(FOLLOW_PERIOD);
    }
}
