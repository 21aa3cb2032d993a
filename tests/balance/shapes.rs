//! Real machines' shapes: threads, clusters, sub-NUMA clusters, meshes, two sizes of core.

use crate::lab::Lab;
use scx_baton::domains;
use scx_baton::topology::presets::PRESETS;
use scx_baton::topology::{Topology, synthetic};
use scx_baton::units::CpuId;

/// Starts two hogs on each CPU of the first half of the machine and waits until every CPU has one,
/// at most 60 s: by periodic passes alone, each of which takes one CPU's waiting tasks.
fn spread(topology: &Topology) -> Lab {
    let mut lab = Lab::new(domains::build(topology).tree);
    for (cpu, capacity) in lab.host.capacity.iter_mut().enumerate() {
        let c = topology.capacity(CpuId::from(cpu));
        *capacity = (c, c);
    }
    lab.host.refresh_all();
    let active = topology.active();
    for (pid, cpu) in (1u32..).zip(active.iter().take(active.weight() / 2)) {
        lab.host.add_hogs(cpu.0, 2, 2 * pid);
    }
    for _ in 0..60 {
        lab.run(1000);
        if active.iter().all(|c| !lab.host.queues[c.index()].is_empty()) {
            break;
        }
    }
    lab
}

#[test]
fn every_preset_fills_its_cpus() {
    for preset in PRESETS {
        let topology = synthetic::parse(preset.name).unwrap();
        let lab = spread(&topology);
        let running = lab.host.nr_running();
        let idle: Vec<CpuId> =
            topology.active().iter().filter(|c| running[c.index()] == 0).collect();
        assert!(idle.is_empty(), "{}: {idle:?} idle of {running:?}", preset.name);
        let counters = lab.counters();
        assert!(counters.moves_undone * 100 <= lab.host.moves.len() as u64, "{}", preset.name);
    }
}

#[test]
fn isolated_cpus_are_left_alone() {
    let topology = synthetic::parse("2x4").unwrap();
    let isolated = scx_baton::cpumask::Cpumask::parse_list("2-3", 8).unwrap();
    let lab = spread(&topology.with_isolated(&isolated));
    assert_eq!(lab.host.nr_running()[2..4], [0, 0]);
}
