//! What a task does: a list of steps, and the objects that tasks meet at.

use super::random::Time;
use crate::cpumask::Cpumask;
use crate::units::{Nanos, Weight};
use std::sync::Arc;

/// One step of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Works for this long on a CPU of full capacity.
    Run(Time),
    /// Sleeps (a timer, or I/O).
    Sleep(Time),
    /// Sleeps until the next multiple of the period since the task began.
    Period(Nanos),
    /// Adds one to a semaphore, and wakes the one who has waited longest.
    Post(u32),
    /// Takes one from a semaphore, or waits.
    Wait(u32),
    /// Writes so many bytes to a pipe, or waits for room.
    Write(u32, u32),
    /// Reads so many bytes from a pipe, or waits for them.
    Read(u32, u32),
    /// Takes one lock of a range, at random, or waits for it.
    Lock {
        /// First lock.
        first: u32,
        /// How many.
        nr: u32,
    },
    /// Gives back the lock taken last.
    Unlock,
    /// Waits until as many tasks as the barrier wants are there.
    Barrier(u32),
    /// Starts so many tasks of a template.
    Fork(u32, u32),
    /// May run only there from now on; `None`: anywhere.
    Pin(Option<Cpumask>),
    /// One piece of work is done; counted for the workload's score.
    Done,
    /// Goes back to a step, so many times in all (0: for ever).
    Repeat {
        /// To which step.
        from: u32,
        /// How often the steps are done altogether.
        times: u32,
        /// Which of the task's counters counts.
        counter: u32,
    },
}

/// A kind of task.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Its name, for reports and traces.
    pub name: String,
    /// What it does.
    pub program: Arc<[Op]>,
    /// Its share.
    pub weight: Weight,
    /// Where it may run; `None`: anywhere.
    pub allowed: Option<Cpumask>,
    /// Bytes that it uses again and again, in KiB: what a migration has to fetch.
    pub footprint_kib: u32,
}

/// Tasks of a template that exist from the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Which template.
    pub template: u32,
    /// How many tasks.
    pub nr: u32,
    /// When.
    pub at: Nanos,
    /// Where they begin: on this CPU, or where fork placement puts them.
    pub on: Option<u32>,
}

/// Work that arrives by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Time between two arrivals.
    pub interval: Time,
    /// What an arrival does.
    pub gives: Gives,
}

/// What an arrival does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gives {
    /// Starts a task of a template.
    Task(u32),
    /// Posts a semaphore.
    Post(u32),
}

/// A whole workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// Kinds of tasks.
    pub templates: Vec<Template>,
    /// Tasks that exist from the start.
    pub starts: Vec<Start>,
    /// Work that arrives.
    pub sources: Vec<Source>,
    /// Semaphores, by what they hold at first.
    pub semaphores: Vec<u32>,
    /// Pipes, by their capacity in bytes.
    pub pipes: Vec<u32>,
    /// Locks.
    pub locks: u32,
    /// Barriers, by how many tasks they want.
    pub barriers: Vec<u32>,
}

impl Workload {
    /// Adds a semaphore; its number.
    pub fn semaphore(&mut self, holds: u32) -> u32 {
        self.semaphores.push(holds);
        self.semaphores.len() as u32 - 1
    }

    /// Adds a pipe; its number.
    pub fn pipe(&mut self, capacity: u32) -> u32 {
        self.pipes.push(capacity);
        self.pipes.len() as u32 - 1
    }

    /// Adds a template of nice-0 tasks; its number.
    pub fn template(&mut self, name: impl Into<String>, program: Vec<Op>) -> u32 {
        self.templates.push(Template {
            name: name.into(),
            program: program.into(),
            weight: Weight::NICE_0,
            allowed: None,
            footprint_kib: 64,
        });
        self.templates.len() as u32 - 1
    }

    /// Starts tasks of a template at time zero.
    pub fn start(&mut self, template: u32, nr: u32) {
        self.starts.push(Start { template, nr, at: Nanos::ZERO, on: None });
    }
}

/// Repeats all steps for ever.
pub fn forever(mut program: Vec<Op>) -> Vec<Op> {
    program.push(Op::Repeat { from: 0, times: 0, counter: 0 });
    program
}
