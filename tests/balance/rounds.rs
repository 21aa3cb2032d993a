//! The periodic rounds.

use crate::lab::{Lab, TICK};
use scx_baton::balancer::fake::{FakeHost, FakeTask, regular_tree};
use scx_baton::balancer::{Balancer, Config, MoveOutcome, Shared};
use scx_baton::cpumask::Cpumask;
use scx_baton::domains::{LevelKind, SdFlags};
use scx_baton::policy::tunables::SerializeScope;
use scx_baton::policy::{Facts, SkipReason};
use scx_baton::stats::Counters;
use scx_baton::units::{Capacity, CpuId, Load};
use std::sync::Arc;

#[test]
fn hogs_on_one_cpu_spread_over_both_nodes() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    lab.host.add_hogs(0, 8, 1);
    lab.run(1000);
    assert_eq!(lab.host.nr_running(), vec![1; 8]);
    assert_eq!(lab.counters().moves_undone, 0);
}

#[test]
fn two_hogs_per_cpu_move_to_the_empty_node() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    for cpu in 0..4 {
        lab.host.add_hogs(cpu, 2, 10 * cpu + 1);
    }
    lab.run(1000);
    assert_eq!(lab.host.nr_running(), vec![1; 8]);
}

#[test]
fn a_balanced_machine_yields_no_plan() {
    let mut lab = Lab::new(regular_tree(2, 2, 4, 2));
    for cpu in 0..32 {
        lab.host.add_hogs(cpu, 2, 10 * cpu + 1);
    }
    lab.run(2000);
    assert!(lab.host.moves.is_empty());
    assert!(lab.sum(|c| c.lb_count) > 0);
    assert_eq!(lab.sum(|c| c.lb_failed + c.lb_gained), 0);
}

#[test]
fn affinity_is_never_violated_and_pinned_tasks_do_not_stop_the_others() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    let pinned = lab.mask("0");
    (1..=4).for_each(|pid| lab.host.add(0, FakeTask::hog(pid).on(pinned.clone())));
    lab.host.add_hogs(0, 7, 10);
    lab.run(2000);
    assert_eq!(lab.host.nr_running(), vec![4, 1, 1, 1, 1, 1, 1, 1]);
    assert!(lab.host.moves.iter().all(|(task, ..)| task.pid >= 10));
}

#[test]
fn a_task_bound_within_the_group_goes_to_the_cpu_it_may_use() {
    // The core of CPUs 2-3 pulls from that of 0-1; the waiting task may only use CPU 3.
    let mut lab = Lab::new(regular_tree(1, 1, 2, 2));
    lab.host.add(0, FakeTask::hog(1).on(lab.mask("0")));
    lab.host.add(0, FakeTask::hog(2).on(lab.mask("0,3")));
    lab.host.add(1, FakeTask::hog(3).on(lab.mask("1")));
    lab.run(100);
    assert_eq!(lab.host.nr_running(), vec![1, 1, 0, 1]);
}

#[test]
fn refused_moves_count_under_their_reason_and_take_nothing_off_the_imbalance() {
    let mut lab = Lab::new(regular_tree(1, 1, 4, 1));
    lab.host.add_hogs(0, 4, 1);
    lab.host.refuse = Some(MoveOutcome::RefusedGone);
    lab.run(100);
    assert_eq!(lab.sum(|c| c.lb_gained), 0);
    assert!(lab.sum(|c| c.moves[MoveOutcome::RefusedGone as usize]) > 0);
    assert!(lab.sum(|c| c.skips[SkipReason::MovesRefused.index()]) > 0);
    lab.host.refuse = None;
    lab.run(100);
    assert_eq!(lab.host.nr_running(), vec![1; 4]);
}

/// Serialize counters over one second of a busy machine under one order.
fn attempts_under(order: &str) -> Counters {
    let mut lab = Lab::new(regular_tree(4, 1, 2, 2));
    lab.set(&format!("serialize-order={order}"));
    (0..16).for_each(|cpu| lab.host.add_hogs(cpu, 2, 10 * cpu + 1));
    lab.run(10_000);
    lab.counters()
}

#[test]
fn the_order_decides_how_often_the_flag_is_taken_in_vain() {
    let (always, due, elected) =
        (attempts_under("always"), attempts_under("due"), attempts_under("elected"));
    assert!(always.sum(|c| c.serialize_not_due) > 0);
    assert_eq!(due.sum(|c| c.serialize_not_due), 0);
    assert_eq!(elected.sum(|c| c.serialize_not_due), 0);
    assert_eq!(elected.sum(|c| c.serialize_not_elected), 0);
    let attempts = |c: &Counters| c.sum(|c| c.serialize_attempts);
    let (all, few, least) = (attempts(&always), attempts(&due), attempts(&elected));
    assert!(all >= 20 * least && all > few && few > least, "{all} {few} {least}");
    for c in [always, due, elected] {
        assert_eq!(attempts(&c), c.sum(|c| c.serialize_acquired));
    }
}

#[test]
fn every_decision_is_logged_and_told() {
    let mut lab = Lab::new(regular_tree(1, 1, 4, 1));
    lab.host.add_hogs(0, 4, 1);
    lab.run(100);
    let (decisions, _) = lab.balancer.decisions().since(0);
    let moved = decisions.iter().find(|d| d.concerns_pid(2)).unwrap().to_string();
    assert!(moved.contains("from CPU 0") && moved.contains("move pid 2: applied"), "{moved}");
    assert!(decisions.iter().any(|d| d.to_string().contains("nothing moved")));
}

