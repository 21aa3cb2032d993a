//! The record of a comparison: JSON, one entry a line, only ever appended to, so that a crash loses
//! at most the run it interrupted and the comparison can be resumed.

use super::machine::{Counters, Environment};
use super::plan::{MOST_ROUNDS, Phase, Plan, Step};
use super::side::Side;
use super::workload::Workload;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Says what kind of file it is.
pub const FORMAT: &str = "baton-compare";
/// Version of the form; raised when a field changes its meaning or goes away.
pub const VERSION: u32 = 1;

/// What was compared, where and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Start, seconds since 1970.
    pub started_s: f64,
    /// The command line.
    pub command: Vec<String>,
    /// The sides, the baseline first.
    pub sides: Vec<Side>,
    /// The workload.
    pub workload: Workload,
    /// The plan.
    pub plan: Plan,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Whether the sides were switched on one running scheduler.
    pub switched_live: bool,
    /// The machine at the start.
    pub environment: Environment,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its place in the plan.
    #[serde(flatten)]
    pub step: Step,
    /// Start, seconds since 1970.
    pub at_s: f64,
    /// From start to end, seconds.
    pub elapsed_s: f64,
    /// By the workload's metrics; empty if nothing could be read.
    pub scores: Vec<f64>,
    /// What was counted beside the score.
    pub counters: Counters,
    /// Why the run does not count; `None` if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
enum Entry {
    Header(Box<Header>),
    Run(Run),
    /// The comparison went on after a break.
    Resumed {
        at_s: f64,
        boot_id: String,
    },
    /// At a session's end the machine was not as it was at the start.
    Changed {
        at_s: f64,
        what: Vec<String>,
    },
}

/// Longest wait between two runs that is no break, seconds.
const BREAK_S: f64 = 900.0;
/// What a break counts as, seconds.
const SHORT_S: f64 = 30.0;

/// A whole record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was compared.
    pub header: Header,
    /// The runs in the order in which they were made. A run that was made again counts once, as
    /// it was made last.
    pub runs: Vec<Run>,
    /// Boot ids of the sessions after the first.
    #[serde(default)]
    pub resumed: Vec<String>,
    /// What was not as at the start when a session ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

impl Record {
    /// Reads a record, or a report in JSON.
    ///
    /// # Errors
    /// One sentence: not readable, not a record, of a later version.
    pub fn read(path: &Path) -> Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let text = std::fs::read_to_string(path).with_context(context)?;
        Self::parse(&text).with_context(context)
    }

    fn parse(text: &str) -> Result<Self> {
        let report = serde_json::from_str::<serde_json::Value>(text).ok();
        let record = match report.and_then(|mut r| r.get_mut("record").map(serde_json::Value::take))
        {
            Some(record) => {
                serde_json::from_value(record).context("it is no result of `baton compare`")?
            }
            None => Self::from_lines(text)?,
        };
        if record.header.format != FORMAT {
            bail!("it is no record of `baton compare`");
        }
        if record.header.version > VERSION {
            bail!(
                "it is of version {}, this program knows up to {VERSION}: use a newer baton",
                record.header.version
            );
        }
        let plan = &record.header.plan;
        let (sides, metrics) = (record.header.sides.len(), record.header.workload.metrics().len());
        let rounds = Phase::ALL.map(|phase| plan.rounds(phase));
        if plan.sides != sides || plan.loads.is_empty() || rounds.iter().any(|&n| n > MOST_ROUNDS) {
            bail!("its plan is none that `baton compare` makes");
        }
        let fits = |run: &Run| {
            run.step.side < sides
                && run.step.slot < sides.max(2)
                && (run.scores.len() == metrics || run.invalid.is_some())
        };
        if sides < 2 || !record.runs.iter().all(fits) {
            bail!("its runs do not fit its plan");
        }
        Ok(record)
    }

    fn from_lines(text: &str) -> Result<Self> {
        let mut lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        let first = lines.next().and_then(|line| serde_json::from_str(line).ok());
        let Some(Entry::Header(header)) = first else {
            bail!("its first line is no header of `baton compare`");
        };
        let mut record =
            Self { header: *header, runs: Vec::new(), resumed: Vec::new(), changed: Vec::new() };
        for (i, line) in lines.enumerate() {
            match serde_json::from_str(line) {
                Ok(Entry::Run(run)) => record.add(run),
                Ok(Entry::Resumed { boot_id, .. }) => record.resumed.push(boot_id),
                Ok(Entry::Changed { what, .. }) => record.changed.extend(what),
                Ok(Entry::Header(_)) | Err(_) => bail!("its line {} is damaged", i + 2),
            }
        }
        Ok(record)
    }

    /// Adds a run; it takes the place of an earlier one of the same step.
    pub fn add(&mut self, run: Run) {
        self.runs.retain(|r| r.step != run.step);
        self.runs.push(run);
    }

    /// Runs by step, for finding pairs.
    pub fn by_step(&self) -> BTreeMap<(Phase, u32, super::workload::Load, usize), &Run> {
        self.runs
            .iter()
            .map(|r| ((r.step.phase, r.step.round, r.step.load, r.step.slot), r))
            .collect()
    }

    /// The runs that do not count, each with its reason.
    pub fn invalid(&self) -> impl Iterator<Item = (&Run, &str)> {
        self.runs.iter().filter_map(|run| Some((run, run.invalid.as_deref()?)))
    }

    /// When each run began, seconds after the start; breaks between sessions are cut short.
    pub fn times_s(&self) -> Vec<f64> {
        let mut cut = 0.0;
        let mut last_end = self.header.started_s;
        let mut times = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let wait = run.at_s - last_end;
            if wait > BREAK_S {
                cut += wait - SHORT_S;
            }
            times.push(run.at_s - self.header.started_s - cut);
            last_end = run.at_s + run.elapsed_s;
        }
        times
    }

    /// Whether every run of this round has been made.
    pub fn has_round(&self, steps: &[Step]) -> bool {
        steps.iter().all(|step| self.runs.iter().any(|r| r.step == *step))
    }
}

