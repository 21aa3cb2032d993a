//! What balancing costs. Targets: a due pass over a domain of 8 groups 1 µs; a not-due look at a
//! CPU's whole chain 50 ns; a round in which everything is due 1 ms for 512 CPUs, 10 ms for 4,096.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use scx_baton::balancer::fake::{FakeHost, regular_tree};
use scx_baton::balancer::{Balancer, Config, Host, MoveOutcome, Shared, Snapshot};
use scx_baton::cpumask::Cpumask;
use scx_baton::policy::interval::{Pace, is_due};
use scx_baton::policy::marks::GroupMarks;
use scx_baton::policy::should_balance::should_we_balance;
use scx_baton::policy::tunables::OnOff;
use scx_baton::policy::{Env, Facts, IdleType, SdStats, Tunables, decide};
use scx_baton::units::{CpuId, Nanos};
use std::hint::black_box;
use std::sync::Arc;

const TICK: Nanos = Nanos::from_ms(1);

/// One pass of CPU 0 over 8 groups of `cores` CPUs, decided from a snapshot.
fn due_pass(c: &mut Criterion, cores: usize) {
    let tree = regular_tree(1, 8, cores, 1);
    let facts = Facts::new(&tree);
    let width = facts.width();
    let mut host = FakeHost::new(width);
    (0..width as u32).for_each(|cpu| host.add_hogs(cpu, 2, 2 * cpu));
    let mut snapshot = Snapshot::new(width);
    host.observe(&Cpumask::full(width), &mut snapshot);
    let (tunables, marks) = (Tunables::default(), GroupMarks::new(tree.groups.len()));
    let link = tree.chain(CpuId(0))[usize::from(cores > 1)];
    let (cpus, idle_cpus) = (Cpumask::full(width), Cpumask::new(width));
    let env = Env {
        tree: &tree,
        facts: &facts,
        tunables: &tunables,
        marks: &marks,
        id: link.domain,
        local: link.local as usize,
        is_root: true,
        dst: CpuId(0),
        idle: IdleType::NotIdle,
        cpus: &cpus,
        idle_cpus: &idle_cpus,
    };
    let mut sds = SdStats::default();
    c.bench_function(&format!("due pass, 8 groups of {cores}"), |b| {
        b.iter(|| {
            let env = black_box(&env);
            should_we_balance(env, &snapshot).is_ok() && decide(env, &snapshot, &mut sds).is_ok()
        });
    });
}

fn not_due(c: &mut Criterion) {
    let tree = regular_tree(2, 8, 8, 2);
    let balancer = whole(&tree);
    let pace = Pace::new(TICK, 256);
    let levels: Vec<_> = tree
        .chain(CpuId(0))
        .iter()
        .zip(balancer.levels_of(CpuId(0)))
        .map(|(link, state)| (tree.domain(link.domain), *state))
        .collect();
    assert_eq!(levels.len(), 4);
    c.bench_function("not-due look at a chain of 4", |b| {
        b.iter(|| {
            let now = black_box(Nanos::ZERO);
            levels.iter().any(|(domain, state)| is_due(state, domain, true, pace, now))
        });
    });
}

fn whole(tree: &scx_baton::domains::DomainTree) -> Balancer {
    let facts = Arc::new(Facts::new(tree));
    let shared = Arc::new(Shared::new(tree, &facts, TICK));
    let width = facts.width();
    Balancer::new(Arc::new(tree.clone()), facts, shared, &Cpumask::full(width))
}

/// A round in which every level of every CPU is due; `busy` of 4 CPUs have two hogs each.
fn full_round(c: &mut Criterion, nodes: usize, llcs: usize, busy: u32) {
    let tree = regular_tree(nodes, llcs, 8, 2);
    let width = tree.chains.len();
    let mut balancer = whole(&tree);
    let mut host = FakeHost::new(width);
    let spread = (0..width as u32).filter(|cpu| cpu / 2 % 4 < busy);
    spread.for_each(|cpu| host.add_hogs(cpu, 1 + u32::from(busy == 4), 2 * cpu));
    let config = Config::default();
    c.bench_function(&format!("full round, {width} CPUs, {busy}/4 busy"), |b| {
        b.iter_batched(
            || (),
            |()| {
                host.now += Nanos::from_secs(1000);
                balancer.round(&mut host, &config);
            },
            BatchSize::PerIteration,
        );
    });
}

/// Pull plans of one LLC's 16 CPUs on a machine of 512, brought up to date; and an agent's newidle
/// pass of one of them that finds nothing to pull.
fn newidle(c: &mut Criterion) {
    let tree = regular_tree(4, 8, 8, 2);
    let facts = Arc::new(Facts::new(&tree));
    let shared = Arc::new(Shared::new(&tree, &facts, TICK));
    let shard = Cpumask::from_cpus(512, (0..16).map(CpuId));
    let mut balancer = Balancer::new(Arc::new(tree), facts, Arc::clone(&shared), &shard);
    let mut host = FakeHost::new(512);
    (0..512).filter(|cpu| cpu % 3 == 0).for_each(|cpu| host.add_hogs(cpu, 2, 2 * cpu));
    let mut config = Config::default();
    shared.set_overloaded(true);
    c.bench_function("pull plans of 16 CPUs of 512", |b| {
        b.iter(|| {
            host.now += TICK;
            balancer.publish_plans(&mut host, &config);
        });
    });
    host.refuse = Some(MoveOutcome::RefusedGone);
    config.tunables.newidle_dice = OnOff::Off;
    c.bench_function("newidle pass through 4 levels, 512 CPUs", |b| {
        b.iter(|| {
            host.now += TICK;
            balancer.newidle(&mut host, &config, CpuId(1))
        });
    });
}

/// A round of one LLC's 16 CPUs, all busy, in which nothing is due.
fn idle_round(c: &mut Criterion) {
    let tree = regular_tree(4, 8, 8, 2);
    let facts = Arc::new(Facts::new(&tree));
    let shared = Arc::new(Shared::new(&tree, &facts, TICK));
    let shard = Cpumask::from_cpus(512, (0..16).map(CpuId));
    let mut balancer = Balancer::new(Arc::new(tree), facts, shared, &shard);
    let mut host = FakeHost::new(512);
    (0..512).for_each(|cpu| host.add_hogs(cpu, 2, 2 * cpu));
    let config = Config::default();
    balancer.round(&mut host, &config);
    c.bench_function("round of 16 CPUs with nothing due", |b| {
        b.iter(|| balancer.round(&mut host, &config));
    });
}

fn all(c: &mut Criterion) {
    newidle(c);
    idle_round(c);
    due_pass(c, 1);
    due_pass(c, 8);
    not_due(c);
    for busy in [2, 4] {
        full_round(c, 4, 8, busy);
        full_round(c, 16, 16, busy);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = all
}
criterion_main!(benches);
