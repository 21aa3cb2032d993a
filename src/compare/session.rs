//! Makes the runs of a plan, one after the other, and records each.

use super::evaluate::precise_enough;
use super::machine::{Job, Machine, Observation};
use super::plan::{Length, Phase, Plan, Step};
use super::record::{Record, Recorder, Run};
use super::side::{Scheduler, Transition};
use super::validity;
use super::workload::Server;
use anyhow::{Context, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// After so many invalid runs of one side in a row the comparison gives up.
const INVALID_IN_A_ROW: u32 = 3;

/// How a comparison ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As planned.
    Complete,
    /// It was asked to stop.
    Interrupted,
    /// Runs of a side kept being invalid; its name and the last reason.
    GivenUp(String, String),
}

/// Hears what goes on.
pub trait Progress {
    /// So many runs are ahead at most.
    fn ahead(&mut self, runs: usize);
    /// This run begins.
    fn begin(&mut self, step: &Step);
    /// It has ended.
    fn end(&mut self, run: &Run);
}

/// A comparison in progress.
pub struct Session<'a> {
    /// What does the runs.
    pub machine: &'a mut dyn Machine,
    /// Grows with each run.
    pub record: Record,
    /// Where runs are kept.
    pub recorder: Recorder,
    /// Hears what goes on.
    pub progress: &'a mut dyn Progress,
    /// Set to end early.
    pub stop: &'a AtomicBool,
    /// What is in force; `None` if that is not known.
    in_force: Option<Scheduler>,
    invalid_in_a_row: Vec<u32>,
    server: Option<Server>,
}

impl<'a> Session<'a> {
    /// Goes on with what the record holds already.
    pub fn new(
        machine: &'a mut dyn Machine,
        record: Record,
        recorder: Recorder,
        progress: &'a mut dyn Progress,
        stop: &'a AtomicBool,
    ) -> Self {
        let invalid_in_a_row = vec![0; record.header.sides.len()];
        let (in_force, server) = (Some(Scheduler::Kernel), None);
        Self { machine, record, recorder, progress, stop, in_force, invalid_in_a_row, server }
    }

    /// Makes all runs that are still to be made. Whatever happens, the kernel's scheduler is back
    /// in charge afterwards and what was prepared is gone.
    ///
    /// # Errors
    /// What makes every further run pointless: no workload program, no disk.
    pub fn run(mut self) -> Result<(Record, Ending)> {
        let plan = self.record.header.plan.clone();
        if !self.is_anything_left(&plan) {
            return Ok((self.record, Ending::Complete));
        }
        let ended = match self.prepare_and_run(&plan) {
            // What failed then failed because it was told to.
            Err(_) if self.is_told_to_stop() => Ok(Ending::Interrupted),
            other => other,
        };
        let stopped = self.machine.stop();
        let cleaned = self.machine.clean_up();
        let changed = self.note_changes();
        let ending = ended?;
        stopped.context("the kernel's scheduler could not be brought back")?;
        cleaned?;
        changed?;
        Ok((self.record, ending))
    }

    /// Records what of the machine is not as it was at the start (a governor, a CPU).
    fn note_changes(&mut self) -> Result<()> {
        let header = &self.record.header;
        // The result does not depend on this look.
        let Ok(now) = self.machine.environment(&header.workload) else { return Ok(()) };
        let what = header.environment.changed(&now);
        if !what.is_empty() {
            self.recorder.changed(self.machine.now_s(), &what)?;
            self.record.changed.extend(what);
        }
        Ok(())
    }

    /// Whether a round that counts is still to be made.
    fn is_anything_left(&self, plan: &Plan) -> bool {
        let counting = [Phase::Noise, Phase::Sides].into_iter();
        let mut rounds = counting.flat_map(|p| (0..plan.rounds(p)).map(move |r| (p, r)));
        let next = rounds.find(|&(phase, r)| !self.record.has_round(&plan.round(phase, r)));
        next.is_some_and(|(phase, r)| phase != Phase::Sides || !self.is_enough(plan, r))
    }

