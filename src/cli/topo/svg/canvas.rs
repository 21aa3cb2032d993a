//! The few SVG elements that the picture is made of.

use std::fmt::Write;

/// Colour of text and outlines.
pub(super) const INK: &str = "#22303c";
/// Colour of less important text.
pub(super) const MUTED: &str = "#6b7883";

/// Between two colours: 0 is `a`, 1 is `b`.
pub(super) fn mix(a: [u8; 3], b: [u8; 3], at: f64) -> String {
    let at = at.clamp(0.0, 1.0);
    let channel = |i: usize| {
        let (a, b) = (f64::from(a[i]), f64::from(b[i]));
        (a + (b - a) * at).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Collects elements; the size is known only at the end.
#[derive(Default)]
pub(super) struct Canvas {
    body: String,
}

impl Canvas {
    /// Text at a baseline; `anchor` is start, middle or end.
    pub(super) fn text(&mut self, x: f64, y: f64, size: f64, fill: &str, anchor: &str, text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{fill}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    /// A rectangle (x, y, width, height) with rounded corners; `tip` is shown when it is pointed at, unless empty.
    pub(super) fn rect(
        &mut self,
        [x, y, width, height]: [f64; 4],
        radius: f64,
        fill: &str,
        stroke: Option<&str>,
        tip: &str,
    ) {
        let stroke = stroke.map(|s| format!(r#" stroke="{s}""#)).unwrap_or_default();
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="{radius}" fill="{fill}"{stroke}"#
        );
        if tip.is_empty() {
            self.body.push_str("/>\n");
        } else {
            let _ = writeln!(self.body, "><title>{}</title></rect>", escape(tip));
        }
    }

    /// The whole document.
    pub(super) fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}
