//! Every row of the shared `cases.md`, Topology: the smallest tree of files that shows the fault,
//! what is made of it, and the note that says so. Also that no text in any file causes a panic.

#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]

#[path = "common/scratch.rs"]
mod scratch;
#[path = "common/sysroot.rs"]
mod sysroot;

use scx_baton::domains::{Built, build, sanity};
use scx_baton::topology::{Topology, presets, synthetic};
use scx_baton::units::{Capacity, CpuId, NodeId};
use std::fs;
use std::path::PathBuf;
use sysroot::{CPU, NODE, SysRoot};

impl SysRoot {
    fn described(spec: &str) -> Self {
        Self::of(&synthetic::parse(spec).unwrap())
    }

    fn read(&self) -> Topology {
        Topology::read(self.path()).unwrap()
    }

    /// Removes a file or a directory; what is not there is fine.
    fn remove(&self, path: &str) {
        let path = self.path().join(path);
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }

    /// This name below every `cpuN` that has it.
    fn everywhere(&self, name: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join(CPU)).unwrap();
        entries.map(|e| e.unwrap().path().join(name)).filter(|path| path.exists()).collect()
    }

    fn remove_everywhere(&self, name: &str) {
        for path in self.everywhere(name) {
            self.remove(path.to_str().unwrap());
        }
    }

    fn put_everywhere(&self, name: &str, text: &str) {
        for path in self.everywhere(name) {
            fs::write(path, text).unwrap();
        }
    }
}

fn tree(t: &Topology) -> Built {
    let built = build(t);
    assert_eq!(sanity(&built.tree), []);
    built
}

/// `MC 0-3, NUMA 0-7`.
fn chain(t: &Topology, cpu: u32) -> String {
    let tree = tree(t).tree;
    let domains = tree.chain(CpuId(cpu)).iter().map(|link| tree.domain(link.domain));
    domains.map(|d| format!("{} {}", d.level, d.span)).collect::<Vec<_>>().join(", ")
}

/// That exactly one note has this path and consequence.
fn assert_noted(t: &Topology, path: &str, consequence: &str) {
    let hits =
        t.notes.iter().filter(|n| n.path.contains(path) && n.consequence.contains(consequence));
    assert_eq!(hits.count(), 1, "{path}, {consequence}: {:#?}", t.notes);
}

#[test]
fn what_is_written_is_read_back() {
    for spec in presets::PRESETS.iter().map(|p| p.name).chain([
        "1x2x2+6 smt=2 memonly=2 memless=1",
        "2x3x4 smt=2 llc=2 cluster=2 offline=1,5 isolated=2-3 stride=2",
        "4x1x2 order=spread",
    ]) {
        let described = synthetic::parse(spec).unwrap();
        let read = SysRoot::of(&described).read();
        assert_eq!(read.notes, [], "{spec}");
        assert_eq!(build(&read), build(&described), "{spec}");
        assert_eq!(read.hotplug_seq, Some(0));
    }
}

#[test]
fn any_number_of_nodes() {
    for nodes in [9, 24, 33, 64] {
        let t = SysRoot::described(&format!("{nodes}x2")).read();
        assert_eq!(chain(&t, 0), format!("MC 0-1, NUMA 0-{}", 2 * nodes - 1));
    }
}

#[test]
fn high_cpu_ids_cost_nothing() {
    for highest in [513, 1_024, 8_191] {
        let root = SysRoot::described("2");
        root.put(&format!("{CPU}/possible"), &format!("0-{highest}"));
        let t = root.read();
        assert_eq!((t.width, chain(&t, 1).as_str()), (highest + 1, "MC 0-1"));
    }
    // Possible 1,024 with 8 online, the last one at the very end.
    let root = SysRoot::described("8 stride=64");
    root.put(&format!("{CPU}/possible"), "0-1023");
    let t = root.read();
    assert_eq!(t.online.weight(), 8);
    assert_eq!(tree(&t).tree.groups.len(), 8);
}

#[test]
fn absent_cpus_are_in_no_domain() {
    let root = SysRoot::described("1x16");
    root.put(&format!("{CPU}/possible"), "0-31");
    root.put(&format!("{CPU}/present"), "0-31");
    let t = root.read();
    assert_eq!((t.width, t.present.weight(), t.online.weight()), (32, 32, 16));
    assert_eq!(chain(&t, 20), "");
    assert_eq!(chain(&t, 0), "MC 0-15");
}

