//! `baton compare`: is B better than A here?

use super::output::{print, write_file};
use crate::compare::evaluate::{evaluate, precise_enough};
use crate::compare::live::Live;
use crate::compare::machine::Machine;
use crate::compare::plan::{FEWEST_PAIRS, Length, MOST_ROUNDS, Plan, Step};
use crate::compare::record::{FORMAT, Header, Record, Recorder, Run, VERSION};
use crate::compare::report;
use crate::compare::scripted::Scripted;
use crate::compare::session::{Ending, Progress, Session};
use crate::compare::side::{parse_sides, switched_live};
use crate::compare::statistics::median;
use crate::compare::workload::{Better, Load, Scoring, Workload, parse_workload};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use url::Url;

/// Options of `baton compare`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// What to compare, the baseline first: kernel, baton, baton:FLAGS, cmd:COMMAND
    #[arg(value_name = "SIDE", required_unless_present_any = ["from", "resume"])]
    sides: Vec<String>,

    /// What to measure with: hackbench, oltp, wakeup, pipe (options after a colon, see below) or
    /// cmd:COMMAND
    #[arg(short, long, value_name = "WORKLOAD", default_value = "hackbench")]
    workload: String,

    /// cmd: regular expression whose first group is the score; without it and --score-json, the
    /// time counts
    #[arg(long, value_name = "REGEX", conflicts_with = "score_json")]
    score: Option<String>,
    /// cmd: JSON path (RFC 9535) of the score in the output
    #[arg(long, value_name = "PATH")]
    score_json: Option<String>,
    /// cmd: unit of the score
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// cmd: which way is better
    #[arg(long, value_enum)]
    better: Option<Better>,

    /// oltp: use this running server (mysql://USER:PASSWORD@HOST:PORT/DB, postgresql://…) in place
    /// of a private one; tables of sysbench or pgbench are made there and dropped afterwards
    #[arg(long, value_name = "URL")]
    db_url: Option<Url>,

    /// Load levels: below, at, above (saturation) or numbers (groups, clients, threads, pairs);
    /// without it, as the workload's options say
    #[arg(short, long, value_name = "LEVEL,…", value_delimiter = ',', value_parser = Load::parse)]
    load: Vec<Load>,

    /// Rounds; each runs every side once at every load
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    rounds: u32,
    /// Go on until every interval is at most this many per cent to either side (at least 6 rounds)
    #[arg(long, value_name = "PERCENT", value_parser = precision, conflicts_with = "rounds")]
    until: Option<f64>,
    /// With --until: most rounds
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(6..=i64::from(MOST_ROUNDS)), requires = "until")]
    max_rounds: u32,
    /// Rounds of the baseline against itself, first; fewer than 3 leave the noise unknown and
    /// every row without a call
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=i64::from(MOST_ROUNDS)))]
    aa_rounds: u32,
    /// Runs of each side that are not counted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100))]
    warmup: u32,
    /// Seed of the bootstrap; the same record and seed give the same result
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// File that keeps every run as it is made [default: compare-TIME.jsonl here]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "resume"])]
    record: Option<PathBuf>,
    /// Go on with a comparison that was broken off
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "sides", "workload", "load", "rounds", "until", "aa_rounds", "warmup", "seed"])]
    resume: Option<PathBuf>,
    /// Run nothing; show the result in FILE (a record or a report in JSON) again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sides", "workload", "load", "rounds", "until", "aa_rounds", "warmup", "seed"])]
    from: Option<PathBuf>,

    /// Also write the result as JSON, with every sample; - for standard output, without the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write every run as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with pictures (one file, no network)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// No progress
    #[arg(short, long)]
    quiet: bool,

    /// For tests: a scripted machine in place of this one
    #[arg(long, value_name = "FILE", hide = true)]
    scripted: Option<PathBuf>,
}

const HELP: &str = "\
Workloads and their options (defaults in parentheses):
  hackbench:groups=N (4),loops=N (100),fds=N (20),pipes|sockets,processes|threads
  oltp:mariadb|postgresql,read_only|read_write,clients=N (8),seconds=N (12),tables=N (2),rows=N (2000)
  wakeup:threads=N (4),interval_us=N (5000),loops=N (1000)
  pipe:pairs=N (1),loops=N (20000),threads
  cmd:COMMAND  with {load} for the load, and --score or --score-json, --unit, --better

Examples:
  baton compare kernel baton --html result.html
  baton compare baton:--serialize-order=always baton -w pipe --load below,at,above
  baton compare kernel 'cmd:scx_rusty' -w 'cmd:./bench' --score 'tps: (\\S+)' --better higher

