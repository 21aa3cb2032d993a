//! cpuset partitions: CPUs that the kernel balances apart from the rest.

use super::files::Files;
use crate::cpumask::Cpumask;

const CGROUP_DIR: &str = "sys/fs/cgroup";
/// Deepest nesting and most cgroups that are looked at; beyond, a stray tree is not followed.
const MAX_DEPTH: u32 = 8;
const MAX_CGROUPS: usize = 4_096;

/// The CPUs of each partition of type `root` below the root cgroup, disjoint (kernel:
/// `generate_sched_domains`). Isolated partitions are known by another file.
pub(super) fn partitions(files: &mut Files, width: usize) -> Vec<Cpumask> {
    let mut found = Vec::new();
    let mut seen = 0;
    let mut taken = Cpumask::new(width);
    let mut open = vec![(CGROUP_DIR.to_string(), 0)];
    while let Some((dir, depth)) = open.pop() {
        for child in files.directories(&dir) {
            let child = format!("{dir}/{child}");
            // Absent where the cpuset controller is not enabled; then nothing below has it.
            let Some(kind) = files.read(&format!("{child}/cpuset.cpus.partition")) else {
                continue;
            };
            seen += 1;
            if seen > MAX_CGROUPS {
                let consequence = format!("only the first {MAX_CGROUPS} are looked at");
                files.note(CGROUP_DIR, "very many cgroups with a cpuset", consequence);
                return found;
            }
            // An invalid partition says `root invalid (reason)`.
            if kind.trim() == "root"
                && let Some(cpus) = files.cpulist(&format!("{child}/cpuset.cpus.effective"), width)
            {
                let cpus = cpus.and_not(&taken);
                taken.or_assign(&cpus);
                if !cpus.is_empty() {
                    found.push(cpus);
                }
            }
            if depth < MAX_DEPTH {
                open.push((child, depth + 1));
            }
        }
    }
    found.sort_unstable();
    found
}
