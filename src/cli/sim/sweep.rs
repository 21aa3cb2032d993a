//! Sweeps: every combination of the values of `--set`, with several seeds, on all cores, one table.

use super::RunArgs;
use super::run::{apply, setup};
use crate::cli::output;
use crate::sim::costs::Cause;
use crate::sim::{Report, Sim};
use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Names and values set.
type Values = Vec<(String, String)>;

/// One point of a sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    /// Position in the whole sweep.
    pub(super) index: usize,
    /// The values set.
    pub(super) set: Values,
    pub(super) seed: u64,
    pub(super) results: BTreeMap<String, f64>,
}

/// A sweep or a part of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sweep {
    pub(super) version: u32,
    /// Points of the whole sweep.
    pub(super) total: usize,
    pub(super) points: Vec<Point>,
}

pub(super) fn is_sweep(args: &RunArgs) -> bool {
    args.seeds > 1 || args.shard.is_some() || args.set.iter().any(|s| s.contains(','))
}

fn combinations(set: &[String]) -> Result<Vec<Values>> {
    let mut all = vec![Vec::new()];
    for change in set {
        let (name, values) = change
            .split_once('=')
            .ok_or_else(|| anyhow!("--set: `{change}` is not of the form NAME=VALUE[,VALUE..]"))?;
        let with = |old: &Values| {
            let old = old.clone();
            values.split(',').map(move |value| {
                let mut new = old.clone();
                new.push((name.to_string(), value.to_string()));
                new
            })
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all)
}

fn shard(text: Option<&str>) -> Result<(usize, usize)> {
    let Some(text) = text else { return Ok((1, 1)) };
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((i, n)) if i >= 1 && i <= n => Ok((i, n)),
        _ => bail!("--shard: `{text}` is not I/N with I from 1 to N"),
    }
}

fn results(report: &Report) -> BTreeMap<String, f64> {
    let mut r = BTreeMap::from([
        ("done/s".to_string(), report.done_per_s),
        ("violations".to_string(), report.violations as f64),
        ("moves".to_string(), report.totals.moves.iter().sum::<u64>() as f64),
    ]);
    for cause in [Cause::Work, Cause::Balance, Cause::Flag, Cause::Nohz] {
        r.insert(format!("{} %", cause.name()), report.share(cause));
    }
    r
}

pub(super) fn run(args: &RunArgs) -> Result<bool> {
    for (given, option) in [
        (args.trace.is_some(), "--trace"),
        (args.html.is_some(), "--html"),
        (args.check_determinism, "--check-determinism"),
    ] {
        if given {
            bail!("{option} is for one run, not for a sweep: give single values and one seed");
        }
    }
    let base = setup(args)?;
    let combinations = combinations(&args.set)?;
    let (i, n) = shard(args.shard.as_deref())?;
    let mut work = Vec::new();
    let seeds = u64::from(args.seeds);
    for (c, set) in combinations.iter().enumerate() {
        let mut setup = base.clone();
        for (name, value) in set {
            apply(&mut setup, name, value)?;
        }
        for s in 0..seeds {
            let index = c * seeds as usize + s as usize;
            if index % n == i - 1 {
                let mut setup = setup.clone();
                setup.seed = args
                    .seed
                    .checked_add(s)
                    .with_context(|| format!("--seed: there are no {seeds} seeds from it up"))?;
                work.push((index, set.clone(), setup));
            }
        }
    }
    let total = combinations.len() * seeds as usize;
    let bar = ProgressBar::new(work.len() as u64);
    let next = AtomicUsize::new(0);
    let points = Mutex::new(Vec::with_capacity(work.len()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(work.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, set, setup)) = work.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let mut sim = Sim::new(setup.clone());
                    sim.run(|_| {});
                    let results = results(&Report::of(&sim));
                    let point =
                        Point { index: *index, set: set.clone(), seed: setup.seed, results };
                    points.lock().unwrap_or_else(PoisonError::into_inner).push(point);
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut points = points.into_inner().unwrap_or_else(PoisonError::into_inner);
    points.sort_by_key(|p| p.index);
    let sweep = Sweep { version: 1, total, points };
    if args.json || args.shard.is_some() {
        output::print_json(&sweep)?;
    } else {
        output::print(&table(&sweep))?;
    }
    Ok(true)
}

/// One line for each combination: mean and spread (half the range) over the seeds.
pub(super) fn table(sweep: &Sweep) -> String {
    let mut rows: Vec<(&Values, Vec<&Point>)> = Vec::new();
    for point in &sweep.points {
        match rows.iter_mut().find(|(set, _)| **set == point.set) {
            Some((_, points)) => points.push(point),
            None => rows.push((&point.set, vec![point])),
        }
    }
    let columns: Vec<&str> = sweep
        .points
        .first()
        .map(|p| p.results.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let label = |set: &Values| match set[..] {
        [] => "(as given)".to_string(),
        _ => set.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "),
    };
    let width = rows.iter().map(|(set, _)| label(set).len()).max().unwrap_or(0);
    let mut out = format!("{:width$}  seeds", "");
    for column in &columns {
        let _ = write!(out, "  {column:>22}");
    }
    out.push('\n');
    for (set, points) in &rows {
        let _ = write!(out, "{:width$}  {:>5}", label(set), points.len());
        for column in &columns {
            let values = || points.iter().filter_map(|p| p.results.get(*column).copied());
            let mean = values().sum::<f64>() / points.len() as f64;
            let (low, high) = values().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
            let _ = write!(out, "  {:>22}", format!("{mean:.3} ± {:.3}", (high - low) / 2.0));
        }
        out.push('\n');
    }
    out
}

/// Reads a part of a sweep.
pub(super) fn read(path: &std::path::Path) -> Result<Sweep> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not the output of `baton sim --shard`", path.display()))
}
