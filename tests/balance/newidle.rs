//! Newidle balancing: the agent's pass and the pull plans.

use crate::lab::{Lab, TICK};
use scx_baton::balancer::fake::regular_tree;
use scx_baton::balancer::{DICE_THROWN, Host, MoveOutcome, PullPlan, PullReport};
use scx_baton::domains::{self, LevelKind};
use scx_baton::policy::SkipReason;
use scx_baton::policy::tunables::SerializeScope;
use scx_baton::topology::synthetic;
use scx_baton::units::{CpuId, Nanos, TaskKey};
use std::sync::Arc;

/// Two nodes of four CPUs; CPUs 0-2 have two bound hogs each (they may use their node), CPU 3 is
/// about to idle and so are 4-7. The machine is known to be overloaded.
fn crowded(settings: &[&str]) -> Lab {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    settings.iter().for_each(|s| lab.set(s));
    (0..3).for_each(|cpu| lab.host.add_hogs(cpu, 2, 1 + 10 * cpu));
    lab.shared.set_overloaded(true);
    lab
}

fn skips(lab: &Lab, reason: SkipReason) -> u64 {
    lab.counters().levels.iter().map(|l| l.newidle.skips[reason.index()]).sum()
}

#[test]
fn a_cpu_about_to_idle_takes_one_task_from_nearby() {
    let mut lab = crowded(&["newidle=agent"]);
    assert_eq!(lab.balancer.newidle(&mut lab.host, &lab.config, CpuId(3)), 1);
    assert_eq!(lab.host.moves.len(), 1);
    assert!(lab.host.moves[0].1.0 < 3);
    let numa = lab.counters().levels.last().unwrap().newidle;
    assert_eq!(numa.lb_count, 0, "it stops after a pull");
}

#[test]
fn from_another_node_if_there_is_nothing_nearby() {
    let mut lab = crowded(&["newidle=agent"]);
    assert_eq!(lab.balancer.newidle(&mut lab.host, &lab.config, CpuId(5)), 1);
    let numa = lab.counters().levels.last().unwrap().newidle;
    assert_eq!((numa.lb_gained, numa.serialize_acquired), (1, 1));
}

#[test]
fn every_gate_is_counted() {
    let mut off = crowded(&["newidle=off"]);
    assert_eq!(off.balancer.newidle(&mut off.host, &off.config, CpuId(3)), 0);
    assert_eq!(skips(&off, SkipReason::NewidleOff), 1);

    let mut calm = crowded(&["newidle=agent"]);
    calm.shared.set_overloaded(false);
    assert_eq!(calm.balancer.newidle(&mut calm.host, &calm.config, CpuId(3)), 0);
    assert_eq!(skips(&calm, SkipReason::NotOverloaded), 1);

    let mut near = crowded(&["newidle=agent", "newidle-numa=no"]);
    assert_eq!(near.balancer.newidle(&mut near.host, &near.config, CpuId(5)), 0);
    assert_eq!(skips(&near, SkipReason::NewidleLevel), 1);

    // What a pass costs is learned, and then compared with how long the CPU idles.
    let mut short = crowded(&["newidle=agent", "newidle-dice=off"]);
    short.host.refuse = Some(MoveOutcome::RefusedGone);
    short.host.look_costs = Nanos::from_us(300);
    for _ in 0..4 {
        short.balancer.newidle(&mut short.host, &short.config, CpuId(3));
    }
    let cost = short.balancer.levels_of(CpuId(3))[0].max_newidle_lb_cost;
    assert!(cost >= Nanos::from_us(300), "{cost}");
    assert!(short.balancer.max_idle_balance_cost(CpuId(3)) >= cost);
    short.host.avg_idle = Nanos::from_us(100);
    short.host.refresh_all();
    short.balancer.newidle(&mut short.host, &short.config, CpuId(3));
    assert_eq!(skips(&short, SkipReason::IdleTooShort), 1);
}

#[test]
fn passes_all_makes_newidle_ask_for_the_flag() {
    for (passes, gets) in [("all", 0), ("periodic", 1), ("busy", 1)] {
        let mut lab = crowded(&["newidle=agent", &format!("serialize-passes={passes}")]);
        let shared = Arc::clone(&lab.shared);
        let held = shared.gate.try_acquire(SerializeScope::Global, LevelKind::Numa(1));
        assert!(held.is_some());
        assert_eq!(lab.balancer.newidle(&mut lab.host, &lab.config, CpuId(5)), gets, "{passes}");
    }
}