#[test]
fn holes_in_the_numbers() {
    let t = SysRoot::described("1x4 smt=2 stride=2").read();
    assert_eq!((t.width, chain(&t, 2).as_str()), (15, "SMT 2,10, MC 0,2,4,6,8,10,12,14"));
    let t = synthetic::parse("6").unwrap();
    let some = scx_baton::cpumask::Cpumask::parse_list("0,3,4,5", 6).unwrap();
    let t = SysRoot::of(&t.with_online(&some)).read();
    assert_eq!(chain(&t, 3), "MC 0,3-5");
}

#[test]
fn no_cache_information() {
    let root = SysRoot::described("2x4");
    root.remove_everywhere("cache");
    let t = root.read();
    assert_eq!(t.llcs.len(), 2);
    assert_noted(&t, "cpu0/cache", "one last-level cache per node");
    assert_eq!(chain(&t, 0), "MC 0-3, NUMA 0-7");
}

#[test]
fn cache_ids_absent() {
    let root = SysRoot::described("1x8 llc=4");
    for index in 0..4 {
        root.remove_everywhere(&format!("cache/index{index}/id"));
    }
    assert_eq!(root.read().llcs.len(), 2);
    // Ids alone do as well; with neither, each core is alone, and that is said.
    let root = SysRoot::described("1x8 llc=4");
    root.remove_everywhere("cache/index3/shared_cpu_list");
    assert_eq!(root.read().llcs.len(), 2);
    root.remove_everywhere("cache/index3/id");
    assert_noted(&root.read(), "cache/index3", "serve one core");
}

#[test]
fn one_l3_over_two_nodes_is_cut() {
    let root = SysRoot::described("1x2x4");
    root.put_everywhere("cache/index3/shared_cpu_list", "0-7");
    let t = root.read();
    assert_eq!((t.l3.len(), t.llcs.len()), (1, 2));
    assert_noted(&t, CPU, "cut at the node's edge");
    assert_eq!(chain(&t, 5), "MC 4-7, NUMA 0-7");
}

#[test]
fn one_l3_per_cpu_looks_wrong() {
    let t = SysRoot::described("1x4 llc=1").read();
    assert_noted(&t, "cache", "no level is built from shared caches");
    assert_eq!(chain(&t, 0), "PKG 0-3");
}

#[test]
fn no_node_directory() {
    let root = SysRoot::described("1x4");
    root.remove(NODE);
    let t = root.read();
    assert_eq!((t.nodes.len(), t.nodes[0].id), (1, NodeId(0)));
    assert_noted(&t, NODE, "one node 0");
    assert_eq!(chain(&t, 0), "MC 0-3");
}

#[test]
fn nodes_without_cpus_or_memory() {
    let t = SysRoot::described("2x4 memonly=8 memless=1").read();
    assert_eq!((t.nodes.len(), t.nodes[1].has_memory, t.nodes[5].has_memory), (10, false, true));
    assert_eq!(chain(&t, 0), "MC 0-3, NUMA 0-7");
    // has_memory missing: the node's own meminfo says it.
    let root = SysRoot::described("2x4");
    root.remove(&format!("{NODE}/has_memory"));
    root.put(&format!("{NODE}/node1/meminfo"), "Node 1 MemTotal:       0 kB\n");
    assert!(root.read().nodes[0].has_memory && !root.read().nodes[1].has_memory);
}

#[test]
fn ids_of_minus_one() {
    let root = SysRoot::described("2x4 smt=2");
    for id in ["physical_package_id", "core_id", "cluster_id"] {
        root.put_everywhere(&format!("topology/{id}"), "-1\n");
    }
    assert_eq!(build(&root.read()), build(&synthetic::parse("2x4 smt=2").unwrap()));
    for lists in ["package_cpus_list", "core_cpus_list", "cluster_cpus_list"] {
        root.remove_everywhere(&format!("topology/{lists}"));
    }
    let t = root.read();
    assert_noted(&t, "topology", "one package per node");
    assert_noted(&t, "topology", "core of its own");
    assert_eq!((t.packages.len(), t.cores.len()), (2, 16));
}

#[test]
fn ids_alone_are_enough() {
    let root = SysRoot::described("2x4 smt=2 cluster=2");
    for lists in ["package_cpus_list", "core_cpus_list", "cluster_cpus_list"] {
        root.remove_everywhere(&format!("topology/{lists}"));
    }
    assert_eq!(build(&root.read()), build(&synthetic::parse("2x4 smt=2 cluster=2").unwrap()));
}

