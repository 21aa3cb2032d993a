//! The table on the terminal.

use super::{facts, interval, percent, short, title, verdict};
use crate::compare::evaluate::Evaluation;
use crate::compare::record::Record;
use std::fmt::Write;

/// Counters that are shown first, whatever else there is.
pub(super) const MAIN_COUNTERS: [&str; 12] = [
    "context switches /s",
    "migrations seen /s",
    "run-queue wait us",
    "agent CPU %",
    "lb_count /s",
    "lb_gained /s",
    "lb_failed /s",
    "serialize_attempts /s",
    "serialize_acquired /s",
    "serialize_busy /s",
    "tasks pulled /s",
    "requests issued /s",
];

/// Whether a counter belongs to those shown first.
pub(super) fn is_main(name: &str) -> bool {
    MAIN_COUNTERS.contains(&name)
        || name.starts_with("utilisation ")
        || name.starts_with("placement ")
        || name.contains("nohz")
}

/// The result as text: the verdicts, what stands beside them, invalid runs, where it was measured.
pub fn text(record: &Record, evaluation: &Evaluation) -> String {
    let header = &record.header;
    let metrics = header.workload.metrics();
    let mut out = format!("{}\n\n", title(record));
    let mut table = vec![
        [
            "side",
            "load",
            "metric",
            "baseline",
            "median",
            "mean change",
            "95 % interval",
            "A/A noise",
            "verdict",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for row in &evaluation.rows {
        let metric = &metrics[row.metric];
        let median = |m: Option<f64>| m.map_or_else(|| "-".into(), short);
        table.push(vec![
            header.sides[row.side].name.clone(),
            row.load.to_string(),
            format!("{} {}", metric.name, metric.unit),
            median(row.baseline.median),
            median(row.samples.median),
            row.assessment.change.map_or_else(|| "-".into(), percent),
            interval(row),
            row.noise_floor.map_or_else(|| "unknown".into(), |f| format!("{:.1} %", 100.0 * f)),
            verdict(row),
        ]);
    }
    columns(&mut out, &table);
    for beside in &evaluation.beside {
        let names = header.sides.iter().map(|s| s.name.clone());
        let mut table =
            vec![std::iter::once(format!("mean, load {}", beside.load)).chain(names).collect()];
        for (name, values) in beside.counters.iter().filter(|(name, _)| is_main(name)) {
            let value = |v: &Option<f64>| v.map_or_else(|| "-".into(), short);
            table.push(
                std::iter::once(name.clone()).chain(values.iter().map(value)).collect::<Vec<_>>(),
            );
        }
        if table.len() > 1 {
            out.push('\n');
            columns(&mut out, &table);
        }
    }
    let invalid: Vec<_> = record.invalid().collect();
    if !invalid.is_empty() {
        let _ = writeln!(
            out,
            "\n{} of {} runs are invalid and left out:",
            invalid.len(),
            record.runs.len()
        );
        for (run, reason) in invalid {
            let _ = writeln!(
                out,
                "  {} round {}, {}, load {}: {reason}",
                run.step.phase.title(),
                run.step.round + 1,
                header.sides[run.step.side].name,
                run.step.load
            );
        }
    }
    out.push('\n');
    let facts = facts(record);
    let width = facts.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    for (label, value) in facts {
        let _ = writeln!(out, "{label:width$}  {value}");
    }
    out
}

/// Aligned columns; the first is flush left, numbers flush right, the last as it is.
fn columns(out: &mut String, table: &[Vec<String>]) {
    let width = |i: usize| table.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max();
    let last = table.first().map_or(0, Vec::len).saturating_sub(1);
    let is_number = |i: usize| {
        table.iter().skip(1).any(|row| {
            row.get(i)
                .is_some_and(|c| c.starts_with(|c: char| c.is_ascii_digit() || "+-".contains(c)))
        })
    };
    for row in table {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            let width = width(i).unwrap_or(0);
            let gap = if i == 0 { "" } else { "  " };
            let _ = if i == last && !is_number(i) {
                write!(line, "{gap}{cell}")
            } else if i > 0 && is_number(i) {
                write!(line, "{gap}{cell:>width$}")
            } else {
                write!(line, "{gap}{cell:<width$}")
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
