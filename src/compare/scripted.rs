//! A machine that follows a script: for trying the whole command without root and in no time.
//!
//! Scores scatter around a mean per scheduler; faults happen at chosen runs. It keeps the state a
//! real one would have, so that a session that forgets to start, stop or switch something is found
//! out.

use super::machine::{Charge, Counters, Environment, Job, Machine, Observation, Sight};
use super::side::{Scheduler, Side};
use super::workload::{Printed, Server, Workload};
use crate::topology::synthetic;
use anyhow::{Context, Result, bail};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fault {
    /// The kernel ends the scheduler.
    Ejected,
    /// The scheduler's process is killed, and the kernel has not noticed yet at the run's end.
    Killed,
    /// Somebody changes a setting.
    Settings,
    /// The tasks are with another scheduler.
    Charge,
    /// The workload fails.
    Workload,
    /// The scheduler does not start.
    Start,
    /// Somebody changes the frequency governor.
    Governor,
    /// Ctrl-C.
    Interrupt,
    /// This program dies.
    Crash,
}

/// The script, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    /// Mean score by scheduler: `kernel`, `baton`, `baton --flag=value …`, or a command.
    means: BTreeMap<String, f64>,
    /// Standard deviation as a share of the mean.
    #[serde(default)]
    noise: f64,
    #[serde(default)]
    seed: u64,
    /// What the workload prints; `{score}` stands for the score.
    #[serde(default = "hackbench")]
    prints: String,
    /// By number of the run, counted from 1.
    #[serde(default)]
    faults: BTreeMap<u32, Fault>,
    /// File to which everything that is done is appended.
    #[serde(default)]
    log: Option<PathBuf>,
}

fn hackbench() -> String {
    "Time: {score}\n".into()
}

/// The machine.
pub struct Scripted {
    script: Script,
    rng: Pcg64,
    runs: u32,
    now_s: f64,
    sight: Sight,
    governor: &'static str,
    /// Whether a scheduler that was started was not yet stopped.
    started: Option<Scheduler>,
}

impl Scripted {
    /// Reads a script.
    ///
    /// # Errors
    /// One sentence.
    pub fn read(path: &Path) -> Result<Self> {
        let context = || format!("cannot read the script {}", path.display());
        let text = std::fs::read_to_string(path).with_context(context)?;
        let script: Script = serde_json::from_str(&text).with_context(context)?;
        let rng = Pcg64::seed_from_u64(script.seed);
        let sight = Sight { state: "disabled".into(), enable_seq: Some(0), ..Sight::default() };
        Ok(Self {
            script,
            rng,
            runs: 0,
            now_s: 1.7e9,
            sight,
            governor: "performance",
            started: None,
        })
    }

    fn log(&self, what: &str) -> Result<()> {
        let Some(path) = &self.script.log else { return Ok(()) };
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{what}").context("cannot write the script's log")
    }

    fn fault(&self) -> Option<Fault> {
        self.script.faults.get(&(self.runs + 1)).copied()
    }

    /// The name of what is in force, by the state of this machine, not by what it was told.
    fn in_force(&self) -> String {
        match (&self.started, &self.sight.settings) {
            (Some(Scheduler::Baton { load_options, .. }), Some(settings)) => {
                let real = Scheduler::Baton {
                    load_options: load_options.clone(),
                    settings: settings.clone(),
                };
                std::iter::once("baton".to_string())
                    .chain(real.baton_arguments())
                    .collect::<Vec<_>>()
                    .join(" ")
            }
            (Some(Scheduler::Command { words }), _) => words.join(" "),
            _ => "kernel".into(),
        }
    }

    /// A standard normal number: the sum of twelve uniform ones less their mean.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.rng.random::<f64>()).sum::<f64>() - 6.0
    }

    fn eject(&mut self) {
        self.sight = Sight {
            state: "disabled".into(),
            enable_seq: self.sight.enable_seq,
            ..Sight::default()
        };
    }
}

impl Machine for Scripted {
    fn check(&mut self, _: &Workload, _: &[Side]) -> Result<()> {
        Ok(())
    }

    fn environment(&mut self, _: &Workload) -> Result<Environment> {
        let topology = synthetic::parse("2x4").map_err(|e| anyhow::anyhow!("{e}"))?;
        Ok(Environment {
            kernel: "7.3.4-scripted".into(),
            kernel_build: "#1 SMP scripted".into(),
            command_line: "quiet".into(),
            boot_id: "scripted".into(),
            cpus: topology.online.weight() as u32,
            topology: serde_json::to_value(&topology)?,
            governors: BTreeMap::from([(self.governor.into(), 8)]),
            switches: BTreeMap::from([("numa_balancing".into(), "0".into())]),
            versions: BTreeMap::from([("baton".into(), "scripted".into())]),
        })
    }