#[test]
fn the_dice_spare_attempts_at_levels_that_yield_nothing() {
    let attempts = |dice: &str| {
        let mut lab = crowded(&["newidle=agent", &format!("newidle-dice={dice}")]);
        lab.host.refuse = Some(MoveOutcome::RefusedGone);
        (0..4096).for_each(|_| {
            lab.balancer.newidle(&mut lab.host, &lab.config, CpuId(3));
        });
        let counters = lab.counters();
        let tried: u64 = counters.levels.iter().map(|l| l.newidle.lb_count).sum();
        (tried, skips(&lab, SkipReason::NewidleDice))
    };
    let ((on, thrown), (off, never)) = (attempts("on"), attempts("off"));
    assert_eq!(never, 0);
    assert_eq!(on + thrown, off);
    assert!(on * 3 < off, "{on} against {off}");
}

/// What a CPU of the machine reports of one use of its plan that took `us`.
fn used_plan(
    lab: &Lab,
    cpu: u32,
    pulled: Option<(u32, u32)>,
    left_out: u32,
    us: u64,
) -> PullReport {
    let task = |(pid, src)| (TaskKey { pid, generation: 1 }, CpuId(src));
    let (cpu, pulled, cost) = (CpuId(cpu), pulled.map(task), Nanos::from_us(us));
    PullReport { cpu, pulled, left_out, cost, at: lab.host.now }
}

fn sources(plan: &PullPlan) -> Vec<u32> {
    plan.sources().iter().filter(|s| s.node_from == 0).map(|s| s.cpu.0).collect()
}

/// The whole nodes that it names: a CPU of each and from how many tasks on.
fn nodes(plan: &PullPlan) -> Vec<(u32, u16)> {
    plan.sources().iter().filter(|s| s.node_from > 0).map(|s| (s.cpu.0, s.node_from)).collect()
}

/// What the BPF side does when a CPU runs out of work: the first task of the first source in the
/// plan that may run there.
fn pull_by_plan(lab: &mut Lab, cpu: u32) -> Option<CpuId> {
    let dst = CpuId(cpu);
    let (mut tasks, mut outcomes) = (Vec::with_capacity(64), Vec::new());
    let plan = lab.host.pull_plans[dst.index()];
    for source in plan.sources() {
        let node = lab.mask(if source.cpu.0 < 4 { "0-3" } else { "4-7" });
        let counts = lab.host.nr_running();
        for src in source.queues(&node, |cpu| counts[cpu.index()] as u32) {
            lab.host.list_queue(src, dst, &mut tasks);
            let Some(task) = tasks.iter().find(|t| t.allowed_on_dst) else { continue };
            lab.host.move_tasks(src, dst, &[task.key], &mut outcomes);
            return Some(src);
        }
    }
    None
}

#[test]
fn a_plan_names_the_nearest_sources_first() {
    let mut lab = crowded(&["newidle-dice=off"]);
    lab.host.add_hogs(4, 3, 90);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    let plan = |cpu: usize| sources(&lab.host.pull_plans[cpu]);
    // All three that have two tasks, and not the other node, which is less busy than its own.
    assert_eq!(plan(3), [0, 1, 2]);
    // Its own node's first, then the other's, from a different one than its neighbour; last those
    // that have nothing yet.
    assert_eq!(plan(5), [4, 2, 0, 1, 6, 7, 3]);
    let levels: Vec<usize> =
        lab.host.pull_plans[5].sources().iter().map(|s| s.level.into()).collect();
    assert_eq!(levels, [0, 1, 1, 1, 0, 0, 1, 1]);
    assert_eq!(plan(6), [4, 0, 1, 2, 7, 5, 3]);
    assert!(lab.balancer.counters().current().plans_published >= 5);

    let src = pull_by_plan(&mut lab, 3);
    assert_eq!((src, lab.host.nr_running()[3]), (Some(CpuId(0)), 1));
}

#[test]
fn plans_are_sent_only_when_they_change_and_outlive_the_overload() {
    let mut lab = crowded(&[]);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    let sent = lab.counters().plans_published;
    assert!(sent > 0);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert_eq!(lab.counters().plans_published, sent);
    let plans = lab.host.pull_plans.clone();
    lab.shared.set_overloaded(false);
    (1..=30).for_each(|pid| lab.host.remove(pid));
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert_eq!(lab.host.pull_plans, plans);
    lab.set("newidle=agent");
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert!(lab.host.pull_plans.iter().all(PullPlan::is_empty));
    for value in ["agent", "off"] {
        let mut lab = crowded(&[&format!("newidle={value}")]);
        lab.balancer.publish_plans(&mut lab.host, &lab.config);
        assert!(lab.host.pull_plans.iter().all(PullPlan::is_empty), "{value}");
    }
}

