//! The pictures of the page, as inline SVG. Colours are classes, so that the page's dark mode
//! applies to them too.

use super::page::escape;
use super::{percent, short};
use std::fmt::Write;

/// Size of a picture; it is scaled to the width there is.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 270.0;
/// Room for labels: left, right, top, bottom.
const MARGIN: [f64; 4] = [84.0, 14.0, 14.0, 46.0];
const FONT: f64 = 15.0;

/// A dot in a picture.
pub(super) struct Dot {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Its CSS class: `s0` for the baseline, `s1` and so on.
    pub(super) class: String,
    /// Shown when it is pointed at.
    pub(super) tip: String,
    /// What it looks like.
    pub(super) shape: Shape,
}

/// What a dot looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Full,
    Hollow,
    Cross,
}

/// A picture with axes.
pub(super) struct Plot {
    body: String,
    x: Axis,
    y: Axis,
    /// What it shows, for those who do not see it.
    label: String,
}

/// From value to place.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    pub(super) fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = values
            .filter(|v| v.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let room = ((high - low) * 0.06).max(high.abs() * 1e-3).max(1e-9);
        Self { low: low - room, high: high + room, from, to }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Round values within the axis, about five.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(|v| *v <= self.high).take(12).collect()
    }
}

impl Plot {
    /// Axes for these values; `x_name` stands below, `y_name` above.
    pub(super) fn new(
        xs: impl Iterator<Item = f64>,
        ys: impl Iterator<Item = f64>,
        label: &str,
    ) -> Self {
        let [left, right, top, bottom] = MARGIN;
        Self {
            body: String::new(),
            x: Axis::new(xs, left, WIDTH - right),
            y: Axis::new(ys, HEIGHT - bottom, top),
            label: label.into(),
        }
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, text: &str) {
        let _ = write!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{FONT}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        );
    }

    fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], class: &str) {
        let _ = write!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        );
    }

    /// Grid and numbers of the vertical axis.
    pub(super) fn y_axis(&mut self, as_percent: bool) {
        let (from, to) = (self.x.from, self.x.to);
        let ticks = self.y.ticks();
        let step = ticks.windows(2).next().map_or(1.0, |w| w[1] - w[0]);
        for value in ticks {
            let y = self.y.at(value);
            self.line([from, y, to, y], "grid");
            let text = if as_percent { percent_of_tick(value, step) } else { tick(value, step) };
            self.text(from - 6.0, y + 4.5, "end", &text);
        }
    }

    /// Numbers of the horizontal axis and its name; if it counts so many of something, whole
    /// ones up to that.
    pub(super) fn x_axis(&mut self, name: &str, counted: Option<usize>) {
        let mut ticks = self.x.ticks();
        if let Some(n) = counted {
            ticks.retain(|t| (1.0..=n as f64).contains(t) && t.fract() == 0.0);
        }
        let step = ticks.windows(2).next().map_or(1.0, |w| w[1] - w[0]);
        let foot = self.y.from;
        for value in ticks {
            let x = self.x.at(value);
            self.line([x, foot, x, foot + 4.0], "axis");
            self.text(x, foot + 18.0, "middle", &tick(value, step));
        }
        self.line([self.x.from, foot, self.x.to, foot], "axis");
        self.text((self.x.from + self.x.to) / 2.0, HEIGHT - 6.0, "middle", name);
    }

    /// The value at the horizontal axis.
    pub(super) fn foot(&self) -> f64 {
        self.y.low
    }

    /// A word at the horizontal axis.
    pub(super) fn x_label(&mut self, x: f64, text: &str) {
        let (x, foot) = (self.x.at(x), self.y.from);
        self.text(x, foot + 18.0, "middle", text);
    }

    /// A band between two values of the vertical axis.
    pub(super) fn band(&mut self, low: f64, high: f64, class: &str, tip: &str) {
        let (top, foot) = (self.y.at(high), self.y.at(low));
        let _ = write!(
            self.body,
            r#"<rect x="{:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" class="{class}"><title>{}</title></rect>"#,
            self.x.from,
            self.x.to - self.x.from,
            (foot - top).max(1.0),
            escape(tip)
        );
    }

    /// A level line.
    pub(super) fn level(&mut self, value: f64, class: &str) {
        let y = self.y.at(value);
        self.line([self.x.from, y, self.x.to, y], class);
    }

    /// An interval at a place of the horizontal axis, with its middle.
    pub(super) fn interval(
        &mut self,
        x: f64,
        [low, middle, high]: [f64; 3],
        class: &str,
        tip: &str,
    ) {
        let (x, a, m, b) = (self.x.at(x), self.y.at(low), self.y.at(middle), self.y.at(high));
        let _ = write!(self.body, r#"<g class="{class}"><title>{}</title>"#, escape(tip));
        for line in [[x, a, x, b], [x - 7.0, a, x + 7.0, a], [x - 7.0, b, x + 7.0, b]] {
            self.line(line, "bar");
        }
        let _ = write!(
            self.body,
            r#"<rect x="{:.1}" y="{:.1}" width="12" height="12" transform="rotate(45 {x:.1} {m:.1})" class="full"/></g>"#,
            x - 6.0,
            m - 6.0
        );
    }

    /// Dots, each with its tip.
    pub(super) fn dots(&mut self, dots: &[Dot]) {
        for dot in dots {
            let (x, y) = (self.x.at(dot.x), self.y.at(dot.y));
            let (class, tip) = (&dot.class, escape(&dot.tip));
            let _ = match dot.shape {
                Shape::Cross => write!(
                    self.body,
                    r#"<path d="M{:.1} {:.1}l10 10m0 -10l-10 10" class="{class} cross"><title>{tip}</title></path>"#,
                    x - 5.0,
                    y - 5.0
                ),
                Shape::Full | Shape::Hollow => {
                    let fill = if dot.shape == Shape::Full { "full" } else { "hollow" };
                    write!(
                        self.body,
                        r#"<circle cx="{x:.1}" cy="{y:.1}" r="4.5" class="{class} {fill}"><title>{tip}</title></circle>"#
                    )
                }
            };
        }
    }

    /// A line through points.
    pub(super) fn curve(&mut self, points: &[(f64, f64)], class: &str) {
        let points: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", self.x.at(*x), self.y.at(*y)))
            .collect();
        let _ =
            write!(self.body, r#"<polyline points="{}" class="curve {class}"/>"#, points.join(" "));
    }

    /// The picture.
    pub(super) fn finish(self) -> String {
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">{}</svg>"#,
            escape(&self.label),
            self.body
        )
    }
}

