//! Scenario files: a workload, and optionally a machine and settings, in TOML.
//!
//! ```toml
//! machine = "2x1x8 smt=2 dist=10,21"
//! duration = "1s"
//! semaphores = { ready = 0 }
//! pipes = { p = 65536 }
//! barriers = { b = 4 }
//! locks = { table = 8 }
//! policy = { serialize-order = "due" }
//! costs = { line-costs = "milan", cost-switch = 2000 }
//!
//! [[task]]
//! name = "worker"
//! count = 16
//! nice = 0
//! cpus = "0-7"
//! steps = ["run exp 200us", "sleep 1ms", "post ready", "done"]
//!
//! [[generator]]
//! kind = "hackbench"
//! groups = 2
//! loops = 100
//!
//! [[change]]
//! at = "500ms"
//! offline = 3
//! ```
//!
//! A task's steps repeat `loop` times (0, the default: for ever). Steps: `run TIME`, `sleep TIME`,
//! `period TIME`, `post SEMAPHORE`, `wait SEMAPHORE`, `write PIPE BYTES`, `read PIPE BYTES`,
//! `lock LOCKS`, `unlock`, `barrier BARRIER`, `fork TASK COUNT`, `pin CPUS`, `unpin`, `done`. TIME is
//! `5ms`, `exp 5ms` or `1ms..3ms`.

use super::engine::Change;
use super::generators;
use super::program::{Op, Start, Workload};
use super::random::{Time, parse_nanos};
use crate::cpumask::Cpumask;
use crate::units::{CpuId, Nanos, Weight};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// Weights by nice level from -20 up (kernel: `sched_prio_to_weight`).
const NICE_WEIGHTS: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// A nice level's weight.
pub fn nice_weight(nice: i32) -> Option<Weight> {
    usize::try_from(nice + 20).ok().and_then(|i| NICE_WEIGHTS.get(i)).map(|&w| Weight(w))
}

/// What a file gives.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The machine, in the grammar of synthetic topologies.
    pub machine: Option<String>,
    /// How long it runs.
    pub duration: Option<Nanos>,
    /// What runs.
    pub workload: Workload,
    /// Settings of the policy, `NAME=VALUE`.
    pub policy: Vec<(String, String)>,
    /// Costs, name and value.
    pub costs: Vec<(String, String)>,
    /// Planned changes.
    pub changes: Vec<(Nanos, Change)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    machine: Option<String>,
    duration: Option<Spanned<String>>,
    #[serde(default)]
    semaphores: BTreeMap<String, u32>,
    #[serde(default)]
    pipes: BTreeMap<String, u32>,
    #[serde(default)]
    barriers: BTreeMap<String, u32>,
    #[serde(default)]
    locks: BTreeMap<String, u32>,
    #[serde(default)]
    policy: BTreeMap<String, Scalar>,
    #[serde(default)]
    costs: BTreeMap<String, Scalar>,
    #[serde(default)]
    task: Vec<TaskSpec>,
    #[serde(default)]
    generator: Vec<Generator>,
    #[serde(default)]
    change: Vec<ChangeSpec>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Number(u64),
    Text(String),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Self::Number(n) => n.to_string(),
            Self::Text(text) => text,
        }
    }
}

fn one() -> u32 {
    1
}

