//! The page: one file, no script, no request.

use super::forest::forest;
use super::page::{document, escape};
use super::svg::{Dot, Plot, Shape};
use super::text::is_main;
use super::{count, facts, interval, percent, short, title, verdict};
use crate::compare::evaluate::{Beside, Evaluation, Row, Samples, Verdict, noise_band};
use crate::compare::plan::Phase;
use crate::compare::record::{Record, Run};
use crate::compare::statistics::quantile;
use crate::compare::workload::{Better, Load, Metric};
use std::fmt::Write;

/// Sides that have a colour of their own.
pub(super) const COLOURS: usize = 4;

/// The result as a page.
pub fn html(record: &Record, evaluation: &Evaluation) -> String {
    let header = &record.header;
    let title = title(record);
    let mut body = format!(
        "<h1>{}</h1>\n<p class=\"muted\">baseline {} · kernel {} · {} CPUs</p>\n",
        escape(&title),
        escape(&header.sides[0].name),
        escape(&header.environment.kernel),
        header.environment.cpus
    );
    let invalid_runs = record.invalid().count();
    if invalid_runs > 0 {
        let _ = writeln!(
            body,
            "<p class=\"warn\"><a href=\"#invalid\">{} of {} invalid and left out</a></p>",
            invalid_runs,
            count(record.runs.len(), "run")
        );
    }
    if !record.changed.is_empty() {
        let what = escape(&record.changed.join("; "));
        let _ = writeln!(body, "<p class=\"warn\">The machine changed meanwhile: {what}</p>");
    }
    body.push_str("<div class=\"cards\">\n");
    for row in &evaluation.rows {
        card(&mut body, record, row);
    }
    body.push_str("</div>\n");
    if !evaluation.rows.is_empty() {
        body.push_str("<h2>All rows</h2>\n<div class=\"forest\">");
        figure(
            &mut body,
            "Change against the baseline with its 95 % interval; grey: the A/A noise",
            &forest(record, evaluation),
        );
        body.push_str("</div>\n");
    }
    let metrics = header.workload.metrics();
    for &load in &header.plan.loads {
        for (i, metric) in metrics.iter().enumerate() {
            section(&mut body, record, evaluation, load, i, metric);
        }
    }
    body.push_str("<h2>Beside the score</h2>\n");
    for beside in &evaluation.beside {
        counters(&mut body, record, beside);
    }
    invalid(&mut body, record);
    body.push_str("<h2>Where and how</h2>\n<dl>\n");
    for (label, value) in facts(record) {
        let _ = writeln!(body, "<dt>{label}</dt><dd>{}</dd>", escape(&value));
    }
    body.push_str("</dl>\n");
    let topology = serde_json::to_string_pretty(&header.environment.topology).unwrap_or_default();
    let _ = writeln!(
        body,
        "<details><summary>Topology</summary><div class=\"wide\"><pre>{}</pre></div></details>",
        escape(&topology)
    );
    body.push_str(
        "<h2>How to read it</h2>\n<p>Runs of one round are pairs; the change is the (geometric) mean of the pairs' \
         ratios, which need not lie where the medians do. A row is called better or worse only \
         with at least 6 valid pairs, a 95 % bootstrap interval that leaves out 0, a Wilcoxon \
         signed-rank test below 5 % after Holm's correction over all rows, and a change beyond what \
         the baseline shows against itself (A/A). Everything else is no call.</p>\n",
    );
    document(&title, &body)
}

fn class(side: usize) -> String {
    format!("s{}", side % COLOURS)
}

fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoCall => "no_call",
    }
}

fn card(body: &mut String, record: &Record, row: &Row) {
    let metric = &record.header.workload.metrics()[row.metric];
    let value = |m: Option<f64>| m.map_or_else(|| "–".into(), short);
    let _ = writeln!(
        body,
        "<div class=\"card\"><h3>{} <span class=\"muted\">{}, load {}</span></h3>\
         <span class=\"pill {}\">{}</span>\
         <div class=\"big\">{}</div>\
         <div class=\"muted\">mean of {}<br>95 % interval {}<br>medians {} → {} {}<br>A/A noise {} · p {:.4} (Holm){}</div></div>",
        escape(&record.header.sides[row.side].name),
        escape(&metric.name),
        row.load,
        verdict_class(row.verdict),
        row.verdict.text(),
        row.assessment.change.map_or_else(|| "–".into(), percent),
        count(row.assessment.pairs, "pair"),
        interval(row),
        value(row.baseline.median),
        value(row.samples.median),
        escape(&metric.unit),
        row.noise_floor.map_or_else(|| "unknown".into(), |f| format!("±{:.1} %", 100.0 * f)),
        row.p_holm,
        if row.reason.is_empty() {
            String::new()
        } else {
            format!("<br>{}", escape(&verdict(row)))
        },
    );
}

