//! What holds on every machine, whatever runs there.

use proptest::prelude::*;
use scx_baton::balancer::fake::{FakeHost, FakeTask, Situation, regular_tree};
use scx_baton::balancer::{Balancer, Config, Host, Shared, TaskView};
use scx_baton::cpumask::Cpumask;
use scx_baton::domains::{DomainTree, SdFlags};
use scx_baton::policy::{Facts, IdleType, MigrationType};
use scx_baton::units::{Capacity, CpuId, Load, Nanos, TaskKey, Util};
use std::sync::Arc;

const TICK: Nanos = Nanos::from_ms(1);

fn balancer(tree: &DomainTree) -> Balancer {
    let facts = Arc::new(Facts::new(tree));
    let shared = Arc::new(Shared::new(tree, &facts, TICK));
    let all = Cpumask::full(facts.width());
    Balancer::new(Arc::new(tree.clone()), facts, shared, &all)
}

fn run(balancer: &mut Balancer, host: &mut FakeHost, ms: u64) {
    let config = Config::default();
    for _ in 0..ms {
        host.now += TICK;
        if host.now >= balancer.next_due() {
            balancer.round(host, &config);
        }
    }
}

/// Shapes with every combination of levels; up to 64 CPUs.
fn shapes() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    (1usize..=4, 1usize..=2, 1usize..=4, 1usize..=2)
        .prop_filter("two CPUs", |s| s.0 * s.1 * s.2 * s.3 >= 2)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn affinity_is_kept_and_no_task_is_lost(
        (nodes, llcs, cores, threads) in shapes(),
        tasks in prop::collection::vec((any::<u16>(), any::<u64>(), 1u64..20_000), 1..80),
    ) {
        let tree = regular_tree(nodes, llcs, cores, threads);
        let width = tree.chains.len();
        let mut host = FakeHost::new(width);
        for (i, &(home, allowed, load)) in tasks.iter().enumerate() {
            let home = u32::from(home) % width as u32;
            let mut mask = Cpumask::from_cpus(
                width,
                (0..width).filter(|c| allowed >> (c % 64) & 1 == 1).map(CpuId::from),
            );
            mask.set(CpuId(home));
            host.add(home, FakeTask::hog(1 + i as u32).on(mask).load(load));
        }
        run(&mut balancer(&tree), &mut host, 300);
        let mut pids = Vec::new();
        for (cpu, queue) in host.queues.iter().enumerate() {
            for task in queue {
                pids.push(task.key.pid);
                let allowed = task.allowed.as_ref().unwrap();
                prop_assert!(allowed.test(CpuId::from(cpu)), "{} on {cpu}", task.key.pid);
            }
        }
        pids.sort_unstable();
        prop_assert_eq!(pids, (1..=tasks.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn equal_load_yields_no_plan((nodes, llcs, cores, threads) in shapes(), each in 0u32..4) {
        let tree = regular_tree(nodes, llcs, cores, threads);
        let mut host = FakeHost::new(tree.chains.len());
        (0..tree.chains.len() as u32).for_each(|cpu| host.add_hogs(cpu, each, 1 + 10 * cpu));
        let mut balancer = balancer(&tree);
        run(&mut balancer, &mut host, 300);
        let counters = balancer.counters().total();
        prop_assert!(counters.sum(|c| c.lb_count) > 0);
        prop_assert_eq!(counters.sum(|c| c.lb_failed + c.lb_gained + c.alb_count), 0);
    }

    #[test]
    fn no_more_hogs_than_cpus_end_one_to_a_cpu(
        (nodes, llcs, cores, threads) in shapes(),
        homes in prop::collection::vec(any::<u16>(), 1..64),
    ) {
        let tree = regular_tree(nodes, llcs, cores, threads);
        let width = tree.chains.len();
        let mut host = FakeHost::new(width);
        for (i, &home) in homes.iter().take(width).enumerate() {
            host.add(u32::from(home) % width as u32, FakeTask::hog(1 + i as u32));
        }
        let mut balancer = balancer(&tree);
        run(&mut balancer, &mut host, 2000);
        prop_assert!(host.nr_running().iter().all(|&n| n <= 1), "{:?}", host.nr_running());
        let before = host.moves.len();
        run(&mut balancer, &mut host, 1000);
        prop_assert_eq!(host.moves.len(), before, "still moving");
        prop_assert_eq!(balancer.counters().total().moves_undone, 0);
    }

    #[test]
    fn decisions_never_wrap_nor_ask_for_what_is_not_there(
        views in prop::collection::vec(
            (0u32..6, 0u64..1 << 20, 0u64..1 << 12, 0u64..1 << 13, 1u64..2048, 0u64..1000), 8..=8),
        marks in any::<u8>(),
        flags in any::<u8>(),
        dst in 0u32..8,
        idle in 0usize..3,
    ) {
        let mut s = Situation::new(regular_tree(2, 1, 2, 2));
        let level = s.tree.chain(CpuId(0)).len() - 1;
        for (i, &(nr, load, util, runnable, capacity, misfit)) in views.iter().enumerate() {
            let view = s.cpu(i as u32);
            view.nr_running = nr;
            view.load = Load(if nr == 0 { 0 } else { load });
            view.util = Util(util);
            view.runnable = Util(runnable);
            view.capacity = Capacity(capacity);
            view.misfit_load = Load(misfit);
            view.idle = nr == 0;
        }
        for (bit, flag) in
            [SdFlags::ASYM_CPUCAPACITY, SdFlags::ASYM_PACKING, SdFlags::SHARE_LLC].iter().enumerate()
        {
            if flags >> bit & 1 == 1 {
                s.flag(dst, level, *flag);
            }
        }
        (0..2).for_each(|n| s.marks.set_imbalanced(s.group(dst, level, n), marks >> n & 1 == 1));
        let (plan, sds) = s.decide(dst, level, IdleType::ALL[idle]);
        if let Ok(plan) = plan {
            prop_assert!(plan.imbalance > 0 && plan.src != plan.dst);
            let busiest = sds.busiest_stat;
            let there = match plan.unit {
                MigrationType::Load => busiest.load.0,
                MigrationType::Util => sds.local.capacity.0,
                MigrationType::Task => u64::from(busiest.nr_running),
                MigrationType::Misfit => 1,
            };
            prop_assert!(plan.imbalance <= there, "{plan:?} of {there}");
        }
    }

    #[test]
    fn what_comes_never_exceeds_the_imbalance(
        tasks in prop::collection::vec((0u64..3000, 0u64..1024, any::<bool>()), 0..60),
        imbalance in 1u64..20_000,
        unit in 0usize..3,
        failed in 0u32..5,
        idle in 0usize..3,
    ) {
        let unit = [MigrationType::Load, MigrationType::Util, MigrationType::Task][unit];
        let mut s = Situation::new(regular_tree(1, 2, 4, 1));
        s.hogs([4], 1 + tasks.len() as u32);
        let views: Vec<TaskView> = (1u32..)
            .zip(&tasks)
            .map(|(pid, &(load, util, allowed_on_dst))| TaskView {
                key: TaskKey { pid, generation: 1 },
                load: Load(load),
                util: Util(util),
                allowed_on_dst,
                ..TaskView::default()
            })
            .collect();
        let at = (0, 1, IdleType::ALL[idle]);
        let (chosen, _) = s.select(at, 4, &views, (unit, imbalance), failed);
        let mut left = imbalance;
        for c in &chosen {
            prop_assert!(c.value >> failed <= left, "{c:?} with {left} left");
            prop_assert!(views[c.key.pid as usize - 1].allowed_on_dst);
            left = left.saturating_sub(c.value);
        }
        if failed == 0 {
            prop_assert!(chosen.iter().map(|c| c.value).sum::<u64>() <= imbalance);
        }
        prop_assert!(chosen.len() <= 32);
        prop_assert!(IdleType::ALL[idle] != IdleType::NewlyIdle || chosen.len() <= 1);
    }

    /// CPU `c` of one machine is CPU `3c + 1` of another: same order, other numbers, with holes.
    #[test]
    fn relabelling_cpus_relabels_the_plan(
        tasks in prop::collection::vec((0u32..16, 1u64..5000), 1..40),
    ) {
        let small = regular_tree(2, 1, 4, 2);
        let wide = relabelled(&small);
        let (mut a, mut b) = (FakeHost::new(16), FakeHost::new(48));
        for (pid, &(home, load)) in (1u32..).zip(&tasks) {
            a.add(home, FakeTask::hog(pid).load(load));
            b.add(3 * home + 1, FakeTask::hog(pid).load(load));
        }
        run(&mut balancer(&small), &mut a, 300);
        run(&mut balancer(&wide), &mut b, 300);
        let renamed: Vec<_> = a
            .moves
            .iter()
            .map(|&(task, src, dst)| (task, CpuId(3 * src.0 + 1), CpuId(3 * dst.0 + 1)))
            .collect();
        prop_assert_eq!(renamed, b.moves);
    }
}

fn relabelled(tree: &DomainTree) -> DomainTree {
    let width = 3 * tree.chains.len();
    let rename =
        |mask: &Cpumask| Cpumask::from_cpus(width, mask.iter().map(|c| CpuId(3 * c.0 + 1)));
    let mut wide = tree.clone();
    wide.domains.iter_mut().for_each(|d| d.span = rename(&d.span));
    for group in &mut wide.groups {
        group.span = rename(&group.span);
        group.balance_mask = rename(&group.balance_mask);
    }
    wide.chains = vec![Vec::new(); width];
    for (cpu, chain) in tree.chains.iter().enumerate() {
        wide.chains[3 * cpu + 1].clone_from(chain);
    }
    wide
}

#[test]
fn five_hundred_and_twelve_cpus_converge_without_ping_pong() {
    let tree = regular_tree(4, 8, 8, 2);
    let mut host = FakeHost::new(512);
    // All on one LLC's CPUs, 32 to a CPU.
    (0..16).for_each(|cpu| host.add_hogs(cpu, 32, 1 + 32 * cpu));
    let mut balancer = balancer(&tree);
    let mut seconds = 0;
    while host.nr_running().iter().any(|&n| n != 1) {
        run(&mut balancer, &mut host, 1000);
        seconds += 1;
        assert!(seconds <= 5, "{:?}", host.nr_running());
    }
    let moves = host.moves.len();
    run(&mut balancer, &mut host, 3000);
    assert_eq!(host.moves.len(), moves, "still moving");
    assert_eq!(balancer.counters().total().moves_undone, 0);
    // A task may cross each of the four levels once; a few go a longer way.
    assert!((496..512 * 5).contains(&moves), "{moves} moves");
}

#[test]
fn nice_weights_are_evened_by_load_not_by_number() {
    // 15 light tasks (nice 5: 335) and 5 heavy ones on one of two CPUs, and the same total again
    // nowhere: 10,145 of load should end near half and half.
    let tree = regular_tree(1, 1, 2, 1);
    let mut host = FakeHost::new(2);
    (1..=15).for_each(|pid| host.add(0, FakeTask::hog(pid).load(335)));
    (16..=20).for_each(|pid| host.add(0, FakeTask::hog(pid).load(1024)));
    let mut balancer = balancer(&tree);
    run(&mut balancer, &mut host, 1000);
    let mut snapshot = scx_baton::balancer::Snapshot::new(2);
    host.observe(&Cpumask::full(2), &mut snapshot);
    let loads = [snapshot.cpu(CpuId(0)).load.0, snapshot.cpu(CpuId(1)).load.0];
    assert_eq!(loads[0] + loads[1], 15 * 335 + 5 * 1024);
    // Within imbalance_pct of each other.
    assert!(loads[0] * 100 <= loads[1] * 117 && loads[1] * 100 <= loads[0] * 117, "{loads:?}");
}
