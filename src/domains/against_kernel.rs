//! The tree compared with the kernel's own answer, `/proc/schedstat`.
//!
//! Version 17 prints each CPU's domains by name and span; versions before it print the span
//! alone, and then only spans are compared.

use super::DomainTree;
use crate::cpumask::Cpumask;
use crate::topology::MAX_CPUS;
use crate::units::CpuId;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// One domain as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Its name; `None` from kernels that print none.
    pub name: Option<String>,
    /// Its span as a CPU list.
    pub span: String,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name.as_deref().unwrap_or("?"), self.span)
    }
}

/// What `/proc/schedstat` says about domains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelDomains {
    /// Version of the file's format.
    pub version: u32,
    /// Each CPU's domains, narrow to wide.
    pub chains: BTreeMap<CpuId, Vec<Level>>,
}

/// One place where the tree and the kernel disagree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The CPU.
    pub cpu: CpuId,
    /// Position in the CPU's chain, from 0.
    pub level: usize,
    /// What the tree has there.
    pub ours: Option<Level>,
    /// What the kernel has there.
    pub kernel: Option<Level>,
}

/// Why `/proc/schedstat` could not be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Line number from 1.
    pub line: usize,
    /// The line's beginning.
    pub text: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is not as expected: `{}`", self.line, self.text)
    }
}

impl std::error::Error for ParseError {}

/// Whether this is a mask as `%*pb` prints it; no level's name looks like that.
fn is_mask(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b) || b == b',')
}

fn level(words: &[&str]) -> Option<Level> {
    let (name, mask) = match words {
        [mask, ..] if is_mask(mask) => (None, mask),
        [name, mask, ..] if is_mask(mask) => (Some(name.to_string()), mask),
        _ => return None,
    };
    let width = mask.split(',').count() * 32;
    let span = Cpumask::parse_hex(mask, width).ok()?;
    Some(Level { name, span: span.to_string() })
}

/// Reads the text of `/proc/schedstat`.
pub fn parse_schedstat(text: &str) -> Result<KernelDomains, ParseError> {
    let mut parsed = KernelDomains::default();
    let mut cpu = None;
    for (i, line) in text.lines().enumerate() {
        let error = || ParseError { line: i + 1, text: line.chars().take(60).collect() };
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((first, rest)) = words.split_first() else { continue };
        if *first == "version" {
            parsed.version = rest.first().and_then(|v| v.parse().ok()).ok_or_else(error)?;
        } else if let Some(id) = first.strip_prefix("cpu") {
            // Whatever claims more CPUs than a kernel can have is no schedstat.
            let id = id.parse().ok().filter(|&id| (id as usize) < MAX_CPUS);
            let id = CpuId(id.ok_or_else(error)?);
            parsed.chains.entry(id).or_default();
            cpu = Some(id);
        } else if first.starts_with("domain") {
            let level = level(rest).ok_or_else(error)?;
            let chain = cpu.and_then(|cpu| parsed.chains.get_mut(&cpu)).ok_or_else(error)?;
            chain.push(level);
        }
    }
    Ok(parsed)
}

/// All differences, by CPU and then level; empty when the tree equals the kernel's.
pub fn compare(tree: &DomainTree, kernel: &KernelDomains) -> Vec<Difference> {
    let mut differences = Vec::new();
    let ids = kernel.chains.keys().map(|cpu| cpu.index() + 1).max().unwrap_or(0);
    for cpu in (0..ids.max(tree.chains.len())).map(CpuId::from) {
        let chain = tree.chain(cpu);
        let theirs = kernel.chains.get(&cpu).map_or(&[][..], Vec::as_slice);
        for level in 0..chain.len().max(theirs.len()) {
            let ours = chain.get(level).map(|link| {
                let domain = tree.domain(link.domain);
                Level {
                    name: Some(domain.level.kernel_name().to_string()),
                    span: domain.span.to_string(),
                }
            });
            let kernel = theirs.get(level).cloned();
            let same = match (&ours, &kernel) {
                (Some(a), Some(b)) => a.span == b.span && (b.name.is_none() || a.name == b.name),
                _ => false,
            };
            if !same {
                differences.push(Difference { cpu, level, ours, kernel });
            }
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domains::build;
    use crate::topology::synthetic;

    const TWO_NODES: &str = "version 17\ntimestamp 4295\n\
        cpu0 0 0 0 0 0 0 1 2 3\ndomain0 MC 3 0 0\ndomain1 NUMA f 0 0\n\
        cpu1 0 0 0 0 0 0 1 2 3\ndomain0 MC 3 0 0\ndomain1 NUMA f 0 0\n\
        cpu2 0 0 0 0 0 0 1 2 3\ndomain0 MC c 0 0\ndomain1 NUMA f 0 0\n\
        cpu3 0 0 0 0 0 0 1 2 3\ndomain0 MC c 0 0\ndomain1 NUMA f 0 0\n";

    fn tree(spec: &str) -> DomainTree {
        build(&synthetic::parse(spec).unwrap()).tree
    }

    #[test]
    fn equal_trees_have_no_difference() {
        let kernel = parse_schedstat(TWO_NODES).unwrap();
        assert_eq!(kernel.version, 17);
        assert_eq!(compare(&tree("2x2"), &kernel), []);
    }

    #[test]
    fn differences_are_data() {
        let kernel = parse_schedstat(&TWO_NODES.replace("MC c", "PKG c")).unwrap();
        let found = compare(&tree("2x2"), &kernel);
        assert_eq!(found.iter().map(|d| (d.cpu.0, d.level)).collect::<Vec<_>>(), [(2, 0), (3, 0)]);
        assert_eq!(found[0].ours.as_ref().unwrap().to_string(), "MC 2-3");
        assert_eq!(found[0].kernel.as_ref().unwrap().to_string(), "PKG 2-3");
        // A CPU that only one side knows is a difference at each of its levels.
        let kernel = parse_schedstat(TWO_NODES).unwrap();
        assert_eq!(compare(&tree("2x2 offline=3"), &kernel).len(), 6);
    }

    #[test]
    fn older_kernels_print_no_names() {
        let text =
            TWO_NODES.replace("version 17", "version 15").replace("MC ", "").replace("NUMA ", "");
        assert_eq!(compare(&tree("2x2"), &parse_schedstat(&text).unwrap()), []);
    }

    #[test]
    fn garbage_is_refused_with_its_line() {
        for text in [
            "version x",
            "cpuX 1",
            "cpu4294967295 1",
            "domain0 MC 3",
            "cpu0 1\ndomain0 MC",
            "cpu0\ndomain0 MC Z",
        ] {
            assert!(parse_schedstat(text).is_err(), "{text}");
        }
    }
}
