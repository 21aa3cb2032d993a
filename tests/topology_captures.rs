//! Captured machines against hwloc's counts (`expected.tsv`), each difference with its reason.
//!
//! Needs the shared folder with the captures; says so and passes where it is absent.

use scx_baton::domains::{build, sanity};
use scx_baton::topology::Topology;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Counts that differ from hwloc's: root, what, ours, why.
const DIFFERENCES: &[(&str, &str, usize, &str)] = &[
    (
        "40intel64-4n10c+pci-conflicts",
        "packages",
        4,
        "one CPU's mask was edited to contradict the rest; the lists, which we prefer, name 4",
    ),
    ("40intel64-4n10c+pci-conflicts", "l3", 4, "the same"),
    (
        "64amd64-4s2n4ca2co",
        "cores",
        32,
        "hwloc counts both halves of an AMD module; the kernel calls them threads of one core",
    ),
    (
        "64fake-4n2s2ca2c2t",
        "l2",
        17,
        "made-up capture whose lists are copies of CPU 0's; CPUs 0 and 4 are believed",
    ),
    ("nvidiagpunumanodes", "numa_nodes", 8, "hwloc leaves out the memory of the 6 GPUs"),
];

fn shared() -> PathBuf {
    std::env::var_os("SCX_BATON_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from)
}

fn unpack(archive: &Path, to: &Path) -> bool {
    Command::new("tar")
        .arg("xjf")
        .arg(archive)
        .arg("-C")
        .arg(to)
        .status()
        .is_ok_and(|s| s.success())
}

#[test]
fn captures_give_hwlocs_counts_or_a_stated_difference() {
    let folder = shared().join("topologies");
    let Ok(expected) = std::fs::read_to_string(folder.join("expected.tsv")) else {
        println!("skipped: no captured machines in {}", folder.display());
        return;
    };
    let mut wrong = Vec::new();
    for line in expected.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [archive, root, counts @ ..] = &fields[..] else { panic!("{line}") };
        let dir = tempfile::tempdir().unwrap();
        if !unpack(&folder.join(archive), dir.path()) {
            println!("skipped: tar with bzip2 does not work here");
            return;
        }
        let t = Topology::read(&dir.path().join(root)).unwrap();
        let built = build(&t);
        let violations = sanity(&built.tree);
        assert!(violations.is_empty(), "{root}: {violations:?}");
        let ours = [
            ("cpus", t.online.weight()),
            ("cores", t.cores.len()),
            ("packages", t.packages.len()),
            ("numa_nodes", t.nodes.len()),
            ("l3", t.l3.len()),
            ("l2", t.l2.len()),
        ];
        println!("{root}");
        for note in &t.notes {
            println!("    {note}");
        }
        for ((what, ours), hwloc) in ours.into_iter().zip(counts) {
            let stated = DIFFERENCES.iter().find(|d| d.0 == *root && d.1 == what);
            let expected = stated.map_or_else(|| hwloc.parse().unwrap(), |d| d.2);
            if ours != expected {
                wrong.push(format!(
                    "{root}: {what}: ours {ours}, expected {expected}, hwloc {hwloc}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