#[test]
fn a_calm_machine_has_plans_for_what_may_come() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    lab.set("newidle-dice=off");
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert_eq!(sources(&lab.host.pull_plans[1]), [2, 3, 0]);
    assert!(lab.host.looks_again.is_empty());
    // Three tasks on one CPU: the idle ones of its node are told.
    lab.host.add_hogs(0, 3, 1);
    lab.shared.set_overloaded(true);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert!(lab.host.looks_again.starts_with(&[CpuId(1), CpuId(2), CpuId(3)]));
    // In vain, as if the tasks were bound: at most two to the power of n ticks pass in n times.
    let told = |lab: &Lab| lab.host.looks_again.iter().filter(|cpu| **cpu == CpuId(1)).count();
    for _ in 0..1_000 {
        lab.host.now += TICK;
        lab.balancer.publish_plans(&mut lab.host, &lab.config);
    }
    assert_eq!(told(&lab), 10);
    let pulled = used_plan(&lab, 1, Some((2, 0)), 0, 1);
    lab.balancer.report_pull(&lab.config, &pulled);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert_eq!(told(&lab), 11);
}

#[test]
fn the_dice_of_a_plan_are_thrown_for_each_use() {
    let mut lab = crowded(&["newidle-dice=on"]);
    let publish = |lab: &mut Lab| lab.balancer.publish_plans(&mut lab.host, &lab.config);
    publish(&mut lab);
    let first = lab.host.pull_plans.clone();
    let uses = |plan: &PullPlan| (0..DICE_THROWN).map(|n| plan.left_out(n)).collect::<Vec<_>>();
    // New levels are taken to succeed every second time.
    let thrown: Vec<u32> = first.iter().flat_map(uses).collect();
    let out = thrown.iter().filter(|levels| *levels & 1 == 1).count();
    assert!((64..192).contains(&out), "{out} of 256 uses leave the lowest level out");
    (0..20).for_each(|_| publish(&mut lab));
    assert_eq!(lab.host.pull_plans, first, "as long as throws are left");
    let report = |n| used_plan(&lab, 3, None, n % 2, 1);
    let reports: Vec<PullReport> = (0..DICE_THROWN).map(report).collect();
    reports.iter().for_each(|r| lab.balancer.report_pull(&lab.config, r));
    publish(&mut lab);
    assert_ne!(lab.host.pull_plans[3].dice, first[3].dice);
    assert_eq!(lab.host.pull_plans[1], first[1]);
    // What the dice kept a CPU from counts as a failure.
    let level = lab.balancer.levels_of(CpuId(3))[0];
    assert_eq!((level.newidle_call, level.newidle_success), (512 + DICE_THROWN, 256));
    assert_eq!(skips(&lab, SkipReason::NewidleDice), u64::from(DICE_THROWN) / 2);
    lab.set("newidle-dice=off");
    publish(&mut lab);
    assert!(lab.host.pull_plans.iter().flat_map(uses).all(|left_out| left_out == 0));
}

#[test]
fn a_stale_plan_is_harmless() {
    let mut lab = crowded(&["newidle-dice=off"]);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    (1..=30).for_each(|pid| lab.host.remove(pid));
    assert_eq!(pull_by_plan(&mut lab, 3), None);
    assert_eq!(lab.host.nr_running(), vec![0; 8]);
}

#[test]
fn plans_obey_the_flags_of_newidle_and_of_the_gate() {
    let remote = |settings: &[&str], hold: bool| {
        let mut lab = crowded(settings);
        lab.set("newidle-dice=off");
        let shared = Arc::clone(&lab.shared);
        let numa = LevelKind::Numa(1);
        let _held = hold.then(|| shared.gate.try_acquire(SerializeScope::Global, numa));
        lab.balancer.publish_plans(&mut lab.host, &lab.config);
        sources(&lab.host.pull_plans[5]).iter().any(|&src| src < 4)
    };
    assert!(remote(&[], false));
    assert!(!remote(&["newidle-numa=no"], false));
    assert!(!remote(&[], true), "another pass holds the level");
    assert!(remote(&["serialize-passes=periodic"], true));
}

