//! Nohz idle balancing: kicks, helpers, walks and what they cost in shared writes.

use crate::lab::{Lab, TICK};
use scx_baton::balancer::fake::{FakeHost, FakeTask, regular_tree};
use scx_baton::balancer::{Balancer, Config, Shared};
use scx_baton::cpumask::Cpumask;
use scx_baton::policy::nohz::{BusyTick, Kick, Nohz, Traffic};
use scx_baton::policy::{Facts, SkipReason, Tunables};
use scx_baton::units::{CpuId, Nanos};
use std::sync::Arc;

/// A tickless machine of two nodes.
fn tickless(settings: &[&str]) -> Lab {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 2));
    lab.balancer = lab.balancer.tickless(true);
    settings.iter().for_each(|s| lab.set(s));
    lab
}

#[test]
fn an_idle_machine_needs_no_round() {
    let mut lab = tickless(&[]);
    lab.balancer.round(&mut lab.host, &lab.config);
    assert_eq!(lab.balancer.next_due(), Nanos::MAX);
}

#[test]
fn one_idle_cpu_balances_for_all() {
    let mut lab = tickless(&[]);
    lab.host.add_hogs(0, 16, 1);
    lab.run(1000);
    assert_eq!(lab.host.nr_running(), vec![1; 16]);
    let counters = lab.counters();
    assert!(counters.nohz_kicks > 0 && counters.ilb_runs > 0 && counters.ilb_cpus_balanced > 0);
    assert_eq!(lab.host.kicks.len() as u64, counters.nohz_kicks);
}

#[test]
fn switched_off_nobody_is_kicked_and_idle_cpus_balance_themselves() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 2));
    lab.set("nohz=off");
    lab.host.add_hogs(0, 16, 1);
    lab.run(1000);
    assert_eq!(lab.host.nr_running(), vec![1; 16]);
    let counters = lab.counters();
    assert_eq!((counters.nohz_kicks, counters.ilb_runs), (0, 0));
    assert!(counters.nohz_skips[SkipReason::NohzOff.index()] > 0);
}

/// Line writes for each idle entry and exit of a CPU that works now and then.
fn writes_per_transition(settings: &[&str]) -> (u64, u64) {
    let mut lab = tickless(settings);
    lab.host.add_hogs(0, 1, 1);
    lab.run(5);
    let start = lab.counters();
    for i in 0..50 {
        lab.host.add_hogs(3, 1, 100 + i);
        lab.host.now += TICK;
        lab.balancer.round(&mut lab.host, &lab.config);
        lab.host.remove(100 + i);
        lab.host.now += TICK;
        lab.balancer.round(&mut lab.host, &lab.config);
    }
    let end = lab.counters();
    (end.nohz_line_writes - start.nohz_line_writes, end.nohz_transitions - start.nohz_transitions)
}

#[test]
fn the_counter_doubles_the_writes() {
    assert_eq!(writes_per_transition(&["nohz-count=mask"]), (100, 100));
    assert_eq!(writes_per_transition(&["nohz-count=counter"]), (200, 100));
    assert_eq!(writes_per_transition(&["nohz-mask=node"]), (100, 100));
}

#[test]
fn both_masks_show_the_same_idle_cpus_even_after_a_switch() {
    let mut lab = tickless(&["nohz-mask=node"]);
    lab.host.add_hogs(0, 1, 1);
    lab.run(2);
    lab.set("nohz-mask=global");
    lab.host.add_hogs(9, 1, 2);
    lab.run(2);
    lab.host.remove(1);
    lab.run(2);
    let mut idle = Cpumask::new(16);
    lab.shared.nohz.idle_cpus(&mut idle);
    assert_eq!(idle.to_string(), "0-8,10-15");
}

#[test]
fn time_first_leaves_the_mask_alone_until_due() {
    let checks = |order: &str| {
        let mut lab = tickless(&[&format!("nohz-order={order}"), "nohz-scale=off"]);
        // Two bound tasks: always a reason to ask for help, and nothing to be done.
        let bound = lab.mask("0");
        (1..=2).for_each(|pid| lab.host.add(0, FakeTask::hog(pid).on(bound.clone())));
        for _ in 0..200 {
            // Four looks per tick, as four busy CPUs would make.
            lab.host.now += Nanos::from_us(250);
            lab.balancer.round(&mut lab.host, &lab.config);
        }
        lab.counters().nohz_checks
    };
    let (time, count) = (checks("time-first"), checks("count-first"));
    assert_eq!(count, 200, "every tick looks");
    assert!(time <= 50, "{time}: at most once a tick");
}

