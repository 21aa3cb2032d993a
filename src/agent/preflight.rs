//! Refuses to start where the scheduler cannot run, in one sentence that says what to do.

use crate::preflight::{Verdict, inspect};
use anyhow::{Result, bail};
use std::path::Path;

/// Checks what loading would otherwise fail on with a bare errno.
pub fn preflight() -> Result<()> {
    let report = inspect(Path::new("/"));
    for finding in &report.findings {
        let remedy = finding.remedy.as_deref().unwrap_or_default();
        match finding.verdict {
            Verdict::Ok => log::debug!("{}: {}", finding.what, finding.found),
            Verdict::Warning => {
                log::warn!("{}: {}; {remedy}", finding.what, finding.found);
            }
            Verdict::Missing => bail!("{}: {}; {remedy}", finding.what, finding.found),
        }
    }
    Ok(())
}