Exit status: 0 as planned, 1 broken off (interrupted, or a side's runs kept being invalid), 2 errors.
docs/compare.md tells the method.";

fn precision(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(p) if (0.01..=100.0).contains(&p) => Ok(p / 100.0),
        _ => Err("a number of per cent from 0.01 to 100".into()),
    }
}

/// Runs `baton compare`; `false` if the comparison was broken off.
pub fn run(args: &Args) -> Result<bool> {
    if let Some(file) = &args.from {
        show(&Record::read(file)?, args)?;
        return Ok(true);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("SIGINT and SIGTERM cannot be handled")?;
    let mut machine: Box<dyn Machine> = match &args.scripted {
        Some(script) => Box::new(Scripted::read(script)?),
        None => Box::new(Live::new(args.db_url.clone())?),
    };
    let (record, recorder, path) = match &args.resume {
        Some(path) => resume(path, args, machine.as_mut())?,
        None => start(args, machine.as_mut())?,
    };
    let mut progress = Bar::new(&record, args.quiet);
    let session = Session::new(machine.as_mut(), record, recorder, &mut progress, &stop);
    let ended = session.run();
    progress.bar.finish_and_clear();
    let (record, ending) = ended.with_context(|| {
        format!("broken off; go on with `baton compare --resume {}`", path.display())
    })?;
    show(&record, args)?;
    warn_if_short(&record);
    if !record.changed.is_empty() {
        eprintln!("baton: the machine changed meanwhile: {}", record.changed.join("; "));
    }
    match &ending {
        Ending::Complete => warn_if_imprecise(&record),
        Ending::Interrupted => {
            eprintln!("baton: interrupted; go on with `baton compare --resume {}`", path.display())
        }
        Ending::GivenUp(side, reason) => {
            eprintln!("baton: given up: the runs of `{side}` kept being invalid: {reason}");
        }
    }
    Ok(ending == Ending::Complete)
}

/// What a run takes beside its work weighs the more the shorter it is.
fn warn_if_short(record: &Record) {
    const SHORT_S: f64 = 0.2;
    let elapsed: Vec<f64> =
        record.runs.iter().filter(|r| r.invalid.is_none()).map(|r| r.elapsed_s).collect();
    if let Some(median) = median(&elapsed).filter(|m| *m < SHORT_S) {
        eprintln!(
            "baton: a run takes only {median:.3} s, so that starting it weighs much: give the \
             workload more to do"
        );
    }
}

fn warn_if_imprecise(record: &Record) {
    if let Length::Until { precision, at_most } = record.header.plan.length
        && !precise_enough(record, precision)
    {
        eprintln!("baton: after {at_most} rounds not every interval is as narrow as asked for");
    }
}

fn workload(args: &Args) -> Result<Workload> {
    let scoring = Scoring {
        regex: args.score.clone(),
        json: args.score_json.clone(),
        unit: args.unit.clone(),
        better: args.better,
    };
    let mut workload = parse_workload(&args.workload, &scoring)?;
    match (&mut workload, &args.db_url) {
        (Workload::Oltp(oltp), Some(url)) => oltp.url = Some(without_password(url)),
        (_, Some(_)) => bail!("--db-url belongs to the oltp workload"),
        (_, None) => {}
    }
    Ok(workload)
}

fn without_password(url: &Url) -> String {
    let mut url = url.clone();
    // It fails only for URLs that cannot have one.
    let _ = url.set_password(None);
    url.to_string()
}

fn start(args: &Args, machine: &mut dyn Machine) -> Result<(Record, Recorder, PathBuf)> {
    let sides = parse_sides(&args.sides)?;
    let workload = workload(args)?;
    machine.check(&workload, &sides)?;
    if let Workload::Cmd(command) = &workload
        && !args.load.is_empty()
        && !command.takes_load()
    {
        bail!("--load has no effect on this command: write {{load}} where it takes it");
    }
    let mut loads: Vec<Load> = Vec::new();
    for load in &args.load {
        if !loads.contains(load) {
            loads.push(*load);
        }
    }
    if loads.is_empty() {
        loads.push(Load::Own);
    }
    let length = match args.until {
        Some(precision) => Length::Until { precision, at_most: args.max_rounds },
        None => Length::Rounds(args.rounds),
    };
    let plan = Plan {
        sides: sides.len(),
        loads,
        warmup: args.warmup,
        noise_rounds: args.aa_rounds,
        length,
    };
    if (length.at_most() as usize) < FEWEST_PAIRS && !args.quiet {
        eprintln!("baton: fewer than {FEWEST_PAIRS} rounds: every row will be without a call");
    }
    let header = Header {
        format: FORMAT.into(),
        version: VERSION,
        started_s: machine.now_s(),
        command: command_line(),
        switched_live: switched_live(&sides),
        environment: machine.environment(&workload)?,
        sides,
        workload,
        plan,
        seed: args.seed,
    };
    let path = args.record.clone().unwrap_or_else(|| {
        let time: String =
            report::timestamp(header.started_s).chars().filter(char::is_ascii_digit).collect();
        format!("compare-{time}.jsonl").into()
    });
    let recorder = Recorder::create(&path, &header)?;
    Ok((
        Record { header, runs: Vec::new(), resumed: Vec::new(), changed: Vec::new() },
        recorder,
        path,
    ))
}

/// The command line without the password of a database.
fn command_line() -> Vec<String> {
    let clean = |word: String| match word.split_once("://") {
        Some(_) => {
            let (option, url) = word.split_once('=').unwrap_or(("", &word));
            match Url::parse(url) {
                Ok(url) if option.is_empty() => without_password(&url),
                Ok(url) => format!("{option}={}", without_password(&url)),
                Err(_) => word,
            }
        }
        None => word,
    };
    std::env::args_os().map(|word| clean(word.to_string_lossy().into_owned())).collect()
}

fn resume(
    path: &Path,
    args: &Args,
    machine: &mut dyn Machine,
) -> Result<(Record, Recorder, PathBuf)> {
    let mut record = Record::read(path)?;
    machine.check(&record.header.workload, &record.header.sides)?;
    let here = machine.environment(&record.header.workload)?;
    let changed = record.header.environment.changed(&here);
    if !changed.is_empty() {
        bail!(
            "{} was measured under other conditions ({}): restore them, or start a new comparison",
            path.display(),
            changed.join("; ")
        );
    }
    if let Workload::Oltp(oltp) = &record.header.workload
        && oltp.url != args.db_url.as_ref().map(without_password)
    {
        match &oltp.url {
            Some(url) => bail!("this comparison used {url}: give it again with --db-url"),
            None => bail!("this comparison used a private server: leave out --db-url"),
        }
    }
    let recorder = Recorder::resume(path, machine.now_s(), &here.boot_id)?;
    record.resumed.push(here.boot_id);
    Ok((record, recorder, path.into()))
}

/// Shows the result in all forms that are asked for.
fn show(record: &Record, args: &Args) -> Result<()> {
    let evaluation = evaluate(record);
    let to_stdout = |file: &Option<PathBuf>| file.as_deref() == Some(Path::new("-"));
    let put = |file: &Option<PathBuf>, text: &dyn Fn() -> Result<String>| match file {
        None => Ok(()),
        Some(file) if file == Path::new("-") => print(&text()?),
        Some(file) => write_file(file, &text()?),
    };
    if ![&args.json, &args.csv, &args.html].into_iter().any(to_stdout) {
        print(&report::text(record, &evaluation))?;
    }
    put(&args.json, &|| {
        let json = report::Json { version: report::JSON_VERSION, record, evaluation: &evaluation };
        let mut text = serde_json::to_string_pretty(&json).context("cannot form JSON")?;
        text.push('\n');
        Ok(text)
    })?;
    put(&args.csv, &|| report::csv(record))?;
    put(&args.html, &|| Ok(report::html(record, &evaluation)))
}

/// A bar on a terminal, else a line for each run.
struct Bar {
    bar: ProgressBar,
    names: Vec<String>,
    unit: String,
    lines: bool,
    done: usize,
}

impl Bar {
    fn new(record: &Record, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if terminal && !quiet {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}  left {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let metric = record.header.workload.metrics().into_iter().next();
        Self {
            bar,
            names: record.header.sides.iter().map(|s| s.name.clone()).collect(),
            unit: metric.map(|m| m.unit).unwrap_or_default(),
            lines: !terminal && !quiet,
            done: 0,
        }
    }

    fn place(&self, step: &Step) -> String {
        let round = step.round + 1;
        format!("{} {round}, load {}, {}", step.phase.title(), step.load, self.names[step.side])
    }
}

impl Progress for Bar {
    fn ahead(&mut self, runs: usize) {
        self.bar.set_length(runs as u64);
        self.bar.enable_steady_tick(std::time::Duration::from_secs(1));
    }

    fn begin(&mut self, step: &Step) {
        self.bar.set_message(self.place(step));
    }

    fn end(&mut self, run: &Run) {
        self.bar.inc(1);
        self.done += 1;
        if !self.lines {
            return;
        }
        let result = match (&run.invalid, run.scores.first()) {
            (Some(reason), _) => format!("invalid: {reason}"),
            (None, Some(score)) => format!("{score:.4} {}", self.unit),
            (None, None) => String::new(),
        };
        let left = self.bar.eta().as_secs();
        let all = self.bar.length().unwrap_or_default();
        eprintln!("{}/{all} (left {left} s) {}: {result}", self.done, self.place(&run.step));
    }
}