/// A record with one idle CPU, or none, at 100 ms.
fn nohz(idle: bool) -> (Nohz, Tunables, Nanos) {
    let nohz = Nohz::new(vec![0; 4].into_boxed_slice());
    let tunables = Tunables::default();
    if idle {
        nohz.enter_idle(&tunables, CpuId(3), &mut Traffic::default());
    }
    (nohz, tunables, Nanos::from_ms(100))
}

#[test]
fn each_reason_kicks_alone() {
    let busy = BusyTick { nr_running: 1, llc_busy: 1, ..BusyTick::default() };
    let decide = |tick: BusyTick| {
        let (nohz, t, now) = nohz(true);
        // The marks of the idle CPU are answered for first.
        nohz.begin_walk(CpuId(3), Kick::STATS | Kick::NEXT, Nanos::ZERO);
        nohz.kick_decision(&t, now, || tick, &mut Traffic::default())
    };
    let both = Ok(Kick::BALANCE | Kick::STATS);
    assert_eq!(decide(busy), Err(SkipReason::NohzNoReason));
    assert_eq!(decide(BusyTick { nr_running: 2, ..busy }), both);
    assert_eq!(decide(BusyTick { reduced: true, ..busy }), both);
    assert_eq!(decide(BusyTick { asym: true, ..busy }), both);
    assert_eq!(decide(BusyTick { misfit: Some(true), ..busy }), both);
    assert_eq!(decide(BusyTick { llc_busy: 2, ..busy }), both);
    // Where sizes differ the use of caches does not count.
    let sizes = BusyTick { llc_busy: 2, misfit: Some(false), ..busy };
    assert_eq!(decide(sizes), Err(SkipReason::NohzNoReason));
}

#[test]
fn nobody_idle_returns_or_goes_on_for_statistics() {
    for (empty, want) in
        [("return", Err(SkipReason::NohzNobodyIdles)), ("out", Ok(Kick::STATS | Kick::NEXT))]
    {
        let (nohz, mut t, now) = nohz(true);
        // It idled, left its marks, and is busy again.
        nohz.exit_idle(&t, CpuId(3), &mut Traffic::default());
        t.apply(&format!("nohz-empty={empty}")).unwrap();
        let got = nohz.kick_decision(&t, now, BusyTick::default, &mut Traffic::default());
        assert_eq!(got, want, "{empty}");
    }
}

#[test]
fn statistics_are_kicked_for_when_not_due_to_balance() {
    let (nohz, t, now) = nohz(true);
    nohz.begin_walk(CpuId(3), Kick::STATS | Kick::NEXT, now);
    nohz.note_walk(now + Nanos::from_secs(1), true);
    nohz.end_walk(Kick::STATS, now);
    let tick = || BusyTick { nr_running: 2, ..BusyTick::default() };
    let at = |ms| nohz.kick_decision(&t, now + Nanos::from_ms(ms), tick, &mut Traffic::default());
    assert_eq!(at(32), Err(SkipReason::NohzNotDue));
    assert_eq!(at(33), Ok(Kick::STATS));
    assert_eq!(at(1000), Ok(Kick::STATS | Kick::BALANCE));
}

#[test]
fn a_kick_sets_the_next_time_first_and_is_sent_once() {
    let (nohz, t, now) = nohz(true);
    let kick = Kick::BALANCE | Kick::STATS;
    let none = nohz.kick_ilb(&t, kick, (now, TICK), |_| None);
    assert_eq!(none, Err(SkipReason::NohzNoHelper));
    assert_eq!(nohz.next_balance(), now + TICK, "even without a helper");
    // The marks are kept: the next tick tries again.
    let tick = || BusyTick { nr_running: 2, ..BusyTick::default() };
    let again = nohz.kick_decision(&t, now + TICK, tick, &mut Traffic::default());
    assert_eq!(again, Ok(kick | Kick::NEXT));

    let helper = |_| Some(CpuId(3));
    assert_eq!(nohz.kick_ilb(&t, kick, (now, TICK), helper), Ok(CpuId(3)));
    assert_eq!(nohz.kick_ilb(&t, kick, (now, TICK), helper), Err(SkipReason::NohzPending));
    assert_eq!(nohz.take_pending(CpuId(3)), kick);
    assert!(!nohz.is_pending(CpuId(3)));
}

