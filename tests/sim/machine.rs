//! The machine itself: affinity, capacity, weights, hotplug, clock jumps, conservation of time.

use scx_baton::cpumask::Cpumask;
use scx_baton::policy::tunables::{ForkPlacement, SerializeOrder, SerializePasses};
use scx_baton::sim::costs::{Cause, Costs};
use scx_baton::sim::program::{Op, Start, Workload, forever};
use scx_baton::sim::random::Time;
use scx_baton::sim::{Change, Executors, Report, Setup, Sim, generators};
use scx_baton::topology::synthetic;
use scx_baton::units::{CpuId, Nanos, Weight};

fn setup(machine: &str, w: Workload, ms: u64) -> Setup {
    Setup::new(synthetic::parse(machine).unwrap(), w, Nanos::from_ms(ms))
}

fn run(setup: Setup) -> (Sim, Report) {
    let mut sim = Sim::new(setup);
    sim.run(|_| {});
    let report = Report::of(&sim);
    (sim, report)
}

#[test]
fn all_time_goes_somewhere() {
    for executors in [Executors::Cpu, Executors::Llc, Executors::Node, Executors::One] {
        let mut w = Workload::default();
        generators::make(&mut w, 10, Nanos::from_ms(3));
        generators::hackbench(&mut w, 1, 1_000_000);
        let mut setup = setup("2x1x4 smt=2 dist=10,21", w, 300);
        setup.executors = executors;
        let (_, report) = run(setup);
        let spent: f64 = report.shares.iter().map(|s| s.pct).sum();
        // What is begun before the end and ends after it is booked in full.
        let all = spent + report.idle_pct;
        assert!((all - 100.0).abs() < 1.0, "{executors:?}: {all} %");
    }
}

#[test]
fn a_pipe_carries_its_bandwidth_and_one_copy_at_a_time() {
    // Four pairs that share one pipe move no more than one pair does.
    for pairs in [1, 4] {
        let mut w = Workload::default();
        let pipe = w.pipe(65_536);
        let write = w.template("writer", forever(vec![Op::Write(pipe, 4096)]));
        let read = w.template("reader", forever(vec![Op::Read(pipe, 4096), Op::Done]));
        w.start(write, pairs);
        w.start(read, pairs);
        let mut setup = setup("1x1x8", w, 100);
        setup.costs = Costs { copy_mb_s: 1_000, ..Costs::FREE };
        let mb_s = run(setup).1.totals.piped_bytes as f64 / 0.1 / 1e6;
        assert!((mb_s / 1_000.0 - 1.0).abs() < 0.01, "{pairs} pairs: {mb_s} MB/s");
    }
}

#[test]
fn new_tasks_fill_a_node_to_the_limit_and_then_both() {
    for (placement, most) in [(ForkPlacement::Numa, 36), (ForkPlacement::Near, 64)] {
        let mut w = Workload::default();
        let child = w.template("child", vec![Op::Run(Time::Fixed(Nanos::from_secs(1)))]);
        let parent = w.template(
            "parent",
            vec![Op::Fork(child, 63), Op::Sleep(Time::Fixed(Nanos::from_secs(1)))],
        );
        w.starts.push(Start { template: parent, nr: 1, at: Nanos::ZERO, on: Some(0) });
        // Too short for a pass to move anybody.
        let mut setup = setup("1x2x64 dist=10,21", w, 2);
        setup.tunables.fork_placement = placement;
        setup.costs = Costs::FREE;
        setup.heat = true;
        let (sim, _) = run(setup);
        let busy = |cpu: u32| sim.heat_row(CpuId(cpu)).unwrap().iter().sum::<f64>() > 0.0;
        let home = (0..64).filter(|&cpu| busy(cpu)).count();
        assert!(home <= most && home >= most - 6, "{placement}: {home} of 64 CPUs of the home");
    }
}

