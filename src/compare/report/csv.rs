//! Every run as a line of CSV.

use crate::compare::record::Record;
use anyhow::{Context, Result};
use std::collections::BTreeSet;

/// One line for each run, warm-up and invalid ones included; a column for each metric and counter.
///
/// # Errors
/// None in practice: it is written to memory.
pub fn csv(record: &Record) -> Result<String> {
    let metrics = record.header.workload.metrics();
    let counters: BTreeSet<&String> = record.runs.iter().flat_map(|r| r.counters.keys()).collect();
    let mut out = csv::Writer::from_writer(Vec::new());
    let fixed = ["phase", "round", "load", "slot", "side", "at_s", "elapsed_s", "valid", "reason"];
    let mut head: Vec<String> = fixed.map(String::from).into();
    head.extend(metrics.iter().map(|m| format!("{} {}", m.name, m.unit).trim().to_string()));
    head.extend(counters.iter().map(|c| (*c).clone()));
    out.write_record(&head)?;
    for run in &record.runs {
        let mut line = vec![
            run.step.phase.title().to_string(),
            run.step.round.to_string(),
            run.step.load.to_string(),
            run.step.slot.to_string(),
            record.header.sides[run.step.side].name.clone(),
            format!("{:.3}", run.at_s),
            format!("{:.6}", run.elapsed_s),
            run.invalid.is_none().to_string(),
            run.invalid.clone().unwrap_or_default(),
        ];
        let number = |value: Option<&f64>| value.map(f64::to_string).unwrap_or_default();
        line.extend((0..metrics.len()).map(|m| number(run.scores.get(m))));
        line.extend(counters.iter().map(|c| number(run.counters.get(*c))));
        out.write_record(&line)?;
    }
    let bytes = out.into_inner().context("cannot form CSV")?;
    String::from_utf8(bytes).context("cannot form CSV")
}
