//! `baton sim merge`: the parts of a sharded sweep as one table.

use super::sweep::{Sweep, read, table};
use crate::cli::output;
use anyhow::{Result, bail};
use std::path::PathBuf;

/// Options of `baton sim merge`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What each part printed
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Merges; `false` if points are missing.
pub(super) fn run(args: &Args) -> Result<bool> {
    let mut whole: Option<Sweep> = None;
    for file in &args.files {
        let part = read(file)?;
        match &mut whole {
            None => whole = Some(part),
            Some(sweep) if sweep.total != part.total => {
                bail!("{} is of another sweep than {}", file.display(), args.files[0].display());
            }
            Some(sweep) => sweep.points.extend(part.points),
        }
    }
    let Some(mut sweep) = whole else { return Ok(false) };
    sweep.points.sort_by_key(|p| p.index);
    if let Some(pair) = sweep.points.windows(2).find(|p| p[0].index == p[1].index) {
        bail!("two of the files hold point {} of the sweep", pair[0].index);
    }
    if args.json {
        output::print_json(&sweep)?;
    } else {
        output::print(&table(&sweep))?;
    }
    let missing = sweep.total - sweep.points.len().min(sweep.total);
    if missing > 0 {
        eprintln!("{missing} of {} points are missing", sweep.total);
    }
    Ok(missing == 0)
}