#[test]
fn relaxed_levels_see_no_newidle_pass() {
    let passes = |relax_domain_level| {
        let mut w = Workload::default();
        generators::hackbench(&mut w, 1, 1_000_000);
        let mut setup = setup("2x1x4 smt=2 dist=10,21", w, 100);
        setup.domains.relax_domain_level = relax_domain_level;
        let counters = run(setup).1.counters.unwrap();
        let levels = counters.levels.iter().map(|l| l.newidle.lb_count);
        levels.collect::<Vec<u64>>()
    };
    let all = passes(None);
    assert!(all.iter().all(|&n| n > 0), "{all:?}");
    // SMT, CLS, MC: the third row of the kernel's table.
    let narrow = passes(Some(2));
    assert!(narrow[0] > 0 && narrow[1..].iter().all(|&n| n == 0), "{narrow:?}");
}

#[test]
fn bound_tasks_stay_and_share_by_weight() {
    let mut w = Workload::default();
    let step = || forever(vec![Op::Run(Time::Fixed(Nanos::from_us(100))), Op::Done]);
    let heavy = w.template("heavy", step());
    let light = w.template("light", step());
    w.templates[heavy as usize].weight = Weight(3 * 1024);
    for kind in [heavy, light] {
        w.templates[kind as usize].allowed = Some(Cpumask::from_cpus(4, [CpuId(2)]));
        w.start(kind, 1);
    }
    let mut setup = setup("1x1x4", w, 2_000);
    setup.costs = Costs::FREE;
    let (sim, report) = run(setup);
    let ratio = report.totals.done[0] as f64 / report.totals.done[1] as f64;
    assert!((ratio - 3.0).abs() < 0.1, "{ratio}");
    for (cpu, busy) in Report::busy_pct(&sim) {
        assert_eq!(busy > 50.0, cpu == CpuId(2), "CPU {cpu}: {busy} %");
    }
    assert_eq!(report.totals.moves, [0; 4]);
}

#[test]
fn slow_cpus_take_longer() {
    let mut w = Workload::default();
    let step = Op::Run(Time::Fixed(Nanos::from_us(100)));
    let task = w.template("task", forever(vec![step, Op::Done]));
    w.templates[task as usize].allowed = Some(Cpumask::from_cpus(2, [CpuId(1)]));
    w.start(task, 1);
    let mut setup = setup("1x1x2 capacity=1024+512", w, 1_000);
    setup.costs = Costs::FREE;
    // 100 us of work take 200 us at half the capacity.
    assert!((run(setup).1.done_per_s - 5_000.0).abs() < 10.0);
}

#[test]
fn hotplug_and_suspend_lose_no_task() {
    for executors in [Executors::Cpu, Executors::Llc] {
        let mut w = Workload::default();
        generators::hogs(&mut w, 8);
        let mut setup = setup("2x1x4 dist=10,21", w, 1_000);
        setup.executors = executors;
        let at = Nanos::from_ms;
        setup.changes = vec![
            (at(100), Change::Offline(CpuId(0))),
            (at(150), Change::Offline(CpuId(5))),
            (at(300), Change::Clock(Nanos::from_secs(3 * 3600))),
            (at(500), Change::Online(CpuId(0))),
            (at(600), Change::Online(CpuId(5))),
        ];
        let (_, report) = run(setup);
        // 8 CPUs for 1 s, less 0.4 and 0.45 s for which two of them were away.
        let work = report.share(Cause::Work) * 8.0 / 100.0;
        assert!((work - 7.15).abs() < 0.2, "{executors:?}: {work} CPU seconds");
    }
}

#[test]
fn one_task_per_cpu_is_left_alone() {
    let mut w = Workload::default();
    generators::hogs(&mut w, 16);
    let (_, report) = run(setup("2x2x2 smt=2 dist=10,12,21", w, 2_000));
    assert_eq!((report.totals.moves, report.violations), ([0; 4], 0));
}

