//! The machine and its domains as text for a person, also at hundreds of CPUs.

use crate::domains::{
    DomainTree, DroppedLevel, GroupId, LevelKind, SchedDomain, SdFlags, Violation,
};
use crate::topology::Topology;
use crate::units::CpuId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Domains and groups listed one by one; of more, the first few and the last are shown.
const MOST_LISTED: usize = 16;
const FIRST_OF_MANY: usize = 3;
/// Most LLCs that get a row each; of more, each node shows their number.
const MOST_LLCS: usize = 128;
/// Largest distance matrix that is printed.
const MOST_NODES: usize = 32;

fn plural(n: usize, one: &str) -> String {
    match (n, one) {
        (1, _) => format!("1 {one}"),
        _ => format!("{n} {one}s"),
    }
}

/// `writeln!` into a string, which cannot fail.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

/// The whole machine.
pub(super) fn machine(t: &Topology, tree: &DomainTree, dropped: &[DroppedLevel]) -> String {
    let mut out = String::new();
    heading(&mut out, t);
    grid(&mut out, t);
    distances(&mut out, t);
    levels(&mut out, tree);
    missing_levels(&mut out, tree, dropped);
    notes(&mut out, t);
    out
}

fn heading(out: &mut String, t: &Topology) {
    line!(
        out,
        "{} online, {}, {}, {}, {}",
        plural(t.online.weight(), "CPU"),
        plural(t.cores.len(), "core"),
        plural(t.packages.len(), "package"),
        plural(t.nodes.len(), "node"),
        plural(t.llcs.len(), "LLC"),
    );
    let mut say = |name: &str, mask: &crate::cpumask::Cpumask| {
        if !mask.is_empty() {
            line!(out, "  {name:<10} {mask}");
        }
    };
    say("online", &t.online);
    say("offline", &t.present.and_not(&t.online));
    say("absent", &t.possible.and_not(&t.present));
    say("isolated", &t.isolated);
    say("nohz_full", &t.nohz_full);
    for partition in &t.partitions {
        say("partition", partition);
    }
    capacities(out, t);
}

fn capacities(out: &mut String, t: &Topology) {
    let mut by_capacity: BTreeMap<u64, Vec<CpuId>> = BTreeMap::new();
    for cpu in t.online.iter() {
        by_capacity.entry(t.capacity(cpu).0).or_default().push(cpu);
    }
    if by_capacity.len() > 1 {
        for (capacity, cpus) in by_capacity.into_iter().rev() {
            let mask = crate::cpumask::Cpumask::from_cpus(t.width, cpus);
            line!(out, "  capacity   {capacity:>4}: {mask}");
        }
    }
}

/// One row per LLC, under its node.
fn grid(out: &mut String, t: &Topology) {
    let size = t.llc_size_kib.map_or(String::new(), |kib| match kib {
        _ if kib % 1024 == 0 => format!(" ({} MiB)", kib / 1024),
        _ => format!(" ({kib} KiB)"),
    });
    line!(out, "\nNodes and last-level caches{size}");
    line!(out, "  node  package  memory   LLC  cores  CPUs");
    for node in &t.nodes {
        let memory = if node.has_memory { "yes" } else { "no" };
        if node.cpus.is_empty() {
            line!(out, "  {:>4}  {:>7}  {memory:<6}  {:>4}  {:>5}  -", node.id.0, "-", "-", "-");
            continue;
        }
        let llcs: BTreeSet<usize> = node.cpus.iter().filter_map(|cpu| t.llcs.of(cpu)).collect();
        let packages: BTreeSet<usize> =
            node.cpus.iter().filter_map(|cpu| t.packages.of(cpu)).collect();
        let packages: Vec<String> = packages.iter().map(usize::to_string).collect();
        if t.llcs.len() > MOST_LLCS {
            let cores: BTreeSet<_> = node.cpus.iter().map(|cpu| t.cores.of(cpu)).collect();
            line!(
                out,
                "  {:>4}  {:>7}  {memory:<6}  {:>4}  {:>5}  {}",
                node.id.0,
                packages.join(","),
                format!("x{}", llcs.len()),
                cores.len(),
                node.cpus
            );
            continue;
        }
        for (row, llc) in llcs.into_iter().enumerate() {
            let cores: BTreeSet<_> =
                t.llcs.members(llc).iter().map(|&cpu| t.cores.of(cpu)).collect();
            let (id, packages, memory) = match row {
                0 => (node.id.to_string(), packages.join(","), memory),
                _ => Default::default(),
            };
            let cpus = t.llcs.mask(llc);
            line!(
                out,
                "  {id:>4}  {packages:>7}  {memory:<6}  {llc:>4}  {:>5}  {cpus}",
                cores.len()
            );
        }
    }
}