#[test]
fn cpu0_is_nothing_special() {
    let off = synthetic::parse("4 offline=0").unwrap();
    let root = SysRoot::of(&off);
    // The `online` list wins over a CPU's own file.
    root.put(&format!("{CPU}/cpu0/online"), "1\n");
    assert_eq!(chain(&root.read(), 1), "MC 1-3");
    // Without the list, a missing file means online.
    let root = SysRoot::described("4");
    root.remove(&format!("{CPU}/online"));
    root.put(&format!("{CPU}/cpu1/online"), "0\n");
    let t = root.read();
    assert_eq!(t.online.to_string(), "0,2-3");
    assert_noted(&t, "cpu/online", "unless its own");
}

#[test]
fn only_directories() {
    let root = SysRoot::described("4");
    for list in ["possible", "present", "online"] {
        root.remove(&format!("{CPU}/{list}"));
    }
    let t = root.read();
    assert_eq!((t.width, chain(&t, 0).as_str()), (4, "MC 0-3"));
    assert_noted(&t, "cpu/possible", "present CPUs are possible");
}

#[test]
fn uneven_parts_keep_their_own_facts() {
    let t = SysRoot::described("1x14 llc=8+6").read();
    assert_eq!(t.llcs.iter().map(<[_]>::len).collect::<Vec<_>>(), [8, 6]);
    assert_eq!(chain(&t, 9), "MC 8-13, PKG 0-13");
    let t = SysRoot::described("1x14 smt=6*2+8*1").read();
    assert_eq!(t.cores.iter().map(<[_]>::len).sum::<usize>(), 20);
    assert_eq!(chain(&t, 7), "MC 0-19");
}

#[test]
fn unknown_capacities_are_symmetric_and_that_is_said() {
    let root = SysRoot::described("1x14 smt=6*2+8*1");
    root.remove_everywhere("cpu_capacity");
    assert_noted(&root.read(), "cpu_capacity", "treated as symmetric");
}

#[test]
fn one_domain_is_no_surprise() {
    let built = tree(&SysRoot::described("4").read());
    let why: Vec<String> =
        built.dropped.iter().map(|d| format!("{}: {}", d.level, d.why)).collect();
    assert!(why.iter().any(|w| w.starts_with("PKG: one group")), "{why:?}");
}

#[test]
fn all_distances_equal() {
    let t = SysRoot::described("4x1x2 dist=10,10,10,10/10,10,10,10/10,10,10,10/10,10,10,10").read();
    assert_noted(&t, "distance", "one level over all");
    assert_eq!(chain(&t, 0), "MC 0-1, NODE 0-7");
}

#[test]
fn wide_diameters_are_sane() {
    for spec in ["kunpeng920", "mesh8"] {
        tree(&SysRoot::described(spec).read());
    }
}

#[test]
fn distances_missing_or_short() {
    let root = SysRoot::described("3x2");
    root.remove(&format!("{NODE}/node0/distance"));
    root.put(&format!("{NODE}/node1/distance"), "20 10");
    root.put(&format!("{NODE}/node2/distance"), "20 20 ten");
    let t = root.read();
    assert_eq!(t.notes.len(), 3);
    assert_eq!(chain(&t, 0), "MC 0-1, NUMA 0-5");
}

#[test]
fn cpus_in_two_nodes_or_none() {
    let root = SysRoot::described("2x4");
    root.put(&format!("{NODE}/node1/cpulist"), "3-6");
    let t = root.read();
    assert_eq!((t.node_of(CpuId(3)), t.node_of(CpuId(7))), (Some(NodeId(0)), Some(NodeId(0))));
    assert_noted(&t, "node1/cpulist", "listed first");
    assert_noted(&t, NODE, "such CPUs count to node 0");
}

#[test]
fn isolation_from_both_sources() {
    let root = SysRoot::described("8");
    root.put(&format!("{CPU}/isolated"), "2-3\n");
    root.put(&format!("{CPU}/nohz_full"), "(null)\n");
    root.put("sys/fs/cgroup/cpuset.cpus.isolated", "6\n");
    let t = root.read();
    assert_eq!((t.isolated.to_string(), t.nohz_full.is_empty()), ("2-3,6".to_string(), true));
    assert_eq!(chain(&t, 0), "MC 0-1,4-5,7");
    assert_eq!(chain(&t, 6), "");
}

