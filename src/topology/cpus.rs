//! Cores, clusters, packages and capacities, from `cpuN/topology` and `cpuN/cpu_capacity`.

use super::files::Files;
use super::lists::Lists;
use super::partition::Partition;
use crate::cpumask::Cpumask;
use crate::units::{Capacity, CpuId};

/// Where the kernel keeps its CPUs.
pub(super) const CPU_DIR: &str = "sys/devices/system/cpu";

pub(super) struct CpuParts {
    pub(super) packages: Partition,
    pub(super) cores: Partition,
    /// As `cluster_cpus` says; CPUs that state none are in no part.
    pub(super) clusters: Partition,
    pub(super) capacity: Vec<Capacity>,
}

/// Uses the first of `names` below `cpuN/topology` that holds a usable list.
fn from_lists(files: &mut Files, lists: &mut Lists, cpu: CpuId, names: &[&str]) -> bool {
    names.iter().any(|name| {
        let path = format!("{CPU_DIR}/cpu{cpu}/topology/{name}");
        files.read(&path).is_some_and(|text| lists.add(files, cpu, &path, &text))
    })
}

/// A signed id below `cpuN/topology`; −1 is how firmware says that it does not know.
fn id(files: &mut Files, cpu: CpuId, name: &str) -> Option<i64> {
    let path = format!("{CPU_DIR}/cpu{cpu}/topology/{name}");
    let id = files.number(&path)?;
    (id >= 0).then_some(id)
}

pub(super) fn read(
    files: &mut Files,
    online: &Cpumask,
    node_of: impl Fn(CpuId) -> Option<u32>,
) -> CpuParts {
    let mut packages = Lists::new("packages", online);
    let mut cores = Lists::new("cores", online);
    let mut clusters = Lists::new("clusters", online);
    let mut capacity = vec![Capacity::SCALE; online.width()];
    let mut without_capacity = 0;

    for cpu in online.iter() {
        let dir = format!("{CPU_DIR}/cpu{cpu}/topology");
        const PACKAGE: [&str; 4] =
            ["package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings"];
        if !from_lists(files, &mut packages, cpu, &PACKAGE) {
            match id(files, cpu, "physical_package_id") {
                Some(package) => packages.add_key(cpu, &format!("id{package}")),
                None => {
                    let node = node_of(cpu).unwrap_or(0);
                    packages.add_key(cpu, &format!("node{node}"));
                    files.note(&dir, "no package", "one package per node is assumed".to_string());
                }
            }
        }
        const CORE: [&str; 4] =
            ["core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings"];
        if !from_lists(files, &mut cores, cpu, &CORE) {
            match (id(files, cpu, "core_id"), packages.get(cpu)) {
                (Some(core), Some(package)) => cores.add_key(cpu, &format!("{package}/{core}")),
                _ => {
                    cores.add_key(cpu, &format!("cpu{cpu}"));
                    let consequence = "each such CPU counts as a core of its own".to_string();
                    files.note(&dir, "no core", consequence);
                }
            }
        }
        if !from_lists(files, &mut clusters, cpu, &["cluster_cpus_list", "cluster_cpus"])
            && let (Some(cluster), Some(package)) =
                (id(files, cpu, "cluster_id"), packages.get(cpu))
        {
            clusters.add_key(cpu, &format!("{package}/{cluster}"));
        }
        match files.number(&format!("{CPU_DIR}/cpu{cpu}/cpu_capacity")) {
            // The kernel scales them so that the largest is full.
            Some(value) if (1..=Capacity::SCALE.0 as i64).contains(&value) => {
                capacity[cpu.index()] = Capacity(value as u64);
            }
            Some(_) => files.note(
                &format!("{CPU_DIR}/cpu{cpu}/cpu_capacity"),
                "not a capacity",
                "the CPU counts as a full one (1024)".to_string(),
            ),
            None => without_capacity += 1,
        }
    }
    if without_capacity > 0 {
        let what = if without_capacity == online.weight() { "missing" } else { "missing for some" };
        files.note(
            &format!("{CPU_DIR}/cpu*/cpu_capacity"),
            what,
            "those CPUs count as full ones (1024); a machine of unequal CPUs is treated as symmetric"
                .to_string(),
        );
    }
    CpuParts {
        packages: packages.finish(),
        cores: cores.finish(),
        clusters: clusters.finish(),
        capacity,
    }
}