#[test]
fn a_cpu_outside_the_shard_is_left_alone() {
    let tree = Arc::new(regular_tree(2, 1, 4, 1));
    let facts = Arc::new(Facts::new(&tree));
    let shared = Arc::new(Shared::new(&tree, &facts, TICK));
    let shard = Cpumask::parse_list("4-7", 8).unwrap();
    let mut balancer = Balancer::new(tree, facts, shared, &shard);
    let mut host = FakeHost::new(8);
    host.add_hogs(0, 8, 1);
    for _ in 0..1000 {
        host.now += TICK;
        balancer.round(&mut host, &Config::default());
    }
    assert!(host.moves.iter().all(|(_, _, dst)| dst.0 >= 4));
    assert_eq!(host.nr_running()[1..4], [0, 0, 0]);
    assert!(balancer.levels_of(CpuId(0)).is_empty());
    assert_eq!(balancer.levels_of(CpuId(5)).len(), 2);
}

/// Lets a machine run while somebody else holds the serialize flag; returns it and how often the
/// flag was asked for.
fn run_without_the_flag(on_loss: &str) -> (Lab, u64) {
    let mut lab = Lab::new(regular_tree(2, 1, 2, 1));
    lab.set(&format!("serialize-on-loss={on_loss}"));
    lab.host.add_hogs(0, 4, 1);
    let shared = Arc::clone(&lab.shared);
    let held = shared.gate.try_acquire(SerializeScope::Global, LevelKind::Numa(1));
    assert!(held.is_some());
    lab.run(200);
    assert_eq!(lab.host.nr_running()[2..], [0, 0], "nothing crosses nodes without the flag");
    let busy = lab.sum(|c| c.serialize_busy);
    assert_eq!(lab.sum(|c| c.serialize_attempts), busy);
    assert_eq!(lab.sum(|c| c.skips[SkipReason::SerializeBusy.index()]), busy);
    drop(held);
    (lab, busy)
}

#[test]
fn who_loses_the_flag_tries_again_at_the_next_tick_or_backs_off() {
    let (mut skip, often) = run_without_the_flag("skip");
    let (_, seldom) = run_without_the_flag("backoff");
    // One elected CPU on the idle node asks every tick; backing off, every 4 then 8 ms.
    assert!(often >= 190, "{often}");
    assert!(seldom <= 60, "{seldom}");
    skip.run(200);
    assert_eq!(skip.host.nr_running(), vec![1; 4]);
}

#[test]
fn a_task_too_big_for_its_cpu_moves_up() {
    // CPUs 0-3 are small, 4-7 large; the level above both knows.
    let mut tree = regular_tree(1, 2, 4, 1);
    tree.domains.iter_mut().filter(|d| d.level == LevelKind::Pkg).for_each(|d| {
        d.flags |= SdFlags::ASYM_CPUCAPACITY | SdFlags::ASYM_CPUCAPACITY_FULL;
    });
    let mut lab = Lab::new(tree);
    (0..4).for_each(|cpu| lab.host.capacity[cpu] = (Capacity(512), Capacity(512)));
    lab.host.misfit[1] = Load(1024);
    lab.host.refresh_all();
    lab.host.add_hogs(1, 1, 1);
    lab.run(200);
    assert!(lab.host.nr_running()[4..].contains(&1), "{:?}", lab.host.nr_running());
    assert_eq!(lab.sum(|c| c.alb_pushed), 1);
}

#[test]
fn work_leaves_a_cpu_that_interrupts_have_taken() {
    let mut lab = Lab::new(regular_tree(1, 1, 4, 1));
    lab.host.capacity[0].0 = Capacity(300);
    lab.host.add_hogs(0, 1, 1);
    lab.run(200);
    assert_eq!(lab.host.nr_running()[0], 0);
    lab.run(500);
    assert_eq!(lab.host.moves.len(), 1, "and stays away");
}

#[test]
fn every_destination_sees_all_candidates() {
    // The task at the head may only go to CPU 2, the next only to CPU 1.
    let mut lab = Lab::new(regular_tree(1, 1, 4, 1));
    lab.host.add(0, FakeTask::hog(1).on(lab.mask("0")));
    lab.host.add(0, FakeTask::hog(2).on(lab.mask("0,2")));
    lab.host.add(0, FakeTask::hog(3).on(lab.mask("0,1")));
    lab.run(200);
    assert_eq!(lab.host.nr_running(), [1, 1, 1, 0]);
}

#[test]
fn counters_belong_to_the_configuration_they_were_counted_under() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    (0..8).for_each(|cpu| lab.host.add_hogs(cpu, 1, 1 + cpu));
    lab.run(300);
    let before = lab.balancer.counters().current();
    lab.set("serialize-scope=off");
    lab.run(300);
    let after = lab.balancer.counters().current();
    assert_eq!((before.epoch, after.epoch), (0, 1));
    assert!(before.sum(|c| c.serialize_attempts) > 0);
    assert_eq!(after.sum(|c| c.serialize_attempts), 0);
    let total = lab.counters();
    assert_eq!(total.rounds, before.rounds + after.rounds);
    let json = serde_json::to_value(&total).unwrap();
    assert_eq!(json["levels"][1]["level"]["NUMA"], 1);
    assert!(json["levels"][1]["busy"]["lb_count"].as_u64() > Some(0));
}