#[test]
fn cpuset_partitions() {
    let root = SysRoot::described("8");
    for (cgroup, kind, cpus) in [
        ("a", "root", "0-1"),
        ("a/b", "root", "2"),
        ("c", "root invalid (no CPU)", "4"),
        ("d", "member", "0-7"),
        ("d/e", "isolated", "7"),
    ] {
        root.put(&format!("sys/fs/cgroup/{cgroup}/cpuset.cpus.partition"), kind);
        root.put(&format!("sys/fs/cgroup/{cgroup}/cpuset.cpus.effective"), cpus);
    }
    root.put("sys/fs/cgroup/cpuset.cpus.isolated", "7");
    let t = root.read();
    assert_eq!((chain(&t, 0), chain(&t, 2)), ("MC 0-1".to_string(), String::new()));
    assert_eq!(chain(&t, 4), "MC 3-6");
}

#[test]
fn offline_then_online_gives_the_identical_tree() {
    let (whole, part) = ("2x4 smt=2", "2x4 smt=2 offline=1,5");
    let root = SysRoot::described(whole);
    let before = build(&root.read());
    let part = SysRoot::described(part).read();
    assert_ne!(build(&part), before);
    root.put("sys/kernel/sched_ext/hotplug_seq", "4\n");
    let after = root.read();
    assert_eq!((build(&after), after.hotplug_seq), (before, Some(4)));
}

#[test]
fn nothing_there_is_one_sentence() {
    let error = Topology::read(scratch::scratch().path()).unwrap_err().to_string();
    assert!(error.contains("holds no machine"), "{error}");
}

#[test]
fn a_capacity_above_a_full_cpus_is_none() {
    let root = SysRoot::described("2x4");
    root.put(&format!("{CPU}/cpu1/cpu_capacity"), "9223372036854775807\n");
    let t = root.read();
    assert_noted(&t, "cpu1/cpu_capacity", "full one");
    assert_eq!(t.capacity(CpuId(1)), Capacity::SCALE);
}

#[test]
fn no_text_in_any_file_causes_a_panic() {
    let files = [
        format!("{CPU}/possible"),
        format!("{CPU}/present"),
        format!("{CPU}/online"),
        format!("{CPU}/isolated"),
        format!("{CPU}/cpu1/topology/physical_package_id"),
        format!("{CPU}/cpu1/topology/package_cpus_list"),
        format!("{CPU}/cpu1/topology/core_cpus_list"),
        format!("{CPU}/cpu1/topology/core_id"),
        format!("{CPU}/cpu1/topology/cluster_cpus_list"),
        format!("{CPU}/cpu1/cpu_capacity"),
        format!("{CPU}/cpu1/cache/index3/level"),
        format!("{CPU}/cpu1/cache/index3/type"),
        format!("{CPU}/cpu1/cache/index3/shared_cpu_list"),
        format!("{NODE}/online"),
        format!("{NODE}/has_memory"),
        format!("{NODE}/node1/cpulist"),
        format!("{NODE}/node1/distance"),
        "proc/cpuinfo".to_string(),
        "sys/kernel/sched_ext/hotplug_seq".to_string(),
    ];
    let texts = [
        "",
        "\n",
        "\0",
        "-1",
        "0",
        "1-0",
        "0-",
        "x",
        "0-7",
        "0-99",
        "4096",
        "70000",
        "0,,2",
        "ff",
        "0-4294967295",
        "18446744073709551615",
        "0-18446744073709551615",
        "99999999999999999999",
        "9223372036854775807",
        "-9223372036854775808",
        "0-3:1/0",
        "é",
        "10 0",
        "0 10",
        "10 4294967295",
        "0-6:2/4",
        "1",
        "2 2 2 2",
    ];
    let root = SysRoot::described("2x4 smt=2");
    for file in &files {
        let before = fs::read_to_string(root.path().join(file)).unwrap();
        for text in texts {
            root.put(file, text);
            if let Ok(t) = Topology::read(root.path()) {
                assert_eq!(sanity(&build(&t).tree), [], "{file}: {text}");
            }
        }
        root.put(file, &before);
    }
    // Directories where files should be, and odd names beside them.
    root.remove(&format!("{CPU}/online"));
    fs::create_dir(root.path().join(format!("{CPU}/online"))).unwrap();
    for name in ["cpu4294967296", "cpu99999", "cpu-1", "cpu", "cpufreq"] {
        fs::create_dir(root.path().join(format!("{CPU}/{name}"))).unwrap();
    }
    fs::create_dir(root.path().join(format!("{NODE}/node4294967295"))).unwrap();
    assert_eq!(root.read().width, 16);
}
