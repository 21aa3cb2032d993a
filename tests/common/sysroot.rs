//! Writes a topology as the sysfs and procfs files that the reader expects, for tests and the
//! benchmark.

use scx_baton::topology::{Arch, Partition, Topology};
use scx_baton::units::CpuId;
use std::fs;
use std::path::Path;

/// A directory that looks like `/` to the reader.
pub(crate) struct SysRoot {
    dir: tempfile::TempDir,
}

pub(crate) const CPU: &str = "sys/devices/system/cpu";
pub(crate) const NODE: &str = "sys/devices/system/node";

impl SysRoot {
    /// A root that shows this machine.
    pub(crate) fn of(t: &Topology) -> Self {
        let root = Self { dir: super::scratch::scratch() };
        root.write_masks(t);
        root.write_platform(t);
        root.write_nodes(t);
        for cpu in t.online.iter() {
            root.write_cpu(t, cpu);
        }
        root
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        let dir = path.parent().unwrap_or(&path);
        let written = fs::create_dir_all(dir).and_then(|()| fs::write(&path, text));
        written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    fn write_masks(&self, t: &Topology) {
        for (name, mask) in [
            ("possible", &t.possible),
            ("present", &t.present),
            ("online", &t.online),
            ("isolated", &t.isolated),
            ("nohz_full", &t.nohz_full),
        ] {
            self.put(&format!("{CPU}/{name}"), &list(&mask.to_string()));
        }
        self.put("sys/kernel/sched_ext/hotplug_seq", "0\n");
    }

    fn write_platform(&self, t: &Topology) {
        let p = t.platform;
        let text = match (p.arch, p.averages_remote_distances, p.reclaim_distance) {
            (Arch::Other, ..) => "processor\t: 0\nFeatures\t: fp\n",
            (_, true, _) => {
                "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 173\nflags\t\t: fpu\n"
            }
            (_, _, 32) => "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: fpu\n",
            _ => "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: fpu\n",
        };
        self.put("proc/cpuinfo", text);
        let itmt = if p.asym_packing { "1\n" } else { "0\n" };
        self.put("proc/sys/kernel/sched_itmt_enabled", itmt);
    }

    fn write_nodes(&self, t: &Topology) {
        let ids = |keep: &dyn Fn(usize) -> bool| {
            let ids = (0..t.nodes.len()).filter(|&n| keep(n)).map(|n| t.nodes[n].id.to_string());
            ids.collect::<Vec<_>>().join(",")
        };
        self.put(&format!("{NODE}/online"), &ids(&|_| true));
        self.put(&format!("{NODE}/has_memory"), &ids(&|n| t.nodes[n].has_memory));
        for node in &t.nodes {
            let dir = format!("{NODE}/node{}", node.id);
            self.put(&format!("{dir}/cpulist"), &list(&node.cpus.to_string()));
            let row: Vec<String> = node.distances.iter().map(u32::to_string).collect();
            self.put(&format!("{dir}/distance"), &row.join(" "));
        }
    }

    fn write_cpu(&self, t: &Topology, cpu: CpuId) {
        let dir = format!("{CPU}/cpu{cpu}");
        let id = |p: &Partition| p.of(cpu).map_or(-1, |part| part as i64).to_string();
        let peers =
            |p: &Partition| p.of(cpu).map_or(String::new(), |part| p.mask(part).to_string());
        for (name, partition, lists) in [
            ("physical_package_id", &t.packages, "package_cpus_list"),
            ("core_id", &t.cores, "core_cpus_list"),
            ("cluster_id", &t.clusters, "cluster_cpus_list"),
        ] {
            self.put(&format!("{dir}/topology/{name}"), &id(partition));
            self.put(&format!("{dir}/topology/{lists}"), &peers(partition));
        }
        self.put(&format!("{dir}/cpu_capacity"), &t.capacity(cpu).to_string());
        for (index, level, kind, partition) in [
            (0, 1, "Data", &t.cores),
            (1, 1, "Instruction", &t.cores),
            (2, 2, "Unified", &t.l2),
            (3, 3, "Unified", &t.l3),
        ] {
            let dir = format!("{dir}/cache/index{index}");
            self.put(&format!("{dir}/level"), &level.to_string());
            self.put(&format!("{dir}/type"), kind);
            self.put(&format!("{dir}/id"), &id(partition));
            self.put(&format!("{dir}/shared_cpu_list"), &peers(partition));
            if let (3, Some(kib)) = (level, t.llc_size_kib) {
                self.put(&format!("{dir}/size"), &format!("{kib}K"));
            }
        }
    }
}

/// A mask as sysfs prints it: nothing for the empty set.
fn list(mask: &str) -> String {
    format!("{}\n", if mask == "-" { "" } else { mask })
}