#[test]
fn work_is_conserved_by_default() {
    for executors in [Executors::Cpu, Executors::Llc] {
        let mut w = Workload::default();
        generators::hogs(&mut w, 16);
        w.starts[0].on = Some(0);
        let mut setup = setup("2x1x8 dist=10,21", w, 1_000);
        setup.executors = executors;
        // All begin on one CPU; the level across nodes is tried every 16 to 32 ms, and halves the
        // difference each time.
        setup.tunables.wc_limit_ms = 300;
        let (_, report) = run(setup);
        assert_eq!(report.violations, 0, "{executors:?}: {:?}", report.first_violation);
        assert!(report.idle_pct < 10.0, "{executors:?}: {} % idle", report.idle_pct);
    }
}

#[test]
fn isolated_cpus_get_only_what_is_bound_to_them() {
    let mut w = Workload::default();
    generators::make(&mut w, 12, Nanos::from_ms(2));
    generators::hogs(&mut w, 8);
    let step = Op::Run(Time::Fixed(Nanos::from_us(100)));
    let released = w.template("released", vec![Op::Pin(None), step.clone(), Op::Sleep(us(50))]);
    w.templates[released as usize].allowed = Some(Cpumask::from_cpus(16, [CpuId(6)]));
    w.start(released, 1);
    let bound = w.template("bound", forever(vec![step, Op::Done]));
    w.templates[bound as usize].allowed = Some(Cpumask::from_cpus(16, [CpuId(7)]));
    w.start(bound, 1);
    let (sim, report) = run(setup("2x1x8 dist=10,21 isolated=5-7", w, 500));
    let busy = Report::busy_pct(&sim);
    assert_eq!(busy[5].1, 0.0, "an isolated CPU got a task");
    assert!(busy[6].1 < 1.0, "what was released came back: {} %", busy[6].1);
    assert!(busy[7].1 > 99.0, "{} %", busy[7].1);
    assert_eq!(report.violations, 0, "{:?}", report.first_violation);
}

fn us(n: u64) -> Time {
    Time::Fixed(Nanos::from_us(n))
}

#[test]
fn a_violation_carries_the_idle_cpus_last_skip() {
    let mut w = Workload::default();
    generators::hogs(&mut w, 16);
    w.starts[0].on = Some(0);
    let mut setup = setup("2x1x8 dist=10,21", w, 500);
    // Less than the wider level's interval: the other node waits for longer, after its first passes.
    setup.tunables.wc_limit_ms = 8;
    let (_, report) = run(setup);
    let first = report.first_violation.unwrap();
    assert!(first.why.is_some(), "{first}");
    assert!(report.text().contains("; its last pass: "), "{}", report.text());
}

#[test]
fn no_move_of_a_task_that_never_sleeps_is_undone() {
    for n in [12, 20, 40] {
        let mut w = Workload::default();
        generators::hogs(&mut w, n);
        let (_, report) = run(setup("2x1x8 dist=10,21", w, 2_000));
        assert!(report.undone_pct() < 1.0, "{n} tasks: {} %", report.undone_pct());
    }
}

/// The virtual machine's shape 4n16 at full load, without its emulation: how much rarer the flag is
/// asked for when the due check and the election come first.
#[test]
fn electing_first_spares_twenty_attempts_of_twenty_one() {
    let attempts = |order| {
        let mut w = Workload::default();
        generators::hogs(&mut w, 20);
        let machine = "4x1x2 smt=2 dist=10,12,21,21/12,10,21,21/21,21,10,12/21,21,12,10";
        let mut setup = setup(machine, w, 4_000);
        setup.tunables.serialize_order = order;
        setup.tunables.serialize_passes = SerializePasses::Periodic;
        let (sim, _) = run(setup);
        sim.counters().unwrap().sum(|c| c.serialize_attempts)
    };
    let (always, elected) = (attempts(SerializeOrder::Always), attempts(SerializeOrder::Elected));
    assert!(always >= 20 * elected && elected > 0, "always {always}, elected {elected}");
}
