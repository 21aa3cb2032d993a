//! What is run on each side, and how its score is read.
//!
//! A workload turns a load level into an [`Invocation`]; whoever runs it gives back the output,
//! and the workload reads the [`Metric`]s from that.

mod command;
mod latency;
mod oltp;
mod parse;
mod throughput;

pub use command::{CommandWorkload, Extract};
pub use latency::Wakeup;
pub(crate) use oltp::{DATABASE, MARIADB_SOCKET, POSTGRES_USER};
pub use oltp::{Database, Oltp, OltpMix, Server};
pub use parse::{Scoring, parse_workload};
pub use throughput::{Hackbench, Pipe};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How hard the machine is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// What the workload's own options say.
    Own,
    /// Half as many runnable tasks as CPUs.
    Below,
    /// As many as CPUs.
    At,
    /// Four times as many.
    Above,
    /// In the workload's own unit: groups, clients, threads, pairs.
    Amount(u32),
}

impl Load {
    /// Reads a level as given on the command line.
    pub fn parse(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("below", _) => Ok(Self::Below),
            ("at", _) => Ok(Self::At),
            ("above", _) => Ok(Self::Above),
            (_, Ok(n @ 1..=100_000)) => Ok(Self::Amount(n)),
            _ => Err("a level is below, at, above (saturation) or a number from 1".into()),
        }
    }

    /// Tasks that want to run at once on that many CPUs; `None` if it does not say.
    fn runnable(self, cpus: u32) -> Option<u32> {
        match self {
            Self::Own | Self::Amount(_) => None,
            Self::Below => Some((cpus / 2).max(1)),
            Self::At => Some(cpus),
            Self::Above => Some(4 * cpus),
        }
    }

    /// How many of something that keeps `each` tasks busy; `own` if nothing else is said.
    fn count(self, cpus: u32, each: u32, own: u32) -> u32 {
        match self {
            Self::Amount(n) => n,
            _ => self.runnable(cpus).map_or(own, |tasks| tasks.div_ceil(each).max(1)),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.pad("as given"),
            Self::Below => f.pad("below saturation"),
            Self::At => f.pad("at saturation"),
            Self::Above => f.pad("above saturation"),
            Self::Amount(n) => f.pad(&n.to_string()),
        }
    }
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Times, costs.
    Lower,
    /// Rates.
    Higher,
}

/// A quantity that a workload is scored by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name, unique within the workload.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

impl Metric {
    fn new(name: &str, unit: &str, better: Better) -> Self {
        Self { name: name.into(), unit: unit.into(), better }
    }
}

/// Stands for a fresh directory in [`Invocation::words`].
pub const LOGS: &str = "{logs}";

/// What to execute for one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Program and arguments.
    pub words: Vec<String>,
    /// How many copies run at once; their outputs are read one by one.
    pub copies: u32,
    /// Whether pgbench's logs of transactions are to be read; [`LOGS`] in `words` stands for the
    /// directory they go to.
    pub latency_logs: bool,
}

impl Invocation {
    fn one(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), copies: 1, latency_logs: false }
    }
}

/// What a run printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Printed {
    /// Standard output of each copy.
    pub stdout: Vec<String>,
    /// From start to end, seconds.
    pub elapsed_s: f64,
    /// Latencies from logs, milliseconds.
    pub latencies_ms: Vec<f64>,
}

/// A program that a workload needs, and where Debian keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The program; any of these names will do.
    pub programs: &'static [&'static str],
    /// Debian's package.
    pub package: &'static str,
}

/// A workload with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Workload {
    /// Groups of senders and receivers.
    Hackbench(Hackbench),
    /// Transactions on a database server.
    Oltp(Oltp),
    /// Wake-up latency of timed threads.
    Wakeup(Wakeup),
    /// Two tasks that wake each other through pipes.
    Pipe(Pipe),
    /// Anything else.
    Cmd(CommandWorkload),
}

impl Workload {
    /// What it is scored by, the main one first.
    pub fn metrics(&self) -> Vec<Metric> {
        match self {
            Self::Hackbench(_) => vec![Metric::new("time", "s", Better::Lower)],
            Self::Oltp(_) => vec![
                Metric::new("throughput", "transactions/s", Better::Higher),
                Metric::new("p95 latency", "ms", Better::Lower),
            ],
            Self::Wakeup(_) => latency::metrics(),
            Self::Pipe(_) => vec![Metric::new("round trip", "us", Better::Lower)],
            Self::Cmd(c) => vec![c.metric.clone()],
        }
    }