/// As many decimals as the step between ticks needs.
fn tick(value: f64, step: f64) -> String {
    if value.abs() >= 10_000.0 && step >= 1.0 {
        return short(value);
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    // 2.5 needs one more than its power of ten says.
    let extra = usize::from((step * 10f64.powi(decimals as i32)).fract().abs() > 1e-6);
    let text = format!("{:.*}", decimals + extra, value);
    if text.trim_start_matches(['-', '0', '.']).is_empty() { "0".into() } else { text }
}

pub(super) fn percent_of_tick(value: f64, step: f64) -> String {
    if value.abs() < step / 1e3 {
        return "0 %".into();
    }
    let decimals = if step < 0.0099 { 1 } else { 0 };
    if step < 0.000_99 { percent(value) } else { format!("{:+.*} %", decimals, 100.0 * value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let axis = Axis::new([0.93, 1.21].into_iter(), 0.0, 100.0);
        let ticks = axis.ticks();
        assert!((3..=8).contains(&ticks.len()), "{ticks:?}");
        assert!(ticks.iter().all(|t| *t >= axis.low && *t <= axis.high));
        assert_eq!([tick(0.05, 0.05), tick(2.5, 2.5), tick(0.0, 0.1)], ["0.05", "2.5", "0"]);
        assert_eq!([percent_of_tick(0.05, 0.05), percent_of_tick(0.0, 0.05)], ["+5 %", "0 %"]);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_finite() {
        for values in [vec![], vec![5.0], vec![0.0, 0.0]] {
            let axis = Axis::new(values.into_iter(), 0.0, 100.0);
            assert!(axis.at(5.0).is_finite() && axis.ticks().len() < 13);
        }
    }
}
