//! Facts about this machine that belong to a result.

use super::kernel;
use super::process::{Options, POLL, Process, complete, find};
use crate::compare::machine::Environment;
use crate::compare::workload::Workload;
use crate::topology::Topology;
use anyhow::Result;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Switches of the kernel's scheduler: name and file.
const SWITCHES: [(&str, &str); 4] = [
    ("numa_balancing", "/proc/sys/kernel/numa_balancing"),
    ("llc_balancing", "/sys/kernel/debug/sched/llc_balancing/enabled"),
    ("sched_autogroup", "/proc/sys/kernel/sched_autogroup_enabled"),
    ("sched_schedstats", "/proc/sys/kernel/sched_schedstats"),
];

/// How long a program may take to say its version.
const PATIENCE: Duration = Duration::from_secs(5);

fn governors(topology: &Topology) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for cpu in topology.online.iter() {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
        if let Some(governor) = kernel::read(file) {
            *found.entry(governor).or_default() += 1;
        }
    }
    found
}

fn versions(baton: &Path, workload: &Workload) -> BTreeMap<String, String> {
    let own = env!("CARGO_PKG_VERSION").to_string();
    let mut found = BTreeMap::from([("baton".to_string(), own)]);
    let words = [baton.display().to_string(), "--version".into()];
    if let Some(version) = first_line(&words) {
        let version = version.trim_start_matches("scx_baton").trim();
        found.insert("scx_baton".into(), version.into());
    }
    for needed in workload.needs() {
        // These programs do not tell their version; Debian's packages do.
        let version = if needed.package == "rt-tests" {
            let words = ["dpkg-query", "-W", "-f=${Version}", needed.package].map(String::from);
            complete(&words, &Options::default()).ok().map(|v| v.trim().to_string())
        } else {
            let installed = needed.programs.iter().find(|p| find(p).is_some());
            installed.and_then(|p| first_line(&[(*p).to_string(), "--version".into()]))
        };
        if let Some(version) = version {
            found.insert(needed.programs[0].into(), version);
        }
    }
    found
}

fn first_line(words: &[String]) -> Option<String> {
    let mut process = Process::start(words, &Options::default()).ok()?;
    let patience = Instant::now() + PATIENCE;
    while process.ended().is_none() {
        if Instant::now() > patience {
            process.end(Signal::KILL);
            return None;
        }
        std::thread::sleep(POLL);
    }
    process.stdout().lines().next().map(str::to_string)
}

pub(super) fn read(baton: &Path, workload: &Workload) -> Result<Environment> {
    let topology = Topology::read(Path::new("/"))?;
    let of = |path: &str| kernel::read(path).unwrap_or_default();
    let switch = |(name, path): (&str, &str)| Some((name.to_string(), kernel::read(path)?));
    Ok(Environment {
        kernel: of("/proc/sys/kernel/osrelease"),
        kernel_build: of("/proc/sys/kernel/version"),
        command_line: of("/proc/cmdline"),
        boot_id: of("/proc/sys/kernel/random/boot_id"),
        cpus: topology.online.weight() as u32,
        governors: governors(&topology),
        switches: SWITCHES.into_iter().filter_map(switch).collect(),
        versions: versions(baton, workload),
        topology: serde_json::to_value(&topology)?,
    })
}
