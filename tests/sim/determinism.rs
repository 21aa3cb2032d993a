//! One seed, one run.

use scx_baton::sim::program::Workload;
use scx_baton::sim::random::Time;
use scx_baton::sim::{Executors, Report, Setup, Sim, generators};
use scx_baton::topology::synthetic;
use scx_baton::units::Nanos;

fn setup(executors: Executors, seed: u64) -> Setup {
    let mut w = Workload::default();
    let io = Time::Exponential(Nanos::from_us(300));
    generators::oltp(&mut w, 40, Time::Exponential(Nanos::from_us(200)), io, 4);
    generators::make(&mut w, 6, Nanos::from_ms(2));
    let topology = synthetic::parse("2x2x4 smt=2 dist=10,12,21").unwrap();
    let mut setup = Setup::new(topology, w, Nanos::from_ms(200));
    setup.executors = executors;
    setup.seed = seed;
    setup.trace = true;
    setup
}

fn text(executors: Executors, seed: u64) -> String {
    let mut sim = Sim::new(setup(executors, seed));
    sim.run(|_| {});
    serde_json::to_string(&Report::of(&sim)).unwrap() + &sim.chrome_trace().to_string()
}

#[test]
fn one_seed_gives_one_trace_byte_for_byte() {
    for executors in [Executors::Cpu, Executors::Llc, Executors::Node, Executors::One] {
        let first = text(executors, 3);
        assert!(first == text(executors, 3), "{executors:?}");
        assert!(first != text(executors, 4), "{executors:?}: the seed does nothing");
    }
}

#[test]
fn two_runs_go_in_step() {
    let (mut a, mut b) = (Sim::new(setup(Executors::Cpu, 9)), Sim::new(setup(Executors::Cpu, 9)));
    loop {
        let (ea, eb) = (a.step(), b.step());
        assert_eq!(ea, eb);
        if ea.is_none() {
            break;
        }
    }
}