/// Appends to the file of a record.
#[derive(Debug)]
pub struct Recorder {
    file: File,
}

impl Recorder {
    /// Starts a new record.
    ///
    /// # Errors
    /// One sentence: the file exists or cannot be written.
    pub fn create(path: &Path, header: &Header) -> Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path);
        let file = match file {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => bail!(
                "{} exists already: name another file with --record, or go on with --resume",
                path.display()
            ),
            other => {
                other.with_context(|| format!("cannot write the record {}", path.display()))?
            }
        };
        let mut recorder = Self { file };
        recorder.append(&Entry::Header(Box::new(header.clone())))?;
        Ok(recorder)
    }

    /// Opens a record to go on with it; half a line at its end is cut off.
    ///
    /// # Errors
    /// One sentence: the file cannot be written.
    pub fn resume(path: &Path, at_s: f64, boot_id: &str) -> Result<Self> {
        let context = || format!("cannot write the record {}", path.display());
        let mut file =
            OpenOptions::new().read(true).write(true).open(path).with_context(context)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).with_context(context)?;
        let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).with_context(context)?;
        file.seek(SeekFrom::End(0)).with_context(context)?;
        let mut recorder = Self { file };
        recorder.append(&Entry::Resumed { at_s, boot_id: boot_id.into() })?;
        Ok(recorder)
    }

    /// Adds a run.
    ///
    /// # Errors
    /// The disk is full, or similar.
    pub fn run(&mut self, run: &Run) -> Result<()> {
        self.append(&Entry::Run(run.clone()))
    }

    /// Notes that the machine is not as it was.
    ///
    /// # Errors
    /// The disk is full, or similar.
    pub fn changed(&mut self, at_s: f64, what: &[String]) -> Result<()> {
        self.append(&Entry::Changed { at_s, what: what.to_vec() })
    }

    fn append(&mut self, entry: &Entry) -> Result<()> {
        let mut line = serde_json::to_string(entry)?;
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data())
            .context("cannot write the record")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::Length;
    use crate::compare::side::parse_sides;
    use crate::compare::workload::{Load, Scoring, parse_workload};

    fn header() -> Header {
        let sides = parse_sides(&["kernel".into(), "baton".into()]).unwrap();
        Header {
            format: FORMAT.into(),
            version: VERSION,
            started_s: 1.0,
            command: vec!["baton".into()],
            sides,
            workload: parse_workload("hackbench", &Scoring::default()).unwrap(),
            plan: Plan {
                sides: 2,
                loads: vec![Load::Own],
                warmup: 0,
                noise_rounds: 1,
                length: Length::Rounds(1),
            },
            seed: 1,
            switched_live: false,
            environment: Environment::default(),
        }
    }

    fn run(slot: usize, score: f64) -> Run {
        Run {
            step: Step { phase: Phase::Sides, round: 0, load: Load::Own, slot, side: slot },
            at_s: 2.0,
            elapsed_s: score,
            scores: vec![score],
            counters: Counters::new(),
            invalid: None,
        }
    }

    #[test]
    fn what_was_written_is_read_and_half_a_line_is_lost_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let mut recorder = Recorder::create(&path, &header()).unwrap();
        recorder.run(&run(0, 1.5)).unwrap();
        recorder.run(&run(1, 0.1 + 0.2)).unwrap();
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"entry\":\"run\",\"ph");
        std::fs::write(&path, &text).unwrap();
        let record = Record::read(&path).unwrap();
        assert_eq!(
            (&record.header, &record.runs),
            (&header(), &vec![run(0, 1.5), run(1, 0.1 + 0.2)])
        );
        let mut recorder = Recorder::resume(&path, 3.0, "boot").unwrap();
        recorder.run(&run(0, 2.5)).unwrap();
        recorder.changed(4.0, &["governor".into()]).unwrap();
        let record = Record::read(&path).unwrap();
        assert_eq!(
            (&record.resumed[..], &record.changed[..]),
            (&["boot".into()][..], &["governor".into()][..])
        );
        // The run that was made again counts as it was made last.
        assert_eq!(record.runs, [run(1, 0.1 + 0.2), run(0, 2.5)]);
        assert!(Recorder::create(&path, &header()).unwrap_err().to_string().contains("exists"));
    }

    fn empty() -> Record {
        Record { header: header(), runs: Vec::new(), resumed: Vec::new(), changed: Vec::new() }
    }

    #[test]
    fn breaks_are_cut_short() {
        let mut record = empty();
        for (slot, at_s) in [(0, 5.0), (1, 20.0), (2, 90_000.0), (3, 90_010.0)] {
            record.runs.push(Run { at_s, ..run(slot, 10.0) });
        }
        assert_eq!(record.times_s(), [4.0, 19.0, 59.0, 69.0]);
    }

    #[test]
    fn invalid_runs_are_found_with_their_reasons() {
        let mut record = empty();
        record.add(run(0, 1.0));
        assert_eq!(record.invalid().count(), 0);
        let ejected = Run { invalid: Some("ejected".into()), ..run(1, 2.0) };
        record.add(ejected.clone());
        assert_eq!(record.invalid().collect::<Vec<_>>(), [(&ejected, "ejected")]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let line = |entry: &Entry| serde_json::to_string(entry).unwrap() + "\n";
        let later = Header { version: VERSION + 1, ..header() };
        let plan = Plan { sides: 5, ..header().plan };
        let other_sides = Header { plan, ..header() };
        let plan = Plan { length: Length::Rounds(u32::MAX), ..header().plan };
        let endless = Header { plan, ..header() };
        let mut strange = run(0, 1.0);
        strange.step.side = 7;
        let head = line(&Entry::Header(Box::new(header())));
        for (text, part) in [
            (String::new(), "first line is no header"),
            (line(&Entry::Run(run(0, 1.0))), "first line is no header"),
            (line(&Entry::Header(Box::new(later))), "use a newer baton"),
            (line(&Entry::Header(Box::new(other_sides))), "its plan is none"),
            (line(&Entry::Header(Box::new(endless))), "its plan is none"),
            (format!("{head}junk\n"), "line 2 is damaged"),
            (head + &line(&Entry::Run(strange)), "do not fit"),
            ("{\"record\": 3}".into(), "no result of `baton compare`"),
        ] {
            let error = format!("{:#}", Record::parse(&text).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
