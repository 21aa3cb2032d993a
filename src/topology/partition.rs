//! Disjoint sets of CPUs: cores, clusters, caches, packages.

use crate::cpumask::Cpumask;
use crate::units::CpuId;
use serde::Serialize;
use std::collections::BTreeMap;

const NONE: u32 = u32::MAX;

/// Disjoint, non-empty sets ("parts") of CPUs, numbered from 0 in the order of their lowest CPU.
///
/// Members are kept as lists, not masks: 8,192 one-CPU parts cost kilobytes, not megabytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    part_of: Vec<u32>,
    parts: Vec<Vec<CpuId>>,
}

/// As the list of its parts, each a CPU list.
impl Serialize for Partition {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.len()).map(|part| self.mask(part)))
    }
}

impl Partition {
    /// The CPUs with equal keys form a part. `width`: number of CPU ids.
    pub fn by_key<K: Ord>(width: usize, cpus: impl IntoIterator<Item = (CpuId, K)>) -> Self {
        let mut parts: BTreeMap<K, Vec<CpuId>> = BTreeMap::new();
        for (cpu, key) in cpus {
            parts.entry(key).or_default().push(cpu);
        }
        Self::from_parts(width, parts.into_values().collect())
    }

    fn from_parts(width: usize, mut parts: Vec<Vec<CpuId>>) -> Self {
        for part in &mut parts {
            part.sort_unstable();
        }
        parts.sort_unstable();
        let mut part_of = vec![NONE; width];
        for (i, part) in parts.iter().enumerate() {
            for cpu in part {
                part_of[cpu.index()] = i as u32;
            }
        }
        Self { part_of, parts }
    }

    /// Number of CPU ids it ranges over.
    pub fn width(&self) -> usize {
        self.part_of.len()
    }

    /// Number of parts.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there is no part at all.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The part a CPU belongs to; `None` for a CPU in no part.
    pub fn of(&self, cpu: CpuId) -> Option<usize> {
        self.part_of.get(cpu.index()).filter(|&&p| p != NONE).map(|&p| p as usize)
    }

    /// The CPUs of a part in rising order.
    pub fn members(&self, part: usize) -> &[CpuId] {
        &self.parts[part]
    }

    /// The CPUs of a part as a mask.
    pub fn mask(&self, part: usize) -> Cpumask {
        Cpumask::from_cpus(self.width(), self.parts[part].iter().copied())
    }

    /// The CPUs that share the CPU's part, itself included; empty for a CPU in no part.
    pub fn peers(&self, cpu: CpuId) -> &[CpuId] {
        self.of(cpu).map_or(&[], |part| self.members(part))
    }

    /// All parts in order.
    pub fn iter(&self) -> impl Iterator<Item = &[CpuId]> {
        self.parts.iter().map(Vec::as_slice)
    }

    /// CPUs in the largest part; 0 if there is none.
    pub fn largest(&self) -> usize {
        self.parts.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn cpus(&self) -> impl Iterator<Item = (CpuId, usize)> {
        self.part_of
            .iter()
            .enumerate()
            .filter(|&(_, &part)| part != NONE)
            .map(|(cpu, &part)| (CpuId::from(cpu), part as usize))
    }

    /// Cut so that all members of a part have the same `key`.
    pub fn cut_by<K: Ord>(&self, key: impl Fn(CpuId) -> K) -> Self {
        Self::by_key(self.width(), self.cpus().map(|(cpu, part)| (cpu, (part, key(cpu)))))
    }

    /// Without the CPUs outside `mask`; parts that become empty vanish.
    pub fn restricted_to(&self, mask: &Cpumask) -> Self {
        Self::by_key(self.width(), self.cpus().filter(|&(cpu, _)| mask.test(cpu)))
    }

    /// Parts merged where needed so that each part of `inner` lies in one part (kernel: the
    /// "arch topology borken" fix-up in `build_sched_domain`, made symmetric).
    pub fn widened_to_hold(&self, inner: &Self) -> Self {
        let mut root: Vec<usize> = (0..self.len()).collect();
        fn find(root: &mut [usize], mut i: usize) -> usize {
            while root[i] != i {
                root[i] = root[root[i]];
                i = root[i];
            }
            i
        }
        for members in inner.iter() {
            let mut parts = members.iter().filter_map(|&cpu| self.of(cpu));
            let Some(first) = parts.next() else { continue };
            for part in parts {
                let (a, b) = (find(&mut root, first), find(&mut root, part));
                root[a.max(b)] = a.min(b);
            }
        }
        Self::by_key(self.width(), self.cpus().map(|(cpu, part)| (cpu, find(&mut root, part))))
    }

    /// Whether each part lies inside one part of `outer`.
    pub fn is_inside(&self, outer: &Self) -> bool {
        self.iter().all(|part| {
            let home = outer.of(part[0]);
            home.is_some() && part.iter().all(|&cpu| outer.of(cpu) == home)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(keys: &[u32]) -> Partition {
        Partition::by_key(keys.len(), keys.iter().enumerate().map(|(c, &k)| (CpuId::from(c), k)))
    }

    #[test]
    fn parts_are_numbered_by_lowest_cpu_whatever_the_keys() {
        let p = by(&[9, 9, 1, 1, 5]);
        assert_eq!(p, by(&[0, 0, 7, 7, 8]));
        assert_eq!(p.of(CpuId(0)), Some(0));
        assert_eq!(p.members(1), [CpuId(2), CpuId(3)]);
        assert_eq!(p.peers(CpuId(99)), []);
    }

    #[test]
    fn cutting_and_widening() {
        let llc = by(&[0, 0, 0, 0]);
        let cut = llc.cut_by(|cpu| cpu.0 / 2);
        assert_eq!(cut, by(&[0, 0, 1, 1]));
        assert!(cut.is_inside(&llc) && !llc.is_inside(&cut));
        // A core over CPUs 1 and 2 forces both halves together again.
        assert_eq!(cut.widened_to_hold(&by(&[0, 1, 1, 2])), llc);
        let only = Cpumask::parse_list("1,3", 4).unwrap();
        assert_eq!(cut.restricted_to(&only).of(CpuId(0)), None);
    }
}
