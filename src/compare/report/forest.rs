//! All rows in one picture: each change with its interval over its own noise.

use super::page::escape;
use super::svg::{Axis, percent_of_tick};
use super::{interval, percent};
use crate::compare::evaluate::{Evaluation, Row, Verdict, noise_band};
use crate::compare::record::Record;
use std::fmt::Write;

const WIDTH: f64 = 440.0;
const MARGIN: f64 = 14.0;
/// Room for half a number at either end of the axis.
const INSET: f64 = 22.0;
/// Height of a row: the side, the metric, then the bar.
const ROW: f64 = 84.0;
/// Middle of the bar within its row, and how far lines go to either side of it.
const BAR: f64 = 58.0;
const REACH: f64 = 18.0;
const FOOT: f64 = 30.0;
const FONT: f64 = 15.0;

/// The picture.
pub(super) fn forest(record: &Record, evaluation: &Evaluation) -> String {
    let rows = &evaluation.rows;
    let axis = axis(rows);
    let bottom = ROW * rows.len() as f64 + 4.0;
    let mut body = String::new();
    let ticks = axis.ticks();
    let step = ticks.windows(2).next().map_or(1.0, |w| w[1] - w[0]);
    for value in &ticks {
        let _ = write!(
            body,
            r#"<text x="{:.1}" y="{:.1}" font-size="{FONT}" text-anchor="middle">{}</text>"#,
            axis.at(*value),
            bottom + 18.0,
            percent_of_tick(*value, step)
        );
    }
    for (i, row) in rows.iter().enumerate() {
        let top = ROW * i as f64;
        let zero = std::iter::once((0.0, "zero"));
        // Lines only beside the bars, so that they cross no text.
        for (value, class) in ticks.iter().map(|t| (*t, "grid")).chain(zero) {
            let x = axis.at(value);
            let (y1, y2) = (top + BAR - REACH, top + BAR + REACH);
            let _ = write!(
                body,
                r#"<line x1="{x:.1}" x2="{x:.1}" y1="{y1:.1}" y2="{y2:.1}" class="{class}"/>"#
            );
        }
        one(&mut body, record, row, &axis, top);
    }
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {:.0}" role="img" aria-label="change of every row against the baseline">{body}</svg>"#,
        bottom + FOOT
    )
}

/// Wide enough for the intervals, and for the noise unless that dwarfs them: then its band is cut
/// off at the edge.
fn axis(rows: &[Row]) -> Axis {
    let ends = |row: &Row| row.assessment.interval.map_or([0.0; 2], |i| [i.low, i.high]);
    let farthest = rows.iter().flat_map(ends).fold(0.01, |far: f64, end| far.max(end.abs()));
    let bands = rows.iter().filter_map(|row| row.noise_floor).map(noise_band);
    let bands =
        bands.flat_map(|b| [b.low, b.high]).map(|v| v.clamp(-2.0 * farthest, 2.0 * farthest));
    let values = rows.iter().flat_map(ends).chain(bands).chain([0.01, -0.01]);
    Axis::new(values, MARGIN + INSET, WIDTH - MARGIN - INSET)
}

fn one(body: &mut String, record: &Record, row: &Row, axis: &Axis, top: f64) {
    let side = &record.header.sides[row.side].name;
    let metric = &record.header.workload.metrics()[row.metric].name;
    let class = match row.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoCall => "no_call",
    };
    let end = WIDTH - MARGIN;
    let (first, second) = (top + 16.0, top + 34.0);
    let (name, load) = (escape(&shortened(side)), row.load);
    let _ = write!(
        body,
        r#"<text x="{MARGIN}" y="{first:.1}" font-size="{FONT}" class="name">{name}</text><g class="{class}"><text x="{end:.1}" y="{first:.1}" font-size="{FONT}" text-anchor="end" class="verdict">{}</text></g><text x="{MARGIN}" y="{second:.1}" font-size="{FONT}">{}, load {load}</text>"#,
        row.verdict.text(),
        escape(metric)
    );
    let y = top + BAR;
    if let Some(floor) = row.noise_floor {
        let band = noise_band(floor);
        let edge = |value: f64| axis.at(value).clamp(0.0, WIDTH);
        let (from, to) = (edge(band.low), edge(band.high));
        let _ = write!(
            body,
            r#"<rect x="{from:.1}" y="{:.1}" width="{:.1}" height="26" rx="3" class="noise"><title>A/A noise {:.1} %</title></rect>"#,
            y - 13.0,
            (to - from).max(1.0),
            100.0 * floor
        );
    }
    let (Some(change), Some(ends)) = (row.assessment.change, row.assessment.interval) else {
        return;
    };
    let (from, x, to) = (axis.at(ends.low), axis.at(change), axis.at(ends.high));
    let tip = escape(&format!("{side}, {metric}: {} ({})", percent(change), interval(row)));
    let _ = write!(body, r#"<g class="s{}"><title>{tip}</title>"#, row.side % super::html::COLOURS);
    for [x1, y1, x2, y2] in
        [[from, y, to, y], [from, y - 6.0, from, y + 6.0], [to, y - 6.0, to, y + 6.0]]
    {
        let _ = write!(
            body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="bar"/>"#
        );
    }
    let _ = write!(
        body,
        r#"<rect x="{:.1}" y="{:.1}" width="11" height="11" transform="rotate(45 {x:.1} {y:.1})" class="full"/></g>"#,
        x - 5.5,
        y - 5.5
    );
}

/// What fits beside the verdict.
fn shortened(text: &str) -> String {
    const FITS: usize = 42;
    if text.chars().count() <= FITS {
        return text.into();
    }
    text.chars().take(FITS - 1).chain(['…']).collect()
}
