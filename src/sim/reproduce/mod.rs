//! Published results, repeated: paper | simulated | ratio, with the assumptions made. Only
//! `serialize` is calibrated, and says by what; the others run with the costs as they are.

mod nohz;
mod numa;
mod serialize;
mod wasted;

use super::engine::{Setup, Sim};
use super::report::Report;
use crate::policy::tunables::{NewidleCost, NohzMask};
use std::fmt::Write;

/// A published figure beside the simulated one.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What.
    pub what: String,
    /// As published; `None` where the source gives none.
    pub paper: Option<f64>,
    /// As simulated.
    pub simulated: f64,
    /// The range within which it counts as repeated.
    pub wanted: (f64, f64),
}

impl Figure {
    /// Whether it was repeated.
    pub fn holds(&self) -> bool {
        (self.wanted.0..=self.wanted.1).contains(&self.simulated)
    }
}

/// A result repeated.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// Which.
    pub name: &'static str,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What was assumed and what fitted.
    pub assumptions: Vec<String>,
    /// Further tables.
    pub notes: String,
}

/// Those there are.
pub const NAMES: [&str; 4] = ["serialize", "nohz", "numa-imbalance", "wasted-cores"];

/// How large a reproduction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The published machine.
    Full,
    /// Small enough for a test; direction and factor only.
    Small,
}

/// Repeats a result; `None` if there is none of that name.
pub fn reproduce(name: &str, size: Size) -> Option<Reproduction> {
    Some(match name {
        "serialize" => serialize::run(size),
        "nohz" => nohz::run(size),
        "numa-imbalance" => numa::run(size),
        "wasted-cores" => wasted::run(size),
        _ => return None,
    })
}

/// Runs a setup with what kernels have.
fn simulate(mut setup: Setup) -> Report {
    setup.tunables.newidle_cost = NewidleCost::Each;
    setup.tunables.nohz_mask = NohzMask::Global;
    let mut sim = Sim::new(setup);
    sim.run(|_| {});
    Report::of(&sim)
}

impl Reproduction {
    /// Whether all figures were repeated.
    pub fn holds(&self) -> bool {
        self.figures.iter().all(Figure::holds)
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.name);
        let width = self.figures.iter().map(|f| f.what.len()).max().unwrap_or(0);
        let _ = writeln!(
            out,
            "  {:width$}  {:>10}  {:>10}  {:>7}  wanted",
            "", "paper", "simulated", "ratio"
        );
        for f in &self.figures {
            let paper = f.paper.map_or("-".into(), |p| format!("{p:.3}"));
            let ratio = match f.paper {
                Some(p) if p != 0.0 => format!("{:.2}", f.simulated / p),
                _ => "-".into(),
            };
            let high = match f.wanted.1 {
                f64::MAX => String::new(),
                high => format!("{high:.3}"),
            };
            let verdict = if f.holds() { "ok" } else { "NOT REPEATED" };
            let _ = writeln!(
                out,
                "  {:width$}  {paper:>10}  {:>10.3}  {ratio:>7}  {:.3} .. {high}  {verdict}",
                f.what, f.simulated, f.wanted.0
            );
        }
        let _ = writeln!(out, "  Assumptions:");
        for a in &self.assumptions {
            let _ = writeln!(out, "  - {a}");
        }
        out.push_str(&self.notes);
        out
    }
}
