//! `baton sim reproduce`.

use crate::cli::output;
use crate::sim::reproduce::{NAMES, Size, reproduce};
use anyhow::{Result, anyhow};

/// Options of `baton sim reproduce`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which result
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    name: String,
    /// On a machine small enough for a test: direction and factor only
    #[arg(long)]
    small: bool,
}

/// Repeats a result; `false` if it was not repeated.
pub(super) fn run(args: &Args) -> Result<bool> {
    let size = if args.small { Size::Small } else { Size::Full };
    let result = reproduce(&args.name, size)
        .ok_or_else(|| anyhow!("there is no reproduction `{}`", args.name))?;
    output::print(&result.text())?;
    Ok(result.holds())
}
