//! Caches, from `cpuN/cache/indexM`.

use super::cpus::CPU_DIR;
use super::files::Files;
use super::lists::Lists;
use super::partition::Partition;
use crate::cpumask::Cpumask;
use crate::units::CpuId;

/// Caches per CPU that are looked for; real machines have four or five.
const MAX_INDEX: u32 = 8;

pub(super) struct Caches {
    pub(super) l2: Partition,
    pub(super) l3: Partition,
    /// Each CPU's highest level, whatever that is; one set per node where nothing is stated.
    pub(super) llcs: Partition,
    pub(super) llc_size_kib: Option<u64>,
}

struct Cache {
    level: i64,
    dir: String,
}

/// A CPU's data and unified caches, nearest first.
fn caches_of(files: &mut Files, cpu: CpuId) -> Vec<Cache> {
    let mut found = Vec::new();
    for index in 0..MAX_INDEX {
        let dir = format!("{CPU_DIR}/cpu{cpu}/cache/index{index}");
        let Some(level) = files.number(&format!("{dir}/level")) else { continue };
        let kind = files.read(&format!("{dir}/type"));
        if kind.is_none_or(|kind| kind.trim() != "Instruction") {
            found.push(Cache { level, dir });
        }
    }
    found.sort_by_key(|cache| cache.level);
    found
}

/// Puts `cpu` where its cache says: the stated list, else the stated id, else alone with its core.
fn place(files: &mut Files, sets: &mut Lists, cpu: CpuId, cache: &Cache, core: usize) {
    for name in ["shared_cpu_list", "shared_cpu_map"] {
        let path = format!("{}/{name}", cache.dir);
        if let Some(text) = files.read(&path)
            && sets.add(files, cpu, &path, &text)
        {
            return;
        }
    }
    if let Some(id) = files.number(&format!("{}/id", cache.dir)).filter(|&id| id >= 0) {
        sets.add_key(cpu, &format!("L{} {id}", cache.level));
        return;
    }
    sets.add_key(cpu, &format!("core{core}"));
    let consequence = "that cache is taken to serve one core".to_string();
    files.note(&cache.dir, "neither shared_cpu_list nor id", consequence);
}

/// `size` as sysfs prints it: `32768K`.
pub(super) fn kib(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_suffix('M') {
        Some(number) => number.parse::<u64>().ok()?.checked_mul(1024),
        None => text.strip_suffix('K').unwrap_or(text).parse().ok(),
    }
}

pub(super) fn read(
    files: &mut Files,
    online: &Cpumask,
    cores: &Partition,
    node_of: impl Fn(CpuId) -> Option<u32>,
) -> Caches {
    let mut l2 = Lists::new("L2 caches", online);
    let mut l3 = Lists::new("L3 caches", online);
    let mut llcs = Lists::new("last-level caches", online);
    let mut llc_size_kib = None;
    let mut highest = 0;
    for cpu in online.iter() {
        let core = cores.of(cpu).unwrap_or(usize::MAX);
        let first = cores.peers(cpu).first().copied().unwrap_or(cpu);
        // Threads of one core share all its caches; reading them once halves the cost of SMT.
        if first != cpu && llcs.get(cpu).is_some() {
            continue;
        }
        let caches = caches_of(files, cpu);
        let Some(last) = caches.last() else {
            let node = node_of(cpu).unwrap_or(0);
            llcs.add_key(cpu, &format!("node{node}"));
            files.note(
                &format!("{CPU_DIR}/cpu{cpu}/cache"),
                "no cache information",
                "one last-level cache per node is assumed".to_string(),
            );
            continue;
        };
        highest = highest.max(last.level);
        if llcs.get(cpu).is_none() {
            let size = files.read(&format!("{}/size", last.dir)).and_then(|text| kib(&text));
            llc_size_kib = llc_size_kib.max(size);
        }
        place(files, &mut llcs, cpu, last, core);
        for (level, sets) in [(2, &mut l2), (3, &mut l3)] {
            if let Some(cache) = caches.iter().rev().find(|cache| cache.level == level) {
                place(files, sets, cpu, cache, core);
            }
        }
    }
    let llcs = llcs.finish();
    if highest >= 3 && llcs.len() > 1 && llcs.largest() == 1 {
        files.note(
            &format!("{CPU_DIR}/cpu*/cache"),
            "every CPU has a last-level cache of its own, which looks wrong (a virtual machine?)",
            "no level is built from shared caches".to_string(),
        );
    }
    Caches { l2: l2.finish(), l3: l3.finish(), llcs, llc_size_kib }
}