fn distances(out: &mut String, t: &Topology) {
    if t.nodes.len() < 2 {
        return;
    }
    line!(out, "\nDistances between nodes");
    if t.nodes.len() > MOST_NODES {
        let mut count: BTreeMap<u32, usize> = BTreeMap::new();
        for node in &t.nodes {
            for &d in &node.distances {
                *count.entry(d).or_default() += 1;
            }
        }
        for (distance, pairs) in count {
            line!(out, "  {distance:>4}: {}", plural(pairs, "pair"));
        }
        return;
    }
    let head: String = t.nodes.iter().map(|n| format!("{:>5}", n.id.0)).collect();
    line!(out, "  {:>4}{head}", "");
    for node in &t.nodes {
        let row: String = node.distances.iter().map(|d| format!("{d:>5}")).collect();
        line!(out, "  {:>4}{row}", node.id.0);
    }
}

/// Like domains, whichever part of the machine they are in.
fn by_level(tree: &DomainTree) -> BTreeMap<LevelKind, Vec<&SchedDomain>> {
    let mut levels: BTreeMap<LevelKind, Vec<&SchedDomain>> = BTreeMap::new();
    for domain in &tree.domains {
        levels.entry(domain.level).or_default().push(domain);
    }
    for domains in levels.values_mut() {
        domains.sort_by_key(|d| (d.span.first(), d.weight));
    }
    levels
}

/// `4` or `2..6`.
fn range(values: impl Iterator<Item = u64>) -> String {
    let values: BTreeSet<u64> = values.collect();
    match (values.first(), values.last()) {
        (Some(a), Some(b)) if a != b => format!("{a}..{b}"),
        (Some(a), _) => a.to_string(),
        _ => "-".to_string(),
    }
}

fn flags(flags: SdFlags) -> String {
    flags.iter_names().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>().join(" ")
}

fn level_name(level: LevelKind) -> String {
    match level {
        LevelKind::Numa(n) => format!("NUMA {n}"),
        other => other.to_string(),
    }
}

fn levels(out: &mut String, tree: &DomainTree) {
    let levels = by_level(tree);
    if levels.is_empty() {
        return;
    }
    line!(out, "\nLevels, narrow to wide");
    line!(
        out,
        "  {:<8}{:>8}{:>9}{:>9}{:>10}{:>12}{:>9}{:>13}",
        "level",
        "domains",
        "CPUs",
        "groups",
        "distance",
        "imb. pct",
        "tries",
        "imb_numa_nr"
    );
    for (&level, domains) in &levels {
        let per = |f: fn(&SchedDomain) -> u64| range(domains.iter().map(|d| f(d)));
        line!(
            out,
            "  {:<8}{:>8}{:>9}{:>9}{:>10}{:>12}{:>9}{:>13}",
            level_name(level),
            domains.len(),
            per(|d| d.weight.into()),
            per(|d| d.groups.len() as u64),
            per(|d| d.distance.into()),
            per(|d| d.imbalance_pct.into()),
            per(|d| d.cache_nice_tries.into()),
            per(|d| d.imb_numa_nr.into()),
        );
    }
    for (&level, domains) in &levels {
        let interval = |f: fn(&SchedDomain) -> u64| range(domains.iter().map(|d| f(d) / 1_000_000));
        let (min, max) = (interval(|d| d.min_interval.0), interval(|d| d.max_interval.0));
        line!(
            out,
            "\n{}: every {min} to {max} ms, {} times that when busy",
            level_name(level),
            range(domains.iter().map(|d| d.busy_factor.into()))
        );
        let all: BTreeSet<String> = domains.iter().map(|d| flags(d.flags)).collect();
        for flags in all {
            line!(out, "  {flags}");
        }
        let shown = shown(domains.len());
        for (i, domain) in domains.iter().enumerate() {
            if shown(i) {
                line!(out, "  {}  {}", domain.span, groups(tree, &domain.groups));
            } else if shown(i - 1) {
                line!(out, "  … {} more …", domains.len() - FIRST_OF_MANY - 1);
            }
        }
    }
}

