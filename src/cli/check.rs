//! `baton check`: what this machine lacks to run scx_baton.

use super::output;
use crate::preflight::{Finding, Report, Verdict, inspect};
use anyhow::Result;
use std::fmt::Write;
use std::path::PathBuf;

/// Options of `baton check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Look below DIR instead of / (a copy of /sys, /proc and the kernel's configuration)
    #[arg(long, value_name = "DIR", default_value = "/")]
    sysroot: PathBuf,

    /// Print JSON (its `version` field tells the form)
    #[arg(long)]
    json: bool,
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let width = report.findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    for Finding { what, verdict, found, remedy } in &report.findings {
        let mark = match verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Missing => "MISSING",
        };
        let _ = writeln!(out, "{mark:<8} {what:width$}  {found}");
        if let Some(remedy) = remedy {
            let _ = writeln!(out, "{:8} {:width$}  -> {remedy}", "", "");
        }
    }
    let missing = report.findings.iter().filter(|f| f.verdict == Verdict::Missing).count();
    let _ = match missing {
        0 => writeln!(out, "\nscx_baton will run here."),
        1 => writeln!(out, "\nscx_baton will not run here: 1 thing is missing."),
        n => writeln!(out, "\nscx_baton will not run here: {n} things are missing."),
    };
    out
}

/// Runs `baton check`; `true` if scx_baton will run.
pub fn run(args: &Args) -> Result<bool> {
    let report = inspect(&args.sysroot);
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(report.will_run)
}