    fn prepare(&mut self, workload: &Workload, _: &AtomicBool) -> Result<Option<Server>> {
        self.log("prepare")?;
        let server = matches!(workload, Workload::Oltp(_));
        Ok(server.then(|| Server::Private { dir: "/scripted".into() }))
    }

    fn start(&mut self, scheduler: &Scheduler, _: &AtomicBool) -> Result<()> {
        self.log("start")?;
        if self.fault() == Some(Fault::Start) {
            self.runs += 1;
            bail!("it was scripted not to start");
        }
        if self.sight.state != "disabled" {
            bail!("{} is attached already", self.sight.ops);
        }
        let (ops, settings) = match scheduler {
            Scheduler::Kernel => return Ok(()),
            Scheduler::Baton { settings, .. } => ("baton_scripted", Some(settings.clone())),
            Scheduler::Command { .. } => ("other", None),
        };
        self.started = Some(scheduler.clone());
        self.sight = Sight {
            state: "enabled".into(),
            ops: ops.into(),
            enable_seq: self.sight.enable_seq.map(|n| n + 1),
            epoch: settings.is_some().then_some(0),
            settings,
        };
        Ok(())
    }

    fn set(&mut self, changes: &[String]) -> Result<()> {
        self.log(&format!("set {}", changes.join(" ")))?;
        let Some(settings) = &mut self.sight.settings else { bail!("no scx_baton is running") };
        for change in changes {
            let (name, value) = change.split_once('=').context("not of the form NAME=VALUE")?;
            settings.insert(name.into(), value.into());
        }
        self.sight.epoch = self.sight.epoch.map(|n| n + 1);
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.log("stop")?;
        if self.started.take().is_some() {
            self.eject();
        }
        Ok(())
    }

    fn run(&mut self, job: &Job<'_>, stop: &AtomicBool) -> Result<Option<Observation>> {
        let fault = self.fault();
        self.runs += 1;
        let name = self.in_force();
        self.log(&format!("run {name}"))?;
        let Some(mean) = self.script.means.get(&name).copied() else {
            bail!("the script has no mean for `{name}`");
        };
        let score = mean * (1.0 + self.script.noise * self.normal()).max(0.01);
        let before = self.sight.clone();
        let mut charge = Charge { seen: 40, ours: 0 };
        if self.sight.state == "enabled" {
            charge.ours = 40;
        }
        let (mut failure, mut scheduler_ended) = (None, None);
        let mut after = None;
        match fault {
            Some(Fault::Interrupt) => {
                stop.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Some(Fault::Crash) => std::process::abort(),
            Some(Fault::Ejected) => self.eject(),
            Some(Fault::Killed) => {
                after = Some(Sight { settings: None, epoch: None, ..self.sight.clone() });
                scheduler_ended =
                    self.started.as_ref().map(|_| "it was scripted to be killed".into());
                self.eject();
            }
            Some(Fault::Settings) => self.sight.epoch = self.sight.epoch.map(|n| n + 1),
            Some(Fault::Charge) => charge.ours = 40 - charge.ours,
            Some(Fault::Workload) => failure = Some("it was scripted to fail".into()),
            Some(Fault::Governor) => self.governor = "powersave",
            Some(Fault::Start) | None => {}
        }
        self.now_s += score + 1.0;
        let mut counters = Counters::from([("context switches /s".to_string(), 1e4 / score)]);
        counters.insert("utilisation node 0 %".into(), 80.0);
        if matches!(job.scheduler, Scheduler::Baton { .. }) {
            counters.insert("agent CPU %".into(), 1.5);
            counters.insert("lb_count /s".into(), 120.0);
        }
        let stdout = self.script.prints.replace("{score}", &format!("{score:.6}"));
        let copies = job.invocation.copies.max(1) as usize;
        let printed =
            Printed { stdout: vec![stdout; copies], elapsed_s: score, latencies_ms: vec![score] };
        let after = after.unwrap_or_else(|| self.sight.clone());
        Ok(Some(Observation { printed, failure, before, after, scheduler_ended, charge, counters }))
    }

    fn clean_up(&mut self) -> Result<()> {
        self.log("clean up")
    }

    fn now_s(&self) -> f64 {
        self.now_s
    }
}