    fn prepare_and_run(&mut self, plan: &Plan) -> Result<Ending> {
        self.server = self.machine.prepare(&self.record.header.workload, self.stop)?;
        let record = &self.record;
        let ahead: usize = Phase::ALL
            .into_iter()
            .flat_map(|phase| (0..plan.rounds(phase)).map(move |round| (phase, round)))
            .map(|(phase, round)| plan.round(phase, round))
            .filter(|steps| is_due(record, steps))
            .map(|steps| steps.len())
            .sum();
        self.progress.ahead(ahead);
        for phase in Phase::ALL {
            for round in 0..plan.rounds(phase) {
                if phase == Phase::Sides && self.is_enough(plan, round) {
                    return Ok(Ending::Complete);
                }
                let steps = plan.round(phase, round);
                if !is_due(&self.record, &steps) {
                    continue;
                }
                for step in steps {
                    match self.step(step)? {
                        None if self.is_told_to_stop() => return Ok(Ending::Interrupted),
                        None => {}
                        Some(reason) => {
                            let side = self.record.header.sides[step.side].name.clone();
                            return Ok(Ending::GivenUp(side, reason));
                        }
                    }
                }
            }
        }
        Ok(Ending::Complete)
    }

    fn is_told_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_enough(&self, plan: &Plan, rounds: u32) -> bool {
        match plan.length {
            Length::Rounds(_) => false,
            Length::Until { precision, .. } => {
                plan.may_end_after(rounds) && precise_enough(&self.record, precision)
            }
        }
    }

    /// Makes one run and records it, unless it is told to stop meanwhile. Returns a reason to give
    /// up.
    fn step(&mut self, step: Step) -> Result<Option<String>> {
        if self.is_told_to_stop() {
            return Ok(None);
        }
        self.progress.begin(&step);
        let header = &self.record.header;
        let scheduler = header.sides[step.side].scheduler.clone();
        let cpus = header.environment.cpus;
        let invocation = header.workload.invocation(step.load, cpus, self.server.as_ref())?;
        let at_s = self.machine.now_s();
        let mut run = Run {
            step,
            at_s,
            elapsed_s: 0.0,
            scores: Vec::new(),
            counters: Default::default(),
            invalid: None,
        };
        match self.bring_into_force(&scheduler) {
            Ok(()) => {
                run.at_s = self.machine.now_s();
                let job = Job { scheduler: &scheduler, invocation: &invocation };
                match self.machine.run(&job, self.stop)? {
                    Some(observation) => self.judge(&scheduler, observation, &mut run),
                    None => return Ok(None),
                }
            }
            Err(_) if self.is_told_to_stop() => return Ok(None),
            Err(error) => {
                run.invalid = Some(format!("it could not be brought into force: {error:#}"))
            }
        }
        if run.invalid.is_some() {
            // Whatever is wrong, the next run starts afresh.
            self.in_force = None;
        }
        self.recorder.run(&run)?;
        self.progress.end(&run);
        let in_a_row = &mut self.invalid_in_a_row[step.side];
        *in_a_row = if run.invalid.is_some() { *in_a_row + 1 } else { 0 };
        let give_up = run.invalid.clone().filter(|_| *in_a_row >= INVALID_IN_A_ROW);
        self.record.add(run);
        Ok(give_up)
    }

    fn judge(&self, scheduler: &Scheduler, observation: Observation, run: &mut Run) {
        run.elapsed_s = observation.printed.elapsed_s;
        let valid = validity::check(scheduler, &observation);
        match self.record.header.workload.score(&observation.printed) {
            Ok(scores) => {
                run.scores = scores;
                run.invalid = valid.err();
            }
            Err(missing) => run.invalid = Some(valid.err().unwrap_or(missing)),
        }
        run.counters = observation.counters;
    }

    /// Unless all sides are settings of one running scheduler, every run gets a freshly loaded one,
    /// so that the baseline against itself shows what loading adds to the noise.
    fn bring_into_force(&mut self, scheduler: &Scheduler) -> Result<()> {
        let transition = match &self.in_force {
            None => Transition::Reload,
            Some(before) => match scheduler.after(before) {
                Transition::Set(_) if !self.record.header.switched_live => Transition::Reload,
                other => other,
            },
        };
        // Until it has worked, nothing is known.
        self.in_force = None;
        match transition {
            Transition::Stay => {}
            Transition::Set(changes) if changes.is_empty() => {}
            Transition::Set(changes) => self.machine.set(&changes)?,
            Transition::Reload => {
                self.machine.stop()?;
                self.machine.start(scheduler, self.stop)?;
            }
        }
        self.in_force = Some(scheduler.clone());
        Ok(())
    }
}

/// Whether a round is still to be made; a machine that was left alone warms up again.
fn is_due(record: &Record, steps: &[Step]) -> bool {
    steps.first().is_some_and(|s| s.phase == Phase::WarmUp) || !record.has_round(steps)
}
