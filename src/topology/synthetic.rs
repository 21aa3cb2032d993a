//! A machine in one line, for tests and the simulator.
//!
//! ```text
//! MACHINE = SHAPE { OPTION }  |  PRESET { OPTION }      separated by blanks or `;`
//! SHAPE   = [[PACKAGES x] NODES-PER-PACKAGE x] CORES    `2x3x40`; `2x40` = 2 packages of 1 node
//! CORES   = LIST, dealt to the nodes in turn            `1x2x2+6` = nodes of 2 and 6 cores
//! LIST    = ITEM { + ITEM }, ITEM = [TIMES *] NUMBER    `6*2+8*1`; repeats until it is used up
//! ```
//!
//! | option | meaning | default |
//! | --- | --- | --- |
//! | `smt=LIST` | hardware threads of each core of a node | 1 |
//! | `llc=LIST` | cores of each last-level cache of a node | the node's |
//! | `cluster=LIST` | cores of each cluster (L2 cache) of a node | 1 |
//! | `capacity=LIST` | capacity of each core of a node, 1 to 1024 | 1024 |
//! | `cache=SIZE` | size of a last-level cache: `32M`, `512K` | unknown |
//! | `dist=LOCAL,REMOTE` or `LOCAL,NEAR,FAR` | distances: own node, same package, other package | 10,20 |
//! | `dist=ROW/ROW/…` | the whole matrix, row by row, 0 to 255 | |
//! | `memless=NODES` | nodes without memory: `1,3` | none |
//! | `memonly=N` | that many further nodes with memory only | 0 |
//! | `order=last` | CPU numbers: second threads after all first ones (x86) | yes |
//! | `order=next` | threads of a core next to each other | |
//! | `order=spread` | cores dealt to the nodes in turn, second threads last | |
//! | `stride=N` | every N-th CPU number is used, the others are holes | 1 |
//! | `offline=CPUS`, `isolated=CPUS` | CPU lists: `0-3,8` | none |
//! | `arch=x86` or `other` | whose table of levels applies | x86 |
//! | `slit=averaged` or `plain` | whether far distances are averaged, as on Granite Rapids | plain |
//! | `reclaim=N` | distance beyond which NUMA levels place no new tasks | 30 |
//! | `itmt=on` or `off` | whether CPUs have priorities for packing | off |
//!
//! A later option replaces an earlier one, so that `genoa-nps4 smt=1` is that preset without SMT.

use super::machine::{CpuSpec, Machine, NodeSpec};
use super::{LOCAL_DISTANCE, MAX_CPUS, Platform, REMOTE_DISTANCE, Topology, presets};
use crate::cpumask::Cpumask;
use crate::units::{Capacity, CpuId, NodeId};
use std::collections::BTreeMap;
use std::fmt;

/// Most nodes that a description may have.
const MAX_NODES: usize = 1_024;

/// What is wrong with a description, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

fn bad<T>(message: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(message.into()))
}

