//! An external check that nobody here wrote: queues whose means have closed formulas.

use scx_baton::sim::costs::Costs;
use scx_baton::sim::program::{Gives, Op, Source, Workload, forever};
use scx_baton::sim::random::Time;
use scx_baton::sim::{Report, Rules, Setup, Sim};
use scx_baton::topology::synthetic;
use scx_baton::units::Nanos;

/// Mean service time.
const SERVICE: Nanos = Nanos::from_us(100);
/// Agreement asked for.
const WITHIN: f64 = 0.02;

fn run(machine: &str, workload: Workload, seconds: u64, slice: Nanos) -> Report {
    let topology = synthetic::parse(machine).unwrap();
    let mut setup = Setup::new(topology, workload, Nanos::from_secs(seconds));
    setup.costs = Costs::FREE;
    setup.rules = Rules { slice, ..Rules::default() };
    setup.check_every = Nanos::ZERO;
    setup.seed = 42;
    let mut sim = Sim::new(setup);
    sim.run(|_| {});
    Report::of(&sim)
}

/// Customers that come at a rate of `load` per mean service time and server.
fn customers(load: f64, service: Time) -> Workload {
    let mut w = Workload::default();
    let customer = w.template("customer", vec![Op::Run(service)]);
    let interval = Nanos((service.mean().0 as f64 / load) as u64);
    let interval = Time::Exponential(interval);
    w.sources.push(Source { interval, gives: Gives::Task(customer) });
    w
}

/// Mean time in the system, in mean service times.
fn sojourn(report: &Report) -> f64 {
    let totals = &report.totals;
    totals.lifetime_ns[0] as f64 / totals.ended[0] as f64 / SERVICE.0 as f64
}

fn assert_close(what: &str, simulated: f64, formula: f64) {
    let off = (simulated / formula - 1.0).abs();
    assert!(off < WITHIN, "{what}: simulated {simulated:.4}, formula {formula:.4}");
}

#[test]
fn one_server() {
    // M/M/1: E[T] = E[S] / (1 - rho).
    for load in [0.3, 0.6] {
        let w = customers(load, Time::Exponential(SERVICE));
        let report = run("1x1x1", w, 60, Nanos::ZERO);
        assert_close("M/M/1", sojourn(&report), 1.0 / (1.0 - load));
        assert_close("utilisation", 1.0 - report.idle_pct / 100.0, load);
    }
}

/// Erlang's C: the probability of having to wait with `c` servers under `a` = c × rho.
fn erlang_c(c: u32, a: f64) -> f64 {
    let term = |k: u32| (1..=k).fold(1.0, |x, i| x * a / f64::from(i));
    let last = term(c) / (1.0 - a / f64::from(c));
    last / ((0..c).map(term).sum::<f64>() + last)
}

#[test]
fn many_servers() {
    // M/M/c by c workers, each with a CPU, that take requests in turn:
    // E[N] = c rho + C(c, c rho) rho / (1 - rho). The time in service is what the CPUs are busy for;
    // the number waiting is the number of requests that are posted and not yet taken.
    for (c, load) in [(4u32, 0.7), (8, 0.8)] {
        let mut w = Workload::default();
        let requests = w.semaphore(0);
        let serve = vec![Op::Wait(requests), Op::Run(Time::Exponential(SERVICE)), Op::Done];
        let worker = w.template("worker", forever(serve));
        w.start(worker, c);
        let interval = Nanos((SERVICE.0 as f64 / load / f64::from(c)) as u64);
        let interval = Time::Exponential(interval);
        w.sources.push(Source { interval, gives: Gives::Post(requests) });
        let report = run(&format!("1x1x{c}"), w, 20, Nanos::ZERO);
        assert_close("throughput", report.done_per_s, load * f64::from(c) / 1e-4);
        assert_close("utilisation", 1.0 - report.idle_pct / 100.0, load);
        let waiting = report.semaphore_waits[requests as usize].mean_held(report.duration());
        let expected = erlang_c(c, load * f64::from(c)) * load / (1.0 - load);
        assert_close("M/M/c number waiting", waiting, expected);
    }
}

#[test]
fn processor_sharing() {
    // M/G/1-PS: E[T] = E[S] / (1 - rho) whatever the distribution of S; under first come, first
    // served, deterministic service would give (1 + rho / 2 / (1 - rho)) E[S] instead: 1.75 at 0.6.
    let load = 0.6;
    let slice = Nanos::from_us(1);
    for service in [Time::Fixed(SERVICE), Time::Uniform(Nanos(0), Nanos(2 * SERVICE.0))] {
        let report = run("1x1x1", customers(load, service), 30, slice);
        assert_close("M/G/1-PS", sojourn(&report), 1.0 / (1.0 - load));
    }
    let fifo = run("1x1x1", customers(load, Time::Fixed(SERVICE)), 30, Nanos::ZERO);
    assert_close("M/D/1", sojourn(&fifo), 1.75);
}
