//! [`Topology::read`]: the machine as sysfs under some root directory shows it.

use super::cpus::{CPU_DIR, CpuParts};
use super::files::Files;
use super::partition::Partition;
use super::{MAX_CPUS, Platform, Topology};
use super::{caches, cpus, cpusets, nodes};
use crate::cpumask::Cpumask;
use crate::sched_ext;
use crate::units::CpuId;
use std::fmt;
use std::path::{Path, PathBuf};

/// No CPU was found, so there is nothing to describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The root directory that was given.
    pub root: PathBuf,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} holds no machine: neither {CPU_DIR}/online nor any {CPU_DIR}/cpuN is there; \
             give a directory that contains a copy of /sys",
            self.root.display()
        )
    }
}

impl std::error::Error for ReadError {}

struct Masks {
    possible: Cpumask,
    present: Cpumask,
    online: Cpumask,
}

/// Which CPUs there are. Lists win over directories, which win over nothing.
fn masks(files: &mut Files) -> Option<Masks> {
    let list = |name: &str| format!("{CPU_DIR}/{name}");
    let mut dirs = files.numbered(CPU_DIR, "cpu");
    let unbelievable = dirs.iter().filter(|&&cpu| cpu as usize >= MAX_CPUS).count();
    if unbelievable > 0 {
        let what = "a CPU directory with an impossible number";
        files.note(CPU_DIR, what, format!("ids from {MAX_CPUS} on are ignored"));
        dirs.retain(|&cpu| (cpu as usize) < MAX_CPUS);
    }
    let from_dirs = dirs.last().map(|&cpu| cpu as usize + 1);
    let widths = ["possible", "present", "online"].map(|name| files.list_width(&list(name)));
    let width = widths.into_iter().chain([from_dirs]).flatten().max()?;
    let dirs = Cpumask::from_cpus(width, dirs.into_iter().map(CpuId));

    let mut read = |name: &str, width_stated: Option<usize>, consequence: &str| {
        let path = list(name);
        let mask = width_stated.and_then(|_| files.cpulist(&path, width));
        if mask.is_none() {
            files.note(&path, "missing, empty or unreadable", consequence.to_string());
        }
        mask
    };
    let online = read("online", widths[2], "a CPU is online unless its own `online` file says 0");
    let present = read("present", widths[1], "the CPUs with a directory are present");
    let possible = read("possible", widths[0], "the present CPUs are possible");

    let online = online.unwrap_or_else(|| {
        Cpumask::from_cpus(width, dirs.iter().filter(|&cpu| !says_offline(files, cpu)))
    });
    let present = present.unwrap_or_else(|| dirs.clone()).or(&online);
    let possible = possible.unwrap_or_else(|| present.clone()).or(&present);
    (!online.is_empty()).then_some(Masks { possible, present, online })
}

/// What the CPU's own file says. cpu0 often cannot go offline and then has none.
fn says_offline(files: &Files, cpu: CpuId) -> bool {
    files.read(&format!("{CPU_DIR}/cpu{cpu}/online")).is_some_and(|text| text.trim() == "0")
}

/// Cuts a set at node edges, as the kernel does (x86: `topology_sane`), and says so.
fn cut(
    files: &mut Files,
    what: &str,
    sets: Partition,
    node_of: impl Fn(CpuId) -> Option<u32>,
) -> Partition {
    let cut = sets.cut_by(node_of);
    if cut != sets {
        files.note(
            &format!("{CPU_DIR}/cpu*"),
            format!("a {what} reaches over more than one node"),
            "it is cut at the node's edge".to_string(),
        );
    }
    cut
}

/// Makes `outer` hold `inner`, and says so where it did not.
fn nest(files: &mut Files, what: &str, inner: &Partition, outer: Partition) -> Partition {
    if inner.is_inside(&outer) {
        return outer;
    }
    files.note(
        &format!("{CPU_DIR}/cpu*"),
        format!("{what} overlap without one holding the other"),
        "the wider ones are joined until they do".to_string(),
    );
    outer.widened_to_hold(inner)
}

impl Topology {
    /// Reads the machine under `root` (`/` for the live one). Whatever is missing or contradictory
    /// below the list of CPUs gets a fallback and a note, never an error.
    pub fn read(root: &Path) -> Result<Self, ReadError> {
        let mut files = Files::new(root);
        // First, so that a change during the rest is seen.
        let hotplug_seq =
            files.number(sched_ext::HOTPLUG_SEQ).and_then(|seq| u64::try_from(seq).ok());
        let Some(Masks { possible, present, online }) = masks(&mut files) else {
            return Err(ReadError { root: root.to_path_buf() });
        };
        let files = &mut files;
        let width = online.width();
        let optional = |files: &mut Files, path: &str| {
            let text = files.read(path).unwrap_or_default();
            // Without any, kernels print an empty line or `(null)`.
            let text = text.trim();
            let text = if text == "(null)" { "" } else { text };
            files.parse_cpulist(path, text, width).unwrap_or_else(|| Cpumask::new(width))
        };
        let mut isolated = optional(files, &format!("{CPU_DIR}/isolated"));
        isolated.or_assign(&optional(files, "sys/fs/cgroup/cpuset.cpus.isolated"));
        let nohz_full = optional(files, &format!("{CPU_DIR}/nohz_full"));
        let partitions = cpusets::partitions(files, width);
        let platform = Platform::read(files);
        let nodes = nodes::read(files, &online, &platform);
        let node_of = |cpu: CpuId| nodes.of(cpu);
        let CpuParts { packages, cores, clusters, capacity } = cpus::read(files, &online, node_of);
        let caches = caches::read(files, &online, &cores, node_of);

        let cores = cut(files, "core", cores, node_of);
        let clusters = if clusters.is_empty() { caches.l2.clone() } else { clusters };
        let clusters = complete(clusters, &cores, &online);
        let clusters = cut(files, "cluster", clusters, node_of);
        let clusters = nest(files, "cores and clusters", &cores, clusters);
        let llcs = cut(files, "last-level cache", caches.llcs, node_of);
        let llcs = nest(files, "clusters and last-level caches", &clusters, llcs);

        Ok(Self {
            width,
            possible,
            present,
            isolated,
            partitions,
            nohz_full,
            packages,
            cores,
            clusters,
            l2: caches.l2,
            l3: caches.l3,
            llcs,
            llc_size_kib: caches.llc_size_kib,
            node_of: nodes.node_of,
            nodes: nodes.nodes,
            capacity,
            platform,
            hotplug_seq,
            notes: std::mem::replace(files, Files::new(root)).into_notes(),
            online,
        })
    }
}

/// CPUs that `sets` leaves out get a set with their core.
fn complete(sets: Partition, cores: &Partition, online: &Cpumask) -> Partition {
    Partition::by_key(
        online.width(),
        online.iter().map(|cpu| {
            let key = match sets.of(cpu) {
                Some(set) => (0, set),
                None => (1, cores.of(cpu).unwrap_or(usize::MAX)),
            };
            (cpu, key)
        }),
    )
}
