//! Speed of the simulator: events a second over the size of the machine, OLTP at full load. Prints
//! the curve; not a criterion benchmark, because one run takes seconds and is its own average.
//!
//! `cargo bench --no-default-features --bench sim`; an argument selects sizes: `64`, `480`, `8192`.

use scx_baton::sim::program::Workload;
use scx_baton::sim::random::Time;
use scx_baton::sim::{Report, Setup, Sim, generators};
use scx_baton::topology::synthetic;
use scx_baton::units::Nanos;
use std::time::Instant;

/// CPUs, machine, virtual time.
const SIZES: &[(u32, &str, Nanos)] = &[
    (8, "1x1x8", Nanos::from_secs(20)),
    (64, "2x1x32", Nanos::from_secs(5)),
    (480, "granite-rapids-snc3", Nanos::from_secs(10)),
    (1024, "4x4x64", Nanos::from_secs(1)),
    (8192, "8x8x128", Nanos::from_secs(1)),
];

/// Peak resident memory of this process in MiB, where the kernel tells.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? >> 10)
}

fn main() {
    let wanted: Vec<u32> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    println!(
        "   CPUs  virtual s     events   wall s  events/s  ns/event  ns/(event log2 CPUs)  peak MiB"
    );
    for &(cpus, machine, duration) in SIZES {
        if !wanted.is_empty() && !wanted.contains(&cpus) {
            continue;
        }
        let topology = synthetic::parse(machine).expect("a size is a valid description");
        let mut workload = Workload::default();
        let (work, io) =
            (Time::Exponential(Nanos::from_us(500)), Time::Exponential(Nanos::from_us(800)));
        generators::oltp(&mut workload, 2 * cpus, work, io, cpus);
        let mut setup = Setup::new(topology, workload, duration);
        setup.check_every = Nanos::ZERO;
        let start = Instant::now();
        let mut sim = Sim::new(setup);
        sim.run(|_| {});
        let wall = start.elapsed().as_secs_f64();
        let report = Report::of(&sim);
        let events = report.totals.events as f64;
        let per_event = wall * 1e9 / events;
        println!(
            "{cpus:>7} {:>10.1} {events:>10.0} {wall:>8.2} {:>9.0} {per_event:>9.0} {:>21.1}  {}",
            duration.0 as f64 / 1e9,
            events / wall,
            per_event / f64::from(cpus).log2(),
            peak_mib().map_or("-".into(), |m| m.to_string()),
        );
    }
}