fn figure(body: &mut String, caption: &str, svg: &str) {
    let _ = writeln!(body, "<figure><figcaption>{caption}</figcaption>{svg}</figure>");
}

/// Names of the sides in their colours.
fn key(record: &Record) -> String {
    let mut out = String::new();
    for (i, side) in record.header.sides.iter().enumerate() {
        let _ =
            write!(out, "<span class=\"key {}\"><i></i>{}</span>", class(i), escape(&side.name));
    }
    out
}

fn section(
    body: &mut String,
    record: &Record,
    evaluation: &Evaluation,
    load: Load,
    metric: usize,
    what: &Metric,
) {
    let direction = match what.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    };
    let _ = writeln!(
        body,
        "<h2>{}, {} <span class=\"muted\">({direction}) · load {load}</span></h2>\n<p>{}</p>\n<div class=\"rows\">",
        escape(&what.name),
        escape(&what.unit),
        key(record)
    );
    let rows: Vec<&Row> =
        evaluation.rows.iter().filter(|r| r.load == load && r.metric == metric).collect();
    figure(
        body,
        "Samples over time; hollow: A/A, cross on the axis: invalid",
        &over_time(record, load, metric, what),
    );
    for row in &rows {
        let side = escape(&record.header.sides[row.side].name);
        figure(
            body,
            &format!(
                "{side}: change in each pair; hollow: A/A, diamond: mean with 95 % interval, grey: noise"
            ),
            &differences(record, row),
        );
    }
    figure(
        body,
        &format!("Percentiles of the samples, {}", escape(&what.unit)),
        &percentiles(record, &rows, what),
    );
    body.push_str("</div>\n");
}

fn over_time(record: &Record, load: Load, metric: usize, what: &Metric) -> String {
    let shown = |r: &Run| r.step.load == load && r.step.phase != Phase::WarmUp;
    let runs: Vec<(f64, &Run)> =
        record.times_s().into_iter().zip(&record.runs).filter(|(_, r)| shown(r)).collect();
    let score = |run: &Run| run.scores.get(metric).copied();
    let valid = runs.iter().filter(|(_, r)| r.invalid.is_none()).filter_map(|(_, r)| score(r));
    let mut plot = Plot::new(
        runs.iter().map(|(at_s, _)| at_s / 60.0),
        valid,
        &format!("{} over time", what.name),
    );
    let foot = plot.foot();
    plot.y_axis(false);
    plot.x_axis("minutes", None);
    let dots: Vec<Dot> = runs
        .iter()
        .map(|&(at_s, run)| {
            let side = &record.header.sides[run.step.side].name;
            let place = format!("{side}, {} round {}", run.step.phase.title(), run.step.round + 1);
            let (tip, shape) = match &run.invalid {
                Some(reason) => (format!("{place}: invalid, {reason}"), Shape::Cross),
                None => {
                    let shape =
                        if run.step.phase == Phase::Noise { Shape::Hollow } else { Shape::Full };
                    (
                        format!(
                            "{place}: {} {}",
                            score(run).map_or_else(String::new, short),
                            what.unit
                        ),
                        shape,
                    )
                }
            };
            let y = score(run).filter(|_| shape != Shape::Cross).unwrap_or(foot);
            Dot { x: at_s / 60.0, y, class: class(run.step.side), tip, shape }
        })
        .collect();
    plot.dots(&dots);
    plot.finish()
}

fn differences(record: &Record, row: &Row) -> String {
    let (changes, noise) = (&row.assessment.changes, &row.noise.changes);
    let floor = row.noise_floor.unwrap_or_default();
    let band = noise_band(floor);
    let ends = row.assessment.interval.map_or([0.0; 2], |i| [i.low, i.high]);
    // At least 1 % to either side, so that an axis of nothing has sensible numbers.
    let ys = changes.iter().chain(noise).copied();
    let ys = ys.chain([0.01, -0.01, band.low, band.high, ends[0], ends[1]]);
    let pairs = changes.len().max(noise.len());
    let last = pairs.max(1) as f64;
    // Far enough behind the last pair for both labels.
    let aside = last + (0.1 * last).max(1.5);
    let name = &record.header.sides[row.side].name;
    let mut plot = Plot::new(
        [0.5, 1.5 * aside - 0.5 * last].into_iter(),
        ys,
        &format!("{name}: paired differences"),
    );
    plot.y_axis(true);
    plot.band(band.low, band.high, "noise", &format!("A/A noise: {:.1} %", 100.0 * floor));
    plot.level(0.0, "zero");
    plot.x_axis("pair", Some(pairs));
    let dots = |changes: &[f64], side: usize, shape: Shape, what: &str| -> Vec<Dot> {
        changes
            .iter()
            .enumerate()
            .map(|(i, &y)| Dot {
                x: 1.0 + i as f64,
                y,
                class: class(side),
                tip: format!("{what} {}: {}", i + 1, percent(y)),
                shape,
            })
            .collect()
    };
    plot.dots(&dots(noise, 0, Shape::Hollow, "A/A pair"));
    plot.dots(&dots(changes, row.side, Shape::Full, "pair"));
    if let (Some(change), Some(at)) = (row.assessment.change, row.assessment.interval) {
        let tip = format!("mean {} ({})", percent(change), interval(row));
        plot.interval(aside, [at.low, change, at.high], &class(row.side), &tip);
        plot.x_label(aside, "mean");
    }
    plot.finish()
}

