//! Rounds, plans and newidle passes in the steady state allocate nothing, whatever they find.

use scx_baton::balancer::fake::{FakeHost, FakeTask, regular_tree};
use scx_baton::balancer::{Balancer, Config, MoveOutcome, Shared};
use scx_baton::cpumask::Cpumask;
use scx_baton::policy::Facts;
use scx_baton::units::{CpuId, Nanos};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts allocations of the calling thread.
struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator; the counter is a plain
// thread-local cell that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise about `layout` is the one that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System.alloc` with this layout, by the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn rounds_allocate_nothing() {
    let tree = regular_tree(2, 2, 4, 2);
    let facts = Arc::new(Facts::new(&tree));
    let shared = Arc::new(Shared::new(&tree, &facts, Nanos::from_ms(1)));
    let mut balancer = Balancer::new(Arc::new(tree), facts, shared, &Cpumask::full(32));
    // Imbalance of every kind, none of which can be resolved: bound tasks, refused moves.
    let mut host = FakeHost::new(32);
    host.refuse = Some(MoveOutcome::RefusedGone);
    let bound = Cpumask::parse_list("0-1", 32).unwrap();
    (1..=8).for_each(|pid| host.add(0, FakeTask::hog(pid).on(bound.clone())));
    host.add_hogs(2, 40, 100);
    host.add_hogs(17, 3, 200);
    // The fake machine's own records.
    host.kicks.reserve(10_000);
    host.looks_again.reserve(40_000);
    let mut config = Config::default();
    // More decisions than the log holds, so that it is full and wraps.
    for round in 0..1000u64 {
        if round == 500 {
            config.epoch += 1;
        }
        host.now += Nanos::from_secs(10);
        let before = ALLOCATIONS.with(Cell::get);
        balancer.round(&mut host, &config);
        balancer.publish_plans(&mut host, &config);
        balancer.publish_fork_plans(&mut host, &config);
        balancer.newidle(&mut host, &config, CpuId(20));
        let made = ALLOCATIONS.with(Cell::get) - before;
        assert_eq!(made, 0, "in round {round}");
    }
    let counters = balancer.counters().total();
    assert!(counters.sum(|c| c.moves[MoveOutcome::RefusedGone as usize]) > 1000);
    assert!(counters.plans_published > 0 && counters.nohz_kicks > 0);
    assert!(balancer.decisions().since(0).1 > 0, "the log has wrapped");
}
