//! Where new tasks start: the plans that the balancer publishes for each node.

use crate::lab::{Lab, TICK};
use scx_baton::balancer::fake::{FakeHost, regular_tree};
use scx_baton::balancer::{Balancer, Config, ForkPlan, ForkStep, Shared};
use scx_baton::cpumask::Cpumask;
use scx_baton::policy::Facts;
use scx_baton::units::{CpuId, Nanos};
use std::sync::Arc;

fn publish(lab: &mut Lab) {
    publish_after(lab, 2_000);
}

fn publish_after(lab: &mut Lab, ms: u64) {
    lab.host.now += Nanos::from_ms(ms);
    lab.balancer.round(&mut lab.host, &lab.config);
    lab.balancer.publish_fork_plans(&mut lab.host, &lab.config);
}

fn step(limit: u32, near: u32) -> ForkStep {
    ForkStep { limit, near: CpuId(near) }
}

#[test]
fn a_plan_keeps_a_pair_and_then_goes_where_more_cpus_idle() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    publish(&mut lab);
    // Two run here, then always one more than there; what comes when both are full is another test's.
    let wanted = [step(2, 4), step(2, 5), step(3, 6), step(4, 7)];
    assert_eq!(lab.host.fork_plans[0].steps()[..4], wanted);
    let back = wanted.map(|s| step(s.limit, s.near.0 - 4));
    assert_eq!(lab.host.fork_plans[1].steps()[..4], back);
}

#[test]
fn what_runs_on_the_other_node_counts() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    lab.host.add_hogs(4, 1, 1);
    lab.host.add_hogs(5, 1, 2);
    publish(&mut lab);
    assert_eq!(lab.host.fork_plans[0].steps()[..2], [step(3, 6), step(4, 7)]);
}

#[test]
fn full_nodes_are_evened_by_load() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    (0..8).for_each(|cpu| lab.host.add_hogs(cpu, 2, 10 * cpu + 1));
    publish(&mut lab);
    // Eight tasks on each: one more is no reason, two more are (17 %). There, the shortest queue.
    let steps = lab.host.fork_plans[0].steps();
    assert_eq!(steps[..2], [step(10, 4), step(11, 5)]);
    // A node with more than that sends its next forks away at once.
    (0..4).for_each(|cpu| lab.host.add_hogs(cpu, 2, 100 + 10 * cpu));
    publish(&mut lab);
    let sent = lab.host.fork_plans[0].steps().iter().filter(|s| s.limit <= 16).count();
    assert!((3..=8).contains(&sent), "{sent}");
}

#[test]
fn a_plan_in_use_is_made_anew_soon_and_others_later() {
    for (forks, ages) in [(true, [19, 20]), (false, [999, 1000])] {
        let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
        lab.host.forks = forks;
        publish(&mut lab);
        let before = lab.host.fork_plans[0];
        lab.host.add_hogs(4, 1, 1);
        publish_after(&mut lab, ages[0]);
        assert_eq!(lab.host.fork_plans[0], before, "{ages:?}");
        publish_after(&mut lab, ages[1] - ages[0]);
        assert_ne!(lab.host.fork_plans[0], before, "{ages:?}");
    }
}

#[test]
fn near_keeps_all_and_numa_comes_back() {
    let mut lab = Lab::new(regular_tree(2, 1, 4, 1));
    publish(&mut lab);
    for (setting, spreads) in [("near", false), ("numa", true)] {
        lab.set(&format!("fork-placement={setting}"));
        publish(&mut lab);
        assert_eq!(!lab.host.fork_plans[0].steps().is_empty(), spreads, "{setting}");
    }
}

#[test]
fn one_node_has_no_plan() {
    let mut lab = Lab::new(regular_tree(1, 2, 4, 2));
    publish(&mut lab);
    assert!(lab.host.fork_plans.iter().all(|plan| plan.steps().is_empty()));
}

#[test]
fn workers_of_one_node_make_its_plan_in_turn() {
    let tree = Arc::new(regular_tree(2, 2, 2, 1));
    let facts = Arc::new(Facts::new(&tree));
    let shared = Arc::new(Shared::new(&tree, &facts, TICK));
    let mut host = FakeHost::new(8);
    host.forks = true;
    let mut config = Config::default();
    let worker = |cpus: &str| {
        let shard = Cpumask::parse_list(cpus, 8).expect("a CPU list");
        Balancer::new(Arc::clone(&tree), Arc::clone(&facts), Arc::clone(&shared), &shard)
    };
    let (mut first, mut second) = (worker("0-1"), worker("2-3"));
    let turn = |host: &mut FakeHost, worker: &mut Balancer, ms, config: &Config| {
        host.now += Nanos::from_ms(ms);
        host.fork_plans[0] = ForkPlan::default();
        worker.round(host, config);
        worker.publish_fork_plans(host, config);
        !host.fork_plans[0].steps().is_empty()
    };
    assert!(turn(&mut host, &mut second, 30, &config), "the first worker sleeps");
    assert!(!turn(&mut host, &mut first, 5, &config), "it has just been made");
    assert!(turn(&mut host, &mut first, 20, &config));
    config.epoch += 1;
    assert!(turn(&mut host, &mut second, 0, &config), "a new configuration");
    assert!(!turn(&mut host, &mut first, 0, &config), "made under it already");
}