fn footprint() -> u32 {
    64
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskSpec {
    name: Spanned<String>,
    #[serde(default = "one")]
    count: u32,
    nice: Option<Spanned<i32>>,
    cpus: Option<Spanned<String>>,
    start: Option<Spanned<String>>,
    on: Option<u32>,
    #[serde(default, rename = "loop")]
    times: u32,
    #[serde(default = "footprint")]
    footprint_kib: u32,
    steps: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Generator {
    Hackbench { groups: u32, loops: u32 },
    Oltp { clients: u32, work: Time, io: Time, locks: u32 },
    PipePair { on: Option<u32> },
    Hogs { count: u32 },
    Make { jobs: u32, mean: Time },
    Sparse { count: u32, run: Time, sleep: Time },
    RequestReply { servers: u32, interval: Time, work: Time },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeSpec {
    at: Spanned<String>,
    offline: Option<u32>,
    online: Option<u32>,
    clock: Option<Spanned<String>>,
}

/// Where in the file something is wrong: line, field, what was expected.
fn at(text: &str, offset: usize, field: &str, problem: &str) -> String {
    let line = text[..offset.min(text.len())].matches('\n').count() + 1;
    format!("line {line}: {field}: {problem}")
}

/// Names of the objects that steps meet at, by number.
struct Names<'a> {
    file: &'a File,
    locks: BTreeMap<&'a str, (u32, u32)>,
}

impl<'a> Names<'a> {
    fn new(file: &'a File) -> Self {
        let mut first = 0;
        let mut locks = BTreeMap::new();
        for (name, &nr) in &file.locks {
            locks.insert(name.as_str(), (first, nr));
            first += nr;
        }
        Self { file, locks }
    }

    fn find(map: &BTreeMap<String, u32>, kind: &str, name: &str) -> Result<u32, String> {
        map.keys().position(|k| k == name).map(|i| i as u32).ok_or_else(|| {
            let known: Vec<&str> = map.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            format!("`{name}` is not a name in `{kind}`; there are {known}")
        })
    }

    fn step(&self, text: &str) -> Result<Op, String> {
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let rest = text.trim_start().strip_prefix(verb).unwrap_or_default().trim();
        let mut word =
            |what: &str| words.next().ok_or_else(|| format!("`{text}`: `{verb}` wants {what}"));
        let number = |text: &str, what: &str| {
            text.parse::<u32>().map_err(|_| format!("`{text}` is not {what}"))
        };
        Ok(match verb {
            "run" => Op::Run(Time::parse(rest)?),
            "sleep" => Op::Sleep(Time::parse(rest)?),
            "period" => Op::Period(parse_nanos(rest)?),
            "post" => Op::Post(Self::find(&self.file.semaphores, "semaphores", rest)?),
            "wait" => Op::Wait(Self::find(&self.file.semaphores, "semaphores", rest)?),
            "write" | "read" => {
                let pipe = Self::find(&self.file.pipes, "pipes", word("a pipe")?)?;
                let bytes = number(word("a number of bytes")?, "a number of bytes")?;
                if verb == "write" { Op::Write(pipe, bytes) } else { Op::Read(pipe, bytes) }
            }
            "lock" => match self.locks.get(rest) {
                Some(&(first, nr)) => Op::Lock { first, nr },
                None => return Err(format!("`{rest}` is not a name in `locks`")),
            },
            "unlock" => Op::Unlock,
            "barrier" => Op::Barrier(Self::find(&self.file.barriers, "barriers", rest)?),
            "fork" => {
                let name = word("a task")?;
                let found = self.file.task.iter().position(|t| t.name.get_ref() == name);
                let Some(task) = found else { return Err(format!("there is no task `{name}`")) };
                Op::Fork(task as u32, number(word("a number of tasks")?, "a number of tasks")?)
            }
            "pin" => Op::Pin(Some(cpus(rest)?)),
            "unpin" => Op::Pin(None),
            "done" => Op::Done,
            _ => {
                return Err(format!(
                    "`{verb}` is not a step; expected run, sleep, period, post, wait, write, read, \
                     lock, unlock, barrier, fork, pin, unpin or done"
                ));
            }
        })
    }
}

fn cpus(text: &str) -> Result<Cpumask, String> {
    let width = Cpumask::width_of_list(text).map_err(|e| e.to_string())?;
    if width == 0 || width > crate::topology::MAX_CPUS {
        return Err(format!("`{text}` names no CPU"));
    }
    Cpumask::parse_list(text, width).map_err(|e| e.to_string())
}

/// Reads a scenario. The error names line, field and what was expected.
pub fn parse(text: &str) -> Result<Scenario, String> {
    let file: File = toml::from_str(text).map_err(|e| match e.span() {
        Some(span) => {
            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
            format!("line {line}: {}", e.message().replace('\n', "; "))
        }
        None => e.message().to_string(),
    })?;
    let mut scenario = Scenario { machine: file.machine.clone(), ..Scenario::default() };
    let time = |field: &str, value: &Spanned<String>| {
        parse_nanos(value.get_ref()).map_err(|e| at(text, value.span().start, field, &e))
    };
    scenario.duration = file.duration.as_ref().map(|d| time("duration", d)).transpose()?;
    let names = Names::new(&file);
    let w = &mut scenario.workload;
    w.semaphores = file.semaphores.values().copied().collect();
    w.pipes = file.pipes.values().copied().collect();
    w.barriers = file.barriers.values().copied().collect();
    w.locks = file.locks.values().sum();
    for task in &file.task {
        let mut program = Vec::new();
        for step in &task.steps {
            let op = names.step(step.get_ref());
            program.push(op.map_err(|e| at(text, step.span().start, "task.steps", &e))?);
        }
        if program.is_empty() {
            let problem = "expected at least one step";
            return Err(at(text, task.name.span().start, "task.steps", problem));
        }
        program.push(Op::Repeat { from: 0, times: task.times, counter: 0 });
        let template = w.template(task.name.get_ref().clone(), program);
        let kind = &mut w.templates[template as usize];
        kind.footprint_kib = task.footprint_kib;
        if let Some(nice) = &task.nice {
            kind.weight = nice_weight(*nice.get_ref())
                .ok_or_else(|| at(text, nice.span().start, "task.nice", "expected -20 to 19"))?;
        }
        if let Some(list) = &task.cpus {
            let mask = cpus(list.get_ref());
            kind.allowed = Some(mask.map_err(|e| at(text, list.span().start, "task.cpus", &e))?);
        }
        let start = task.start.as_ref().map(|s| time("task.start", s)).transpose()?;
        let start = start.unwrap_or(Nanos::ZERO);
        w.starts.push(Start { template, nr: task.count, at: start, on: task.on });
    }
    for generator in file.generator.iter() {
        generate(w, generator);
    }
    for change in &file.change {
        let when = time("change.at", &change.at)?;
        let what = match (change.offline, change.online, &change.clock) {
            (Some(cpu), None, None) => Change::Offline(CpuId(cpu)),
            (None, Some(cpu), None) => Change::Online(CpuId(cpu)),
            (None, None, Some(ahead)) => Change::Clock(time("change.clock", ahead)?),
            _ => {
                let problem = "expected exactly one of offline, online and clock";
                return Err(at(text, change.at.span().start, "change", problem));
            }
        };
        scenario.changes.push((when, what));
    }
    if w.starts.is_empty() && w.sources.is_empty() {
        return Err("line 1: expected at least one [[task]] or [[generator]]".into());
    }
    let pairs = |map: BTreeMap<String, Scalar>| {
        map.into_iter().map(|(name, value)| (name, value.text())).collect()
    };
    (scenario.policy, scenario.costs) = (pairs(file.policy), pairs(file.costs));
    Ok(scenario)
}

fn generate(w: &mut Workload, generator: &Generator) {
    match *generator {
        Generator::Hackbench { groups, loops } => generators::hackbench(w, groups, loops),
        Generator::Oltp { clients, work, io, locks } => {
            generators::oltp(w, clients, work, io, locks);
        }
        Generator::PipePair { on } => generators::pipe_pair(w, on),
        Generator::Hogs { count } => generators::hogs(w, count),
        Generator::Make { jobs, mean } => generators::make(w, jobs, mean.mean()),
        Generator::Sparse { count, run, sleep } => generators::sparse(w, count, run, sleep),
        Generator::RequestReply { servers, interval, work } => {
            generators::request_reply(w, servers, interval.mean(), work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_is_read() {
        let doc = include_str!("scenario.rs");
        let example = doc.lines().skip_while(|l| *l != "//! ```toml").skip(1);
        let example: String = example
            .take_while(|l| *l != "//! ```")
            .map(|l| l.trim_start_matches("//!").trim_start().to_string() + "\n")
            .collect();
        let scenario = parse(&example).unwrap();
        assert_eq!(scenario.duration, Some(Nanos::from_secs(1)));
        assert_eq!(scenario.workload.starts[0].nr, 16);
        assert_eq!(scenario.workload.templates[0].program.len(), 5);
        assert_eq!(scenario.changes, [(Nanos::from_ms(500), Change::Offline(CpuId(3)))]);
        assert_eq!(scenario.policy, [("serialize-order".to_string(), "due".to_string())]);
    }

    #[test]
    fn what_is_wrong_is_named_with_line_and_field() {
        let cases = [
            (
                "[[task]]\nname = \"a\"\nsteps = [\"run 5\"]",
                "line 3: task.steps: `5` is not a time",
            ),
            (
                "[[task]]\nname = \"a\"\nsteps = [\n\"jump\"]",
                "line 4: task.steps: `jump` is not a step",
            ),
            (
                "[[task]]\nname = \"a\"\nsteps = [\"wait x\"]",
                "line 3: task.steps: `x` is not a name",
            ),
            (
                "[[task]]\nname = \"a\"\nnice = 20\nsteps = [\"done\"]",
                "line 3: task.nice: expected -20",
            ),
            ("[[task]]\nname = \"a\"\ncpus = \"x\"\nsteps = [\"done\"]", "line 3: task.cpus: `x`"),
            ("\nspeed = 3", "line 2: unknown field `speed`, expected one of"),
            ("[[task]]\nname = 3", "line 2: invalid type: integer `3`, expected a string"),
            ("[[generator]]\nkind = \"hogs\"", "line 1: missing field `count`"),
            (
                "[[task]]\nname = \"a\"\nsteps = []",
                "line 2: task.steps: expected at least one step",
            ),
            ("", "line 1: expected at least one [[task]]"),
            ("duration = \"1h\"", "line 1: duration: `1h` is not a time"),
        ];
        for (file, expected) in cases {
            let error = parse(file).unwrap_err();
            assert!(error.starts_with(expected), "{file:?}: {error}");
        }
    }
}
