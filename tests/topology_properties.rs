//! Properties that hold for every machine, checked on random ones.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

use proptest::prelude::*;
use scx_baton::cpumask::Cpumask;
use scx_baton::domains::{DomainTree, SchedDomain, SdFlags, build, sanity};
use scx_baton::topology::{Machine, Topology, synthetic};
use scx_baton::units::CpuId;
use std::collections::BTreeSet;

/// A machine with all it may have: uneven parts, holes, any numbering.
fn shaped() -> impl Strategy<Value = Machine> {
    let cores = prop_oneof![
        (1u32..=6).prop_map(|n| n.to_string()),
        (1u32..=5, 1u32..=5).prop_map(|(a, b)| format!("{a}+{b}")),
    ];
    let shape = (1u32..=4, 1u32..=3, cores, 1u32..=3, 1u32..=3);
    let options = (
        prop::sample::select(vec!["last", "next", "spread"]),
        prop::sample::select(vec!["x86", "other"]),
        prop::sample::select(vec!["plain", "averaged"]),
        1u32..=3,
    );
    // LLCs and clusters regardless of each other and of nodes, so that they get cut and joined.
    let caches = (1u32..=3, 1u32..=3);
    (shape, options, caches).prop_map(
        |((packages, nodes, cores, smt, smt2), (order, arch, slit, stride), (llcs, cluster))| {
            let spec = format!(
                "{packages}x{nodes}x{cores} smt={smt}+{smt2} order={order} arch={arch} \
                 slit={slit} stride={stride}"
            );
            let mut machine = synthetic::machine(&spec).unwrap_or_else(|e| panic!("{spec}: {e}"));
            for cpu in &mut machine.cpus {
                cpu.llc = cpu.package * 8 + cpu.core % llcs;
                cpu.cluster = cpu.core / cluster;
            }
            machine
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Rows {
    /// Same both ways, local the smallest: what firmware should say.
    Proper,
    /// Anything from local up, per direction.
    Uneven,
    /// Anything at all.
    Wild,
}

/// The machine with random distances of that kind.
fn with_distances(mut machine: Machine, kind: Rows, seed: &[u32]) -> Machine {
    let n = machine.nodes.len();
    let at = |i: usize, j: usize| seed[(i * 7 + j * 13) % seed.len()];
    for i in 0..n {
        for j in 0..n {
            machine.nodes[i].distances[j] = match kind {
                Rows::Proper if i == j => 10,
                Rows::Proper => 11 + at(i.min(j), i.max(j)) % 5 * 6,
                Rows::Uneven => 10 + at(i, j) % 5 * 6,
                Rows::Wild => at(i, j),
            };
        }
    }
    machine
}

fn machine(kind: Rows) -> impl Strategy<Value = Machine> {
    (shaped(), prop::collection::vec(0u32..300, 8..40))
        .prop_map(move |(machine, seed)| with_distances(machine, kind, &seed))
}

/// Some of its CPUs off, some isolated and some in a partition of their own, at least one left to balance.
fn topology(kind: Rows) -> impl Strategy<Value = Topology> {
    (machine(kind), prop::collection::vec(0u8..8, 16)).prop_map(|(machine, fate)| {
        let t = machine.topology();
        let pick = |what: u8| {
            let hit = |cpu: &CpuId| fate[cpu.index() * 5 % fate.len()] == what && cpu.0 > 0;
            Cpumask::from_cpus(t.width, t.online.iter().filter(hit))
        };
        let (off, isolated, apart) = (pick(0), pick(1), pick(2));
        let mut t = t.with_online(&t.online.and_not(&off)).with_isolated(&isolated);
        t.partitions.push(apart);
        t
    })
}

fn chain(tree: &DomainTree, cpu: CpuId) -> Vec<&SchedDomain> {
    tree.chain(cpu).iter().map(|link| tree.domain(link.domain)).collect()
}

/// Whether NUMA spans overlap anywhere without being equal.
fn overlaps(tree: &DomainTree) -> bool {
    let numa = || tree.domains.iter().filter(|d| d.flags.contains(SdFlags::NUMA));
    numa().any(|a| {
        numa().any(|b| a.level == b.level && a.span != b.span && a.span.intersects(&b.span))
    })
}

/// The CPUs renamed: `names[i]` is the new id of the i-th CPU.
fn relabelled(machine: &Machine, names: &[u32]) -> Machine {
    let mut machine = machine.clone();
    for (cpu, &name) in machine.cpus.iter_mut().zip(names) {
        cpu.cpu = CpuId(name);
    }
    machine
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn sane_and_complete(t in topology(Rows::Proper)) {
        let tree = build(&t).tree;
        prop_assert_eq!(sanity(&tree), vec![]);
        let sets = t.balanced_apart();
        for cpu in (0..t.width).map(CpuId::from) {
            match chain(&tree, cpu).last() {
                // The wasted-cores bug: a domain over everything must be there.
                Some(top) => prop_assert!(sets.contains(&top.span)),
                None => prop_assert!(!sets.iter().any(|set| set.test(cpu) && set.weight() > 1)),
            }
        }
        let again = build(&t).tree;
        prop_assert_eq!(again, tree);
    }
}

proptest! {
    #![proptest_config(config(600))]

    #[test]
    fn sane_whatever_the_distances(
        t in prop_oneof![topology(Rows::Uneven), topology(Rows::Wild)]
    ) {
        prop_assert_eq!(sanity(&build(&t).tree), vec![]);
    }

    #[test]
    fn offline_then_online_gives_the_identical_tree(m in machine(Rows::Proper), cpu in 0usize..64) {
        let t = m.topology();
        let off = t.online.iter().nth(cpu % t.online.weight()).unwrap();
        let mut rest = t.online.clone();
        rest.clear(off);
        prop_assume!(!rest.is_empty());
        let part = t.with_online(&rest);
        prop_assert_eq!(sanity(&build(&part).tree), vec![]);
        prop_assert!(chain(&build(&part).tree, off).is_empty());
        prop_assert_eq!(build(&m.topology()), build(&t));
    }

    /// Names in the same order, with holes: the identical tree, group for group.
    #[test]
    fn holes_change_only_names(m in machine(Rows::Proper), gaps in prop::collection::vec(0u32..4, 8)) {
        let mut order: Vec<usize> = (0..m.cpus.len()).collect();
        order.sort_by_key(|&i| m.cpus[i].cpu);
        let mut names = vec![0; m.cpus.len()];
        let mut next = 0;
        for (rank, &i) in order.iter().enumerate() {
            next += gaps[rank % gaps.len()];
            names[i] = next;
            next += 1;
        }
        let (a, b) = (build(&m.topology()), build(&relabelled(&m, &names).topology()));
        prop_assert_eq!(a.tree.domains.len(), b.tree.domains.len());
        prop_assert_eq!(a.tree.groups.len(), b.tree.groups.len());
        let new = |mask: &Cpumask| -> Vec<u32> {
            let name = |cpu: CpuId| names[m.cpus.iter().position(|c| c.cpu == cpu).unwrap()];
            mask.iter().map(name).collect()
        };
        let ids = |mask: &Cpumask| -> Vec<u32> { mask.iter().map(|cpu| cpu.0).collect() };
        for (x, y) in a.tree.groups.iter().zip(&b.tree.groups) {
            prop_assert_eq!(new(&x.span), ids(&y.span));
            prop_assert_eq!(new(&x.balance_mask), ids(&y.balance_mask));
        }
        for (x, y) in a.tree.domains.iter().zip(&b.tree.domains) {
            prop_assert_eq!(new(&x.span), ids(&y.span));
            prop_assert_eq!((&x.groups, x.flags, x.imb_numa_nr), (&y.groups, y.flags, y.imb_numa_nr));
        }
    }

    /// Any names: the same levels, spans, flags and numbers, and the same groups wherever groups
    /// do not overlap. Which cover of an overlapping span is found depends on the order of CPUs,
    /// in the kernel as here.
    #[test]
    fn relabelled_cpus_give_the_relabelled_tree(m in machine(Rows::Proper), seed in any::<u64>()) {
        let mut names: Vec<u32> = (0..m.cpus.len() as u32).collect();
        names.sort_by_key(|&n| (u64::from(n) + 1).wrapping_mul(seed | 1).rotate_left(23) ^ seed);
        let (a, b) = (build(&m.topology()).tree, build(&relabelled(&m, &names).topology()).tree);
        let name = |cpu: CpuId| names[m.cpus.iter().position(|c| c.cpu == cpu).unwrap()];
        let new = |mask: &Cpumask| -> BTreeSet<u32> { mask.iter().map(name).collect() };
        let ids = |mask: &Cpumask| -> BTreeSet<u32> { mask.iter().map(|cpu| cpu.0).collect() };
        let overlap = overlaps(&a);
        for cpu in m.cpus.iter().map(|c| c.cpu) {
            let (x, y) = (chain(&a, cpu), chain(&b, CpuId(name(cpu))));
            prop_assert_eq!(x.len(), y.len());
            for (x, y) in x.into_iter().zip(y) {
                prop_assert_eq!((x.level, new(&x.span)), (y.level, ids(&y.span)));
                prop_assert_eq!((x.imb_numa_nr, x.distance), (y.imb_numa_nr, y.distance));
                if !overlap || !x.flags.contains(SdFlags::NUMA) {
                    prop_assert_eq!(x.flags, y.flags);
                    let groups = |t: &DomainTree, d: &SchedDomain, f: &dyn Fn(&Cpumask) -> BTreeSet<u32>| {
                        d.groups.iter().map(|&g| f(&t.group(g).span)).collect::<BTreeSet<_>>()
                    };
                    prop_assert_eq!(groups(&a, x, &new), groups(&b, y, &ids));
                }
            }
        }
    }
}