/// Which of `len` entries are printed.
fn shown(len: usize) -> impl Fn(usize) -> bool {
    move |i| len <= MOST_LISTED || i < FIRST_OF_MANY || i + 1 == len
}

/// `{0-3} {4-7}`; where fewer CPUs balance than are counted, `{0-5 by 2-3}`.
fn groups(tree: &DomainTree, ids: &[GroupId]) -> String {
    let shown = shown(ids.len());
    let mut text = Vec::new();
    for (i, &id) in ids.iter().enumerate() {
        let group = tree.group(id);
        if shown(i) && group.balance_mask == group.span {
            text.push(format!("{{{}}}", group.span));
        } else if shown(i) {
            text.push(format!("{{{} by {}}}", group.span, group.balance_mask));
        } else if shown(i - 1) {
            text.push(format!("… {} more …", ids.len() - FIRST_OF_MANY - 1));
        }
    }
    text.join(" ")
}

fn missing_levels(out: &mut String, tree: &DomainTree, dropped: &[DroppedLevel]) {
    line!(out, "");
    if tree.domains.is_empty() {
        line!(out, "No balancing at any level: no two CPUs may share work.");
    }
    for d in dropped {
        let cpus = plural(d.cpus as usize, "CPU");
        line!(out, "no balancing at level {}: {} ({cpus})", level_name(d.level), d.why);
    }
}

fn notes(out: &mut String, t: &Topology) {
    if t.notes.is_empty() {
        return;
    }
    line!(out, "\nNotes");
    for note in &t.notes {
        line!(out, "  {note}");
    }
}

/// One CPU's chain.
pub(super) fn chain(t: &Topology, tree: &DomainTree, cpu: CpuId) -> String {
    let mut out = String::new();
    let at = |partition: &crate::topology::Partition| {
        partition.of(cpu).map_or("-".to_string(), |part| part.to_string())
    };
    let node = t.node_of(cpu).map_or("-".to_string(), |node| node.to_string());
    line!(
        out,
        "CPU {cpu}: core {}, cluster {}, LLC {}, node {node}, package {}, capacity {}{}",
        at(&t.cores),
        at(&t.clusters),
        at(&t.llcs),
        at(&t.packages),
        t.capacity(cpu),
        if t.isolated.test(cpu) { ", isolated" } else { "" },
    );
    if tree.chain(cpu).is_empty() {
        line!(out, "no domain: nothing is balanced to or from this CPU");
    }
    for (i, link) in tree.chain(cpu).iter().enumerate() {
        let d = tree.domain(link.domain);
        // The CPU's own group first, as balancing goes round.
        let mut ring = d.groups.clone();
        ring.rotate_left(link.local as usize);
        line!(out, "\n{i}: {}  {}", level_name(d.level), d.span);
        line!(out, "  groups      {}", groups(tree, &ring));
        let balancer = tree.group(ring[0]).balance_cpu();
        line!(out, "  balanced by {}", balancer.map_or("-".to_string(), |c| format!("CPU {c}")));
        line!(
            out,
            "  interval    {} to {} ms, times {} when busy",
            d.min_interval.0 / 1_000_000,
            d.max_interval.0 / 1_000_000,
            d.busy_factor
        );
        line!(
            out,
            "  numbers     imbalance_pct {}, cache_nice_tries {}, imb_numa_nr {}, distance {}",
            d.imbalance_pct,
            d.cache_nice_tries,
            d.imb_numa_nr,
            d.distance
        );
        line!(out, "  flags       {}", flags(d.flags));
    }
    out
}

/// The levels from which `--relax-domain-level` has taken newidle balancing.
pub(super) fn relaxed(tree: &DomainTree, n: u32) -> String {
    let without = |d: &&SchedDomain| !d.flags.contains(SdFlags::NEWIDLE);
    let levels: BTreeSet<LevelKind> =
        tree.domains.iter().filter(without).map(|d| d.level).collect();
    let names: Vec<String> = levels.into_iter().map(level_name).collect();
    match names.is_empty() {
        true => format!("\n--relax-domain-level {n} changes nothing: every level is below it\n"),
        false => {
            format!("\n--relax-domain-level {n}: no newidle balancing at {}\n", names.join(", "))
        }
    }
}

/// What the sanity check found; nothing if all is well.
pub(super) fn violations(violations: &[Violation]) -> String {
    let mut out = String::new();
    if !violations.is_empty() {
        line!(out, "\nNOT SANE");
    }
    for violation in violations {
        line!(out, "  {violation}");
    }
    out
}