#[test]
fn scale_stretches_the_period_with_the_idle_cpus() {
    for (scale, ticks) in [("off", 1), ("on", 3)] {
        let nohz = Nohz::new(vec![0; 256].into_boxed_slice());
        let mut t = Tunables::default();
        t.apply(&format!("nohz-scale={scale}")).unwrap();
        // 130 idle CPUs: three times 64 or part of it.
        (0..130).for_each(|c| nohz.enter_idle(&t, CpuId(c), &mut Traffic::default()));
        let _ = nohz.kick_ilb(&t, Kick::BALANCE, (Nanos::ZERO, TICK), |_| None);
        assert_eq!(nohz.next_balance(), Nanos(ticks * TICK.0), "{scale}");
    }
}

#[test]
fn the_helper_is_chosen_as_told() {
    let helpers = |ilb: &str| {
        let mut lab = tickless(&[&format!("ilb={ilb}")]);
        // CPU 0 busy: its sibling 1 idles on a busy core. Bound, so that nothing changes.
        let bound = lab.mask("0");
        for pid in 1..=2 {
            lab.host.add(0, FakeTask::hog(pid).on(bound.clone()));
        }
        lab.run(100);
        lab.host.kicks.iter().map(|c| c.0).collect::<Vec<_>>()
    };
    assert!(helpers("first").iter().all(|&c| c == 1));
    assert!(helpers("idle-core").iter().all(|&c| c == 2));
    let turns = helpers("round-robin");
    assert_eq!(turns[..4], [1, 2, 3, 4]);
}

#[test]
fn a_helper_that_gets_work_stops_and_leaves_the_marks() {
    let mut lab = tickless(&["ilb=first"]);
    lab.host.add_hogs(4, 1, 1);
    lab.balancer.round(&mut lab.host, &lab.config);
    // Asked, but then it gets work of its own.
    let nohz = &lab.shared.nohz;
    nohz.begin_walk(CpuId(0), Kick::STATS | Kick::NEXT, lab.host.now);
    nohz.take_pending(CpuId(0));
    assert!(nohz.hand_on(CpuId(0), Kick::BALANCE | Kick::STATS | Kick::NEXT));
    lab.host.add_hogs(0, 1, 2);
    lab.balancer.round(&mut lab.host, &lab.config);
    assert_eq!(lab.counters().nohz_skips[SkipReason::NohzAborted.index()], 1);
    let later = lab.host.now + Nanos::from_secs(1);
    let idle = BusyTick::default;
    let kick =
        lab.shared.nohz.kick_decision(&lab.config.tunables, later, idle, &mut Traffic::default());
    assert_eq!(kick, Ok(Kick::STATS | Kick::NEXT));
}

#[test]
fn a_walk_is_handed_from_shard_to_shard() {
    let tree = Arc::new(regular_tree(4, 1, 4, 1));
    let facts = Arc::new(Facts::new(&tree));
    let shared = Arc::new(Shared::new(&tree, &facts, TICK));
    let mut workers: Vec<Balancer> = ["0-3", "4-7", "8-11", "12-15"]
        .into_iter()
        .map(|list| {
            let shard = Cpumask::parse_list(list, 16).unwrap();
            let (tree, facts, shared) =
                (Arc::clone(&tree), Arc::clone(&facts), Arc::clone(&shared));
            Balancer::new(tree, facts, shared, &shard).tickless(true)
        })
        .collect();
    let mut host = FakeHost::new(16);
    let config = Config::default();
    // All are idle and go to sleep.
    workers.iter_mut().for_each(|w| w.round(&mut host, &config));
    host.add_hogs(5, 16, 1);
    // A worker runs at the ticks of its busy CPUs, which the host sees, and when kicked.
    for _ in 0..2000 {
        host.now += TICK;
        let kicked: Vec<CpuId> = host.kicks.drain(..).collect();
        for worker in &mut workers {
            let ticks = worker.shard().iter().any(|c| !host.queues[c.index()].is_empty());
            if ticks || kicked.iter().any(|&c| worker.shard().test(c)) {
                worker.round(&mut host, &config);
            }
        }
    }
    assert_eq!(host.nr_running(), vec![1; 16]);
    let total: u64 = workers.iter().map(|w| w.counters().total().ilb_cpus_balanced).sum();
    assert!(total > 0);
    assert!(workers.iter().all(|w| w.counters().total().rounds > 1), "all were woken");
}
