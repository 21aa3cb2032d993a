//! A pair that communicates on unequal nodes: seed 4.

use super::{Figure, Reproduction, Size, simulate};
use crate::policy::tunables::NumaImbalance;
use crate::sim::engine::Setup;
use crate::sim::generators::pipe_pair;
use crate::sim::machine::Placement;
use crate::sim::program::Workload;
use crate::sim::report::Report;
use crate::topology::synthetic;
use crate::units::Nanos;

/// Four nodes, three NUMA levels, groups of unequal weight.
const MACHINE: &str = "2x2x4+8 dist=10,12,20,22/12,10,22,24/20,22,10,12/22,24,12,10 arch=other";

fn run_one(size: Size, rule: NumaImbalance) -> Option<Report> {
    let mut w = Workload::default();
    pipe_pair(&mut w, Some(0));
    let ms = if size == Size::Full { 10_000 } else { 2_000 };
    let mut setup = Setup::new(synthetic::parse(MACHINE).ok()?, w, Nanos::from_ms(ms));
    setup.tunables.numa_imbalance = rule;
    setup.rules.placement = Placement::Anywhere;
    setup.check_every = Nanos::ZERO;
    Some(simulate(setup))
}

pub(super) fn run(size: Size) -> Reproduction {
    let corrected = run_one(size, NumaImbalance::Corrected);
    let kernel = run_one(size, NumaImbalance::Kernel);
    let speed = |r: &Option<Report>| {
        r.as_ref()
            .map_or(f64::NAN, |r| r.totals.piped_bytes as f64 / (r.duration_ns as f64 / 1e9) / 1e6)
    };
    let remote = |r: &Option<Report>| {
        r.as_ref().map_or(f64::NAN, |r| {
            r.totals.cross_node_bytes as f64 * 100.0 / r.totals.piped_bytes.max(1) as f64
        })
    };
    let figure = |what: &str, paper, simulated, wanted| Figure {
        what: what.into(),
        paper,
        simulated,
        wanted,
    };
    Reproduction {
        name: "numa-imbalance",
        figures: vec![
            figure("bytes across nodes, corrected (%)", None, remote(&corrected), (0.0, 5.0)),
            figure("bytes across nodes, kernel (%)", None, remote(&kernel), (50.0, 100.1)),
            figure("bandwidth, corrected (MB/s)", Some(4323.0), speed(&corrected), (0.0, f64::MAX)),
            figure("bandwidth, kernel (MB/s)", Some(1776.75), speed(&kernel), (0.0, f64::MAX)),
            figure(
                "bandwidth, corrected : kernel",
                Some(2.43),
                speed(&corrected) / speed(&kernel),
                (1.8, 3.2),
            ),
        ],
        assumptions: vec![
            format!("machine: {MACHINE}"),
            "nothing fitted: line transfers of EPYC Genoa, 15 % of one for each line of the data \
             and of the pages that the writer takes back"
                .into(),
            "the rule acts when the pair is forked: copies exclude each other (pipe->mutex), so that \
             the two seldom run at once and a balancing pass finds nothing to move"
                .into(),
            "a woken task goes back to its last CPU if that idles: the kernel's wake affinity, \
             which would pull the pair together again now and then, is not modelled"
                .into(),
        ],
        notes: String::new(),
    }
}
