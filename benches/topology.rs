//! How long reading and building take, and how much memory, from 8 to 8,192 CPUs.
//!
//! Each size runs in a process of its own, so that its peak memory is its own. Run with
//! `cargo bench --no-default-features --bench topology`.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

#[path = "../tests/common/scratch.rs"]
mod scratch;
#[path = "../tests/common/sysroot.rs"]
mod sysroot;

use scx_baton::domains::{build, sanity};
use scx_baton::topology::{Topology, synthetic};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Machine, and the limits for reading and building it where there are any.
const SIZES: &[(&str, Option<Limit>)] = &[
    ("1x1x4 smt=2", None),
    ("2x4x4 smt=2 llc=4 dist=10,12,32", None),
    ("2x4x16 smt=2 llc=8 dist=10,12,32", None),
    ("granite-rapids-snc3", Some(Limit { time: Duration::from_millis(50), mib: 300 })),
    ("4x4x32 smt=2 llc=8 dist=10,12,32", None),
    ("8x4x32 smt=2 llc=8 dist=10,12,32", None),
    ("16x4x32 smt=2 llc=8 dist=10,12,32", None),
    ("16x4x64 smt=2 llc=8 dist=10,12,32", Some(Limit { time: Duration::from_secs(2), mib: 300 })),
    (
        "16x4x128 llc=8 order=spread dist=10,12,32",
        Some(Limit { time: Duration::from_secs(2), mib: 300 }),
    ),
];

#[derive(Clone, Copy)]
struct Limit {
    time: Duration,
    mib: u64,
}

/// Peak resident memory of this process in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Reads and builds once; prints microseconds for both and the peak.
fn one(root: &Path) {
    let start = Instant::now();
    let t = Topology::read(root).unwrap();
    let read = start.elapsed();
    let start = Instant::now();
    let built = build(&t);
    let build = start.elapsed();
    assert!(sanity(&built.tree).is_empty());
    println!("{} {} {}", read.as_micros(), build.as_micros(), peak_kib());
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, root] = &args[..]
        && flag == "--one"
    {
        return one(Path::new(root));
    }
    println!("    CPUs nodes    read ms   build ms  us per CPU x log2  peak MiB  limit");
    let mut broken = false;
    for &(spec, limit) in SIZES {
        let t = synthetic::parse(spec).unwrap();
        let (cpus, nodes) = (t.online.weight(), t.nodes.len());
        let root = sysroot::SysRoot::of(&t);
        let child = Command::new(&args[0]).arg("--one").arg(root.path()).output().unwrap();
        let text = String::from_utf8(child.stdout).unwrap();
        let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        let [read, build, peak] = numbers[..] else { panic!("{spec}: {text}") };
        let each = (read + build) as f64 / (cpus as f64 * (cpus as f64).log2());
        let verdict = limit.map_or(String::new(), |limit| {
            let kept = Duration::from_micros(read + build) < limit.time && peak < limit.mib << 10;
            broken |= !kept;
            format!(
                "{} ({:?}, {} MiB)",
                if kept { "kept" } else { "BROKEN" },
                limit.time,
                limit.mib
            )
        });
        println!(
            "{cpus:>8} {nodes:>5} {:>10.2} {:>10.2} {each:>18.2} {:>9.1}  {verdict}",
            read as f64 / 1e3,
            build as f64 / 1e3,
            peak as f64 / 1024.0
        );
    }
    assert!(!broken, "a limit is broken");
}