fn number(text: &str, what: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, SpecError> {
    match text.parse() {
        Ok(n) if range.contains(&n) => Ok(n),
        _ => bad(format!(
            "{what}: `{text}` is not a number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

/// `6*2+8*1`, spelled out.
fn list(text: &str, what: &str, max: u64) -> Result<Vec<u64>, SpecError> {
    let mut values = Vec::new();
    for item in text.split('+') {
        let (times, value) = item.split_once('*').unwrap_or(("1", item));
        let times = number(times, what, 1..=MAX_CPUS as u64)?;
        let value = number(value, what, 1..=max)?;
        if values.len() + times as usize > MAX_CPUS {
            return bad(format!("{what}: more than {MAX_CPUS} entries"));
        }
        values.extend(std::iter::repeat_n(value, times as usize));
    }
    Ok(values)
}

struct Spec {
    packages: usize,
    nodes_per_package: usize,
    cores: Vec<u64>,
    options: BTreeMap<String, String>,
}

const OPTIONS: &[&str] = &[
    "smt", "llc", "cluster", "capacity", "cache", "dist", "memless", "memonly", "order", "stride",
    "offline", "isolated", "arch", "slit", "reclaim", "itmt",
];

impl Spec {
    fn parse(text: &str) -> Result<Self, SpecError> {
        let mut words = text.split([' ', '\t', '\n', ';']).filter(|w| !w.is_empty());
        let Some(first) = words.next() else {
            return bad("an empty description; write a shape such as `2x3x40` or a preset's name");
        };
        if let Some(preset) = presets::find(first) {
            let rest: Vec<&str> = words.collect();
            return Self::parse(&format!("{} {}", preset.spec, rest.join(" ")));
        }
        if !first.starts_with(|c: char| c.is_ascii_digit()) {
            let names: Vec<&str> = presets::PRESETS.iter().map(|p| p.name).collect();
            return bad(format!(
                "`{first}` is neither a shape such as `2x3x40` nor one of the presets {}",
                names.join(", ")
            ));
        }
        let mut parts: Vec<&str> = first.split('x').collect();
        let cores = list(parts.pop().unwrap_or_default(), "cores", MAX_CPUS as u64)?;
        let counts = parts
            .iter()
            .map(|n| number(n, "packages and nodes", 1..=MAX_NODES as u64).map(|n| n as usize))
            .collect::<Result<Vec<_>, _>>()?;
        let (packages, nodes_per_package) = match counts[..] {
            [] => (1, 1),
            [packages] => (packages, 1),
            [packages, nodes] => (packages, nodes),
            _ => return bad(format!("`{first}` has more than packages x nodes x cores")),
        };
        if packages * nodes_per_package > MAX_NODES {
            return bad(format!("`{first}` has more than {MAX_NODES} nodes"));
        }
        let mut options = BTreeMap::new();
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return bad(format!("`{word}` is not an option of the form key=value"));
            };
            if !OPTIONS.contains(&key) {
                return bad(format!(
                    "there is no option `{key}`; there are {}",
                    OPTIONS.join(", ")
                ));
            }
            options.insert(key.to_string(), value.to_string());
        }
        Ok(Self { packages, nodes_per_package, cores, options })
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    fn nr_nodes(&self) -> usize {
        self.packages * self.nodes_per_package
    }

    /// One of a few words; the first is the default.
    fn choice(&self, key: &str, words: &[&str]) -> Result<usize, SpecError> {
        let Some(value) = self.get(key) else { return Ok(0) };
        match words.iter().position(|w| *w == value) {
            Some(at) => Ok(at),
            None => bad(format!("{key}: `{value}` is none of {}", words.join(", "))),
        }
    }

    fn values(&self, key: &str, default: u64, max: u64) -> Result<Vec<u64>, SpecError> {
        self.get(key).map_or_else(|| Ok(vec![default]), |text| list(text, key, max))
    }

    /// Sizes of the sets that a node's cores are divided into, as the set number of each core.
    fn sets(&self, key: &str, cores: usize, default: usize) -> Result<Vec<u32>, SpecError> {
        let sizes = self.values(key, default as u64, MAX_CPUS as u64)?;
        let mut set_of = Vec::with_capacity(cores);
        for (set, size) in sizes.iter().cycle().enumerate() {
            if set_of.len() >= cores {
                break;
            }
            set_of.extend(std::iter::repeat_n(set as u32, *size as usize));
        }
        if set_of.len() != cores {
            return bad(format!("{key}: sets of these sizes do not fill a node of {cores} cores"));
        }
        Ok(set_of)
    }

    fn distances(&self, nr: usize) -> Result<Vec<Vec<u32>>, SpecError> {
        let text = self.get("dist").unwrap_or_default();
        let row = |row: &str| {
            row.split(',').map(|d| number(d, "dist", 0..=255).map(|d| d as u32)).collect()
        };
        if text.contains('/') || (nr == 1 && !text.is_empty() && !text.contains(',')) {
            let rows = text.split('/').map(row).collect::<Result<Vec<Vec<u32>>, _>>()?;
            if rows.len() != nr || rows.iter().any(|row| row.len() != nr) {
                return bad(format!("dist: not {nr} rows of {nr} distances"));
            }
            return Ok(rows);
        }
        let (local, near, far) = if text.is_empty() {
            (LOCAL_DISTANCE, REMOTE_DISTANCE, REMOTE_DISTANCE)
        } else {
            match row(text)?[..] {
                [local, remote] => (local, remote, remote),
                [local, near, far] => (local, near, far),
                _ => {
                    return bad(format!(
                        "dist: `{text}` is neither LOCAL,REMOTE nor LOCAL,NEAR,FAR nor a matrix"
                    ));
                }
            }
        };
        let package = |node: usize| node / self.nodes_per_package;
        let distance = |a: usize, b: usize| match (a == b, package(a) == package(b)) {
            (true, _) => local,
            (_, true) => near,
            _ => far,
        };
        Ok((0..nr).map(|a| (0..nr).map(|b| distance(a, b)).collect()).collect())
    }

    fn nodes(&self) -> Result<Vec<NodeSpec>, SpecError> {
        let memory_only = match self.get("memonly") {
            Some(n) => number(n, "memonly", 0..=MAX_NODES as u64)? as usize,
            None => 0,
        };
        let nr = self.nr_nodes() + memory_only;
        let memless = match Cpumask::parse_list(self.get("memless").unwrap_or_default(), nr) {
            Ok(nodes) => nodes,
            Err(_) => return bad(format!("memless: not a list of nodes below {nr}")),
        };
        let rows = self.distances(nr)?.into_iter().enumerate();
        Ok(rows
            .map(|(n, distances)| NodeSpec {
                id: NodeId::from(n),
                has_memory: !memless.test(CpuId::from(n)),
                distances,
            })
            .collect())
    }

    fn cpus(&self) -> Result<Vec<CpuSpec>, SpecError> {
        struct Core {
            rank: (usize, usize),
            threads: u64,
            cpu: CpuSpec,
        }
        let order = self.choice("order", &["last", "next", "spread"])?;
        let stride = self.get("stride").map_or(Ok(1), |n| number(n, "stride", 1..=64))?;
        let smt = self.values("smt", 1, 64)?;
        let capacity = self.values("capacity", Capacity::SCALE.0, Capacity::SCALE.0)?;
        let mut cores: Vec<Core> = Vec::new();
        let (mut next_cluster, mut next_llc) = (0, 0);
        for node in 0..self.nr_nodes() {
            let nr_cores = self.cores[node % self.cores.len()] as usize;
            let llcs = self.sets("llc", nr_cores, nr_cores)?;
            let clusters = self.sets("cluster", nr_cores, 1)?;
            for i in 0..nr_cores {
                cores.push(Core {
                    rank: if order == 2 { (i, node) } else { (node, i) },
                    threads: smt[i % smt.len()],
                    cpu: CpuSpec {
                        cpu: CpuId(0),
                        node,
                        package: (node / self.nodes_per_package) as u32,
                        core: cores.len() as u32,
                        cluster: next_cluster + clusters[i],
                        llc: next_llc + llcs[i],
                        capacity: Capacity(capacity[i % capacity.len()]),
                    },
                });
                if cores.len() * stride as usize > MAX_CPUS {
                    return bad(format!("more than {MAX_CPUS} CPU numbers"));
                }
            }
            next_cluster += nr_cores as u32;
            next_llc += nr_cores as u32;
        }
        cores.sort_by_key(|core| core.rank);
        let thread = |t: u64, core: &Core| (t < core.threads).then_some(core.cpu);
        let most = smt.iter().copied().max().unwrap_or(1);
        let mut cpus: Vec<CpuSpec> = if order == 1 {
            cores.iter().flat_map(|core| (0..most).filter_map(|t| thread(t, core))).collect()
        } else {
            let cores = &cores;
            (0..most).flat_map(|t| cores.iter().filter_map(move |core| thread(t, core))).collect()
        };
        if cpus.len() * stride as usize > MAX_CPUS {
            return bad(format!("more than {MAX_CPUS} CPU numbers"));
        }
        for (i, cpu) in cpus.iter_mut().enumerate() {
            cpu.cpu = CpuId((i * stride as usize) as u32);
        }
        Ok(cpus)
    }

    fn platform(&self) -> Result<Platform, SpecError> {
        let base = [Platform::X86, Platform::OTHER][self.choice("arch", &["x86", "other"])?];
        let reclaim = self.get("reclaim").map(|n| number(n, "reclaim", 0..=255)).transpose()?;
        Ok(Platform {
            reclaim_distance: reclaim.map_or(base.reclaim_distance, |n| n as u32),
            averages_remote_distances: self.choice("slit", &["plain", "averaged"])? == 1,
            asym_packing: self.choice("itmt", &["off", "on"])? == 1,
            ..base
        })
    }

    fn mask(&self, key: &str, width: usize) -> Result<Cpumask, SpecError> {
        Cpumask::parse_list(self.get(key).unwrap_or_default(), width)
            .map_err(|e| SpecError(format!("{key}: {e}")))
    }
}

/// The machine described, with all CPUs online; `offline=` and `isolated=` are not applied.
pub fn machine(spec: &str) -> Result<Machine, SpecError> {
    Spec::parse(spec)?.machine()
}

impl Spec {
    fn machine(&self) -> Result<Machine, SpecError> {
        let llc_size_kib = match self.get("cache") {
            Some(size) => Some(super::caches::kib(size).ok_or_else(|| {
                SpecError(format!("cache: `{size}` is not a size such as 32M or 512K"))
            })?),
            None => None,
        };
        Ok(Machine {
            cpus: self.cpus()?,
            nodes: self.nodes()?,
            llc_size_kib,
            platform: self.platform()?,
        })
    }
}

/// The topology described.
pub fn parse(spec: &str) -> Result<Topology, SpecError> {
    let spec = Spec::parse(spec)?;
    let all = spec.machine()?.topology();
    let online = all.online.and_not(&spec.mask("offline", all.width)?);
    if online.is_empty() {
        return bad("offline: no CPU is left");
    }
    Ok(all.with_online(&online).with_isolated(&spec.mask("isolated", all.width)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_uneven_parts() {
        let t = parse("1x2x2+6 smt=2").unwrap();
        assert_eq!(t.online.weight(), 16);
        assert_eq!(t.nodes[0].cpus.to_string(), "0-1,8-9");
        assert_eq!(t.nodes[1].cpus.to_string(), "2-7,10-15");
        assert_eq!((t.packages.len(), t.cores.len(), t.llcs.len()), (1, 8, 2));
        assert_eq!(parse("8").unwrap().nodes.len(), 1);
        assert_eq!(parse("2x4").unwrap().packages.len(), 2);
    }

    #[test]
    fn numbering() {
        let core0 = |spec: &str| format!("{:?}", parse(spec).unwrap().cores.mask(0));
        assert!(core0("2x2 smt=2").contains("0,4"));
        assert!(core0("2x2 smt=2 order=next").contains("0-1"));
        assert_eq!(parse("2x2 order=spread").unwrap().nodes[0].cpus.to_string(), "0,2");
        assert_eq!(parse("1x4 stride=2").unwrap().online.to_string(), "0,2,4,6");
    }

    #[test]
    fn hybrid_lists() {
        let t = parse("laptop-hybrid").unwrap();
        assert_eq!((t.online.weight(), t.cores.len(), t.clusters.len()), (20, 14, 8));
        assert_eq!((t.capacity(CpuId(0)).0, t.capacity(CpuId(19)).0), (1024, 640));
    }

    #[test]
    fn every_preset_parses_and_takes_options() {
        for preset in presets::PRESETS {
            assert!(parse(preset.name).is_ok(), "{}", preset.name);
        }
        assert_eq!(parse("genoa-nps4 smt=1").unwrap().online.weight(), 192);
        assert_eq!(parse("power10").unwrap().online.weight(), 480);
    }

    #[test]
    fn mistakes_are_named() {
        for (spec, part) in [
            ("", "empty"),
            ("epyc", "presets"),
            ("0x4", "packages"),
            ("1x1x1x1", "more than packages"),
            ("99999999", "cores"),
            ("1024x1024x1", "nodes"),
            ("4 smt", "key=value"),
            ("4 smd=2", "no option `smd`"),
            ("4 smt=0", "smt"),
            ("10 llc=4", "do not fill"),
            ("2x2 dist=10", "dist"),
            ("2x2 dist=10,20/20,10,10", "dist"),
            ("2x2 dist=10,300", "dist"),
            ("2x2 memless=7", "memless"),
            ("4 offline=0-3", "no CPU is left"),
            ("4 offline=9", "offline"),
            ("4 order=odd", "order"),
            ("4 cache=big", "cache"),
            ("65536 smt=2", "CPU numbers"),
        ] {
            let error = parse(spec).unwrap_err().to_string();
            assert!(error.contains(part), "{spec}: {error}");
        }
    }
}