    /// The programs it cannot do without.
    pub fn needs(&self) -> Vec<Needed> {
        match self {
            Self::Hackbench(_) => vec![Needed { programs: &["hackbench"], package: "rt-tests" }],
            Self::Oltp(o) => o.needs(),
            Self::Wakeup(_) => vec![Needed { programs: &["cyclictest"], package: "rt-tests" }],
            Self::Pipe(_) => vec![Needed { programs: &["perf"], package: "linux-perf" }],
            Self::Cmd(_) => Vec::new(),
        }
    }

    /// What to execute at this load on that many CPUs. `server` is the database server, where
    /// there is one.
    pub fn invocation(&self, load: Load, cpus: u32, server: Option<&Server>) -> Result<Invocation> {
        Ok(match self {
            Self::Hackbench(h) => h.invocation(load, cpus),
            Self::Oltp(o) => o.invocation(load, cpus, server)?,
            Self::Wakeup(w) => w.invocation(load, cpus),
            Self::Pipe(p) => p.invocation(load, cpus),
            Self::Cmd(c) => c.invocation(load, cpus),
        })
    }

    /// The score by each of [`Self::metrics`], or what is missing in the output. Scores are above
    /// 0: pairs are compared by their ratio, and a side that got nothing done must not be left out
    /// in silence.
    pub fn score(&self, printed: &Printed) -> Result<Vec<f64>, String> {
        let scores = match self {
            Self::Hackbench(_) => throughput::hackbench_score(printed),
            Self::Oltp(o) => o.score(printed),
            Self::Wakeup(_) => latency::score(printed),
            Self::Pipe(_) => throughput::pipe_score(printed),
            Self::Cmd(c) => c.score(printed),
        }?;
        match scores.iter().zip(self.metrics()).find(|(s, _)| !s.is_finite() || **s <= 0.0) {
            Some((score, metric)) => {
                Err(format!("a {} of {score} cannot be compared by ratio", metric.name))
            }
            None => Ok(scores),
        }
    }

    /// Options that change what is measured, in one line.
    pub fn title(&self) -> String {
        match self {
            Self::Hackbench(h) => h.title(),
            Self::Oltp(o) => o.title(),
            Self::Wakeup(w) => w.title(),
            Self::Pipe(p) => format!("perf bench sched pipe, {} round trips", p.loops),
            Self::Cmd(c) => c.command.clone(),
        }
    }
}

/// The number after `before` in `text`, up to the next character that is no part of one.
fn number_after(text: &str, before: &str) -> Option<f64> {
    let rest = text.split_once(before)?.1.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The first copy's output.
fn first(printed: &Printed) -> &str {
    printed.stdout.first().map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_the_number_of_cpus() {
        let of = |load: Load| load.count(8, 2, 5);
        assert_eq!([Load::Own, Load::Below, Load::At, Load::Above].map(of), [5, 2, 4, 16]);
        assert_eq!(of(Load::Amount(3)), 3);
        assert_eq!(Load::Below.count(1, 2, 5), 1);
        assert_eq!(Load::parse("12"), Ok(Load::Amount(12)));
        assert!(Load::parse("0").is_err() && Load::parse("high").is_err());
    }

    #[test]
    fn a_side_that_gets_nothing_done_has_no_score() {
        let of = |text: &str| {
            let printed = Printed { stdout: vec![text.into()], ..Printed::default() };
            parse_workload("oltp", &Scoring::default()).unwrap().score(&printed)
        };
        let text = "transactions: 5 (0.00 per sec.)\n95th percentile: 1.5\n";
        assert_eq!(of(text), Err("a throughput of 0 cannot be compared by ratio".into()));
        assert_eq!(of(&text.replace("0.00", "0.25")), Ok(vec![0.25, 1.5]));
    }

    #[test]
    fn numbers_are_found_behind_their_label() {
        assert_eq!(number_after("x\nTime: 1.25\n", "Time:"), Some(1.25));
        assert_eq!(number_after("Time: none", "Time:"), None);
    }
}
