//! `--against-kernel`: the comparison with `/proc/schedstat`, side by side.

use crate::domains::DomainTree;
use crate::domains::against_kernel::{Difference, Level, compare, parse_schedstat};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// Differences printed at most; a wrong level is wrong on every CPU.
const MOST_SHOWN: usize = 40;

/// Where the tree differs from the kernel's domains below `root`.
pub(super) fn differences(root: &Path, tree: &DomainTree) -> Result<Vec<Difference>> {
    let path = root.join("proc/schedstat");
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "--against-kernel: cannot read {}, which needs a kernel with CONFIG_SCHEDSTATS",
            path.display()
        )
    })?;
    let kernel = parse_schedstat(&text)
        .with_context(|| format!("--against-kernel: cannot understand {}", path.display()))?;
    Ok(compare(tree, &kernel))
}

/// The differences in two columns.
pub(super) fn text(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "\nThe kernel has the same domains on every CPU.\n".to_string();
    }
    let show = |level: &Option<Level>| level.as_ref().map_or("-".to_string(), Level::to_string);
    let shown = &differences[..differences.len().min(MOST_SHOWN)];
    let width = shown.iter().map(|d| show(&d.ours).len()).max().unwrap_or(0).max(10);
    let mut out = format!("\nDifferences from the kernel: {}\n", differences.len());
    let _ = writeln!(out, "  {:>5} {:>6}  {:width$}  kernel", "CPU", "level", "scx_baton");
    for d in shown {
        let (ours, kernel) = (show(&d.ours), show(&d.kernel));
        let _ = writeln!(out, "  {:>5} {:>6}  {ours:width$}  {kernel}", d.cpu, d.level);
    }
    if shown.len() < differences.len() {
        let _ = writeln!(out, "  and {} more; --json has all", differences.len() - shown.len());
    }
    out
}