#[test]
fn a_plan_keeps_its_sources_while_another_pass_holds_the_flag() {
    let mut lab = crowded(&["newidle-dice=off"]);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    let before = lab.host.pull_plans[5];
    assert!(!nodes(&before).is_empty());
    let shared = Arc::clone(&lab.shared);
    let held = shared.gate.try_acquire(SerializeScope::Global, LevelKind::Numa(1));
    lab.host.now += Nanos::from_ms(100);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert!(held.is_some() && lab.sum(|c| c.serialize_busy) > 0);
    assert_eq!(skips(&lab, SkipReason::SerializeBusy), 0, "the level was planned all the same");
    assert_eq!(lab.host.pull_plans[5], before);
}

#[test]
fn a_pair_is_not_planned_across_nodes() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    lab.set("newidle-dice=off");
    lab.host.add_hogs(0, 2, 1);
    lab.shared.set_overloaded(true);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert_eq!(sources(&lab.host.pull_plans[1]), [0, 2, 3], "within the node");
    assert_eq!(sources(&lab.host.pull_plans[5]), [6, 7, 4]);
}

#[test]
fn another_node_is_pulled_from_once_it_has_more_tasks_than_cpus() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    lab.set("newidle-dice=off");
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    // Made while the machine idles.
    assert_eq!(nodes(&lab.host.pull_plans[1]), [(5, 5)]);
    assert_eq!(nodes(&lab.host.pull_plans[6]), [(2, 5)]);
    let has_room = [(0, 3), (1, 1)];
    has_room.iter().for_each(|&(cpu, nr)| lab.host.add_hogs(cpu, nr, 1 + 10 * cpu));
    assert_eq!(pull_by_plan(&mut lab, 6), None);
    lab.host.add_hogs(3, 1, 90);
    assert_eq!(pull_by_plan(&mut lab, 6), Some(CpuId(0)));
    assert_eq!(pull_by_plan(&mut lab, 7), None, "four again");
    lab.set("newidle-numa=no");
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    assert!(nodes(&lab.host.pull_plans[6]).is_empty());
}

#[test]
fn a_plan_names_a_node_once_though_levels_of_a_ring_overlap() {
    let ring = "4x1x2 dist=10,20,30,20/20,10,20,30/30,20,10,20/20,30,20,10";
    let mut lab = Lab::new(domains::build(&synthetic::parse(ring).unwrap()).tree);
    lab.set("newidle-dice=off");
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    let named = |cpu: usize| {
        let plan = &lab.host.pull_plans[cpu];
        let levels = plan.sources().iter().filter(|s| s.node_from > 0).map(|s| s.level);
        nodes(plan).into_iter().map(|(cpu, _)| cpu / 2).zip(levels).collect::<Vec<_>>()
    };
    // Beside it, then across; the wider level's other group holds all three.
    assert_eq!(named(0), [(1, 1), (3, 1), (2, 2)]);
    assert_eq!(named(4), [(1, 1), (3, 1), (0, 2)]);
}

#[test]
fn what_a_plan_yielded_is_learned_at_its_level() {
    let mut lab = crowded(&["newidle-dice=off"]);
    lab.host.add_hogs(4, 2, 90);
    lab.balancer.publish_plans(&mut lab.host, &lab.config);
    let before = lab.balancer.levels_of(CpuId(5)).to_vec();
    let report = used_plan(&lab, 5, Some((1, 0)), 0, 8);
    (0..4).for_each(|_| lab.balancer.report_pull(&lab.config, &report));
    let after = lab.balancer.levels_of(CpuId(5));
    // The near level failed, the far one succeeded; each took half the time.
    let learned: Vec<_> = before
        .iter()
        .zip(after)
        .map(|(b, a)| (a.newidle_call - b.newidle_call, a.newidle_success - b.newidle_success))
        .collect();
    assert_eq!(learned, [(4, 0), (4, 4)]);
    assert_eq!(after[1].max_newidle_lb_cost, Nanos::from_us(4));
}

#[test]
fn plans_ask_for_the_flag_seldom() {
    let mut lab = crowded(&["newidle-dice=off"]);
    for _ in 0..100 {
        lab.host.now += Nanos::from_ms(1);
        lab.balancer.publish_plans(&mut lab.host, &lab.config);
    }
    // Two nodes' views, each every 5 ms.
    assert_eq!(lab.sum(|c| c.serialize_attempts), 2 * 100 / 5);
}