fn percentiles(record: &Record, rows: &[&Row], what: &Metric) -> String {
    let baseline = rows.first().map(|row| (0, &row.baseline));
    let samples: Vec<_> =
        baseline.into_iter().chain(rows.iter().map(|row| (row.side, &row.samples))).collect();
    let ys = samples.iter().flat_map(|(_, s)| s.values.iter().copied());
    let mut plot =
        Plot::new([0.0, 100.0].into_iter(), ys, &format!("percentiles of {}", what.name));
    plot.y_axis(false);
    plot.x_axis("percentile", None);
    for (side, samples) in samples {
        let points: Vec<(f64, f64)> = (0..=50)
            .filter_map(|i| {
                Some((2.0 * f64::from(i), quantile(&samples.values, f64::from(i) / 50.0)?))
            })
            .collect();
        plot.curve(&points, &class(side));
        plot.dots(&sample_dots(samples, &record.header.sides[side].name, side, what));
    }
    plot.finish()
}

/// Each sample at its percentile, so that it shows how few there may be.
fn sample_dots(samples: &Samples, name: &str, side: usize, what: &Metric) -> Vec<Dot> {
    let mut sorted = samples.values.clone();
    sorted.sort_by(f64::total_cmp);
    let (n, last) = (sorted.len(), sorted.len().saturating_sub(1).max(1) as f64);
    let dot = |(i, y): (usize, f64)| Dot {
        x: if n == 1 { 50.0 } else { 100.0 * i as f64 / last },
        y,
        class: class(side),
        tip: format!("{name}: {} {}, sample {} of {n}", short(y), what.unit, i + 1),
        shape: Shape::Full,
    };
    sorted.into_iter().enumerate().map(dot).collect()
}

/// The counters, those shown first in sight and all others behind a click.
fn counters(body: &mut String, record: &Record, beside: &Beside) {
    let table = |main: bool, body: &mut String| {
        let chosen: Vec<_> = beside.counters.iter().filter(|(n, _)| is_main(n) == main).collect();
        if chosen.is_empty() {
            return;
        }
        if !main {
            let _ = write!(body, "<details><summary>{} more</summary>", chosen.len());
        }
        let _ = write!(
            body,
            "<div class=\"wide table\"><table><tr><th>mean, load {}</th>",
            beside.load
        );
        for side in &record.header.sides {
            let _ = write!(body, "<th>{}</th>", escape(&side.name));
        }
        body.push_str("</tr>\n");
        for (name, values) in chosen {
            let _ = write!(body, "<tr><td>{}</td>", escape(name));
            for value in values {
                let _ = write!(body, "<td>{}</td>", value.map_or_else(|| "–".into(), short));
            }
            body.push_str("</tr>\n");
        }
        body.push_str("</table></div>\n");
        if !main {
            body.push_str("</details>\n");
        }
    };
    table(true, body);
    table(false, body);
}

fn invalid(body: &mut String, record: &Record) {
    let runs: Vec<_> = record.invalid().collect();
    if runs.is_empty() {
        return;
    }
    let _ = writeln!(
        body,
        "<h2 id=\"invalid\">Invalid runs</h2>\n<p>{} of {} are left out, and with each its pair.</p>\n<ul class=\"invalid\">",
        runs.len(),
        count(record.runs.len(), "run")
    );
    for (run, reason) in runs {
        let _ = writeln!(
            body,
            "<li class=\"{}\"><span class=\"muted\">{}, {} round {}, load {}</span><br>{}</li>",
            class(run.step.side),
            escape(&record.header.sides[run.step.side].name),
            run.step.phase.title(),
            run.step.round + 1,
            run.step.load,
            escape(reason)
        );
    }
    body.push_str("</ul>\n");
}
