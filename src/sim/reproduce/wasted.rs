//! The four bugs of "a Decade of Wasted Cores": the checker finds each, and nothing without them.

use super::{Figure, Reproduction, Size, simulate};
use crate::cpumask::Cpumask;
use crate::sim::bugs::Bug;
use crate::sim::engine::{Change, Setup};
use crate::sim::generators::hogs;
use crate::sim::machine::Placement;
use crate::sim::program::{Op, Workload, forever};
use crate::sim::random::Time;
use crate::sim::report::Report;
use crate::topology::synthetic;
use crate::units::{CpuId, Nanos, Weight};

/// How long the checker lets a CPU idle while work waits, in ms. Well above the longest interval of
/// an idle CPU's widest level here (64 CPUs: 64 ms, doubled when balanced), below any bug's effect.
const LIMIT_MS: u32 = 200;

/// The scenario that shows a bug, with or without it.
fn setup(bug: Bug, with: bool) -> Option<Setup> {
    let us = |n| Time::Exponential(Nanos::from_us(n));
    let mut w = Workload::default();
    let mut changes = Vec::new();
    let mut placement = Placement::Stay;
    let mut limit_ms = LIMIT_MS;
    let machine = match bug {
        Bug::GroupImbalance => {
            // One heavy task on node 0 and 64 light ones that start on node 1.
            let run = || forever(vec![Op::Run(us(1000)), Op::Done]);
            let heavy = w.template("heavy", run());
            w.templates[heavy as usize].weight = Weight(88_761);
            let light = w.template("light", run());
            w.start(heavy, 1);
            w.starts[0].on = Some(0);
            w.start(light, 24);
            w.starts[1].on = Some(8);
            "2x1x8 dist=10,21"
        }
        Bug::GroupConstruction => {
            // Tasks bound to two nodes that are two hops apart, all started on one of them.
            hogs(&mut w, 16);
            let cpus = (4..8).chain(16..20).map(CpuId);
            w.templates[0].allowed = Some(Cpumask::from_cpus(32, cpus));
            w.starts[0].on = Some(4);
            "mesh8"
        }
        Bug::OverloadOnWakeup => {
            // A task on node 0 wakes more workers than node 0 has CPUs; node 1 idles in between.
            placement = if with { Placement::WakersNode } else { Placement::Anywhere };
            let go = w.semaphore(0);
            let steps = vec![Op::Wait(go), Op::Run(us(2000)), Op::Done];
            let worker = w.template("worker", forever(steps));
            w.start(worker, 12);
            let mut steps = vec![Op::Post(go); 12];
            steps.extend([Op::Run(us(50)), Op::Sleep(us(2000))]);
            let waker = w.template("waker", forever(steps));
            w.templates[waker as usize].allowed = Some(Cpumask::from_cpus(16, [CpuId(0)]));
            w.start(waker, 1);
            limit_ms = LIMIT_MS / 20;
            "2x1x8 dist=10,21"
        }
        Bug::MissingDomains => {
            hogs(&mut w, 12);
            w.starts[0].on = Some(0);
            w.starts[0].at = Nanos::from_ms(200);
            changes = vec![
                (Nanos::from_ms(50), Change::Offline(CpuId(1))),
                (Nanos::from_ms(100), Change::Online(CpuId(1))),
            ];
            "2x1x8 dist=10,21"
        }
    };
    let mut setup = Setup::new(synthetic::parse(machine).ok()?, w, Nanos::from_secs(3));
    setup.rules.placement = placement;
    setup.bug = with.then_some(bug);
    setup.changes = changes;
    setup.tunables.wc_limit_ms = limit_ms;
    Some(setup)
}

pub(super) fn run(_size: Size) -> Reproduction {
    let mut figures = Vec::new();
    for bug in Bug::ALL {
        for with in [false, true] {
            let report = setup(bug, with).map(simulate);
            let found = report.map_or(f64::NAN, |r: Report| r.violations as f64);
            let wanted = if with { (1.0, f64::MAX) } else { (0.0, 0.0) };
            let how = if with { "with" } else { "without" };
            let what = format!("{}, {how} the bug: violations", bug.name());
            figures.push(Figure { what, paper: None, simulated: found, wanted });
        }
    }
    Reproduction {
        name: "wasted-cores",
        figures,
        assumptions: vec![
            format!(
                "a CPU that idles for more than {LIMIT_MS} ms while work waits is a violation; {} ms \
                 for overload-on-wakeup, whose idle times are short and many",
                LIMIT_MS / 20
            ),
            "the bugs are put back at the boundary of the policy (what it sees, its domains, \
             wake-up placement); its code is the one that runs live"
                .into(),
        ],
        notes: String::new(),
    }
}
