//! What a run came to.

use super::costs::{Cause, Lines};
use super::engine::{Executors, Sim};
use super::machine::{Held, Totals};
use crate::balancer::Violation;
use crate::policy::tunables::Tunables;
use crate::stats::counters::Counters;
use crate::units::{CpuId, Nanos};
use serde::Serialize;
use std::fmt::Write;

/// A cause's part of all CPU time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Share {
    /// Which.
    pub cause: Cause,
    /// In per cent of CPUs × time.
    pub pct: f64,
}

/// The results of one run. Holds nothing that differs between two runs of one seed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Form of the JSON; raised when a field changes its meaning or goes away.
    pub version: u32,
    /// Seed of all random streams.
    pub seed: u64,
    /// CPUs online at the end.
    pub cpus: usize,
    /// How long the machine ran.
    pub duration_ns: u64,
    /// Who balanced.
    pub executors: Executors,
    /// The policy's settings.
    pub settings: Tunables,
    /// Names of the kinds of tasks, in the order of the per-kind sums.
    pub kinds: Vec<String>,
    /// Pieces of work done per second, all kinds.
    pub done_per_s: f64,
    /// Where the CPUs' time went.
    pub shares: Vec<Share>,
    /// The rest: idle, in per cent.
    pub idle_pct: f64,
    /// Sums.
    pub totals: Totals,
    /// What each semaphore held over time.
    #[serde(skip)]
    pub semaphore_waits: Vec<Held>,
    /// Shared lines.
    pub lines: Lines,
    /// Times that a CPU idled too long while work waited elsewhere.
    pub violations: u64,
    /// The longest such time, within the limit or not.
    pub longest_idle_ns: u64,
    /// The first violation.
    pub first_violation: Option<Violation>,
    /// What the balancing passes counted.
    pub counters: Option<Counters>,
}

impl Report {
    /// The results of a finished run.
    pub fn of(sim: &Sim) -> Self {
        let m = &sim.machine;
        let all = (m.width().min(m.online.weight()) as u64 * m.now.0).max(1) as f64;
        let pct = |ns: u64| ns as f64 * 100.0 / all;
        let sum = |cause: Cause| m.cpus.iter().map(|c| c.time[cause as usize]).sum::<u64>();
        let shares = Cause::ALL.map(|cause| Share { cause, pct: pct(sum(cause)) }).to_vec();
        let seconds = m.now.0.max(1) as f64 / 1e9;
        Self {
            version: 1,
            seed: sim.setup.seed,
            cpus: m.online.weight(),
            duration_ns: m.now.0,
            executors: sim.setup.executors,
            settings: sim.setup.tunables,
            kinds: sim.setup.workload.templates.iter().map(|t| t.name.clone()).collect(),
            done_per_s: m.totals.done.iter().sum::<u64>() as f64 / seconds,
            idle_pct: pct(m.cpus.iter().map(|c| c.idle_ns).sum()),
            shares,
            totals: m.totals.clone(),
            semaphore_waits: m.semaphores_held(),
            lines: m.lines.clone(),
            violations: sim.conservation.violations(),
            longest_idle_ns: sim.conservation.longest().0,
            first_violation: sim.conservation.first().copied(),
            counters: sim.counters(),
        }
    }

    /// A cause's share in per cent.
    pub fn share(&self, cause: Cause) -> f64 {
        self.shares.iter().find(|s| s.cause == cause).map_or(0.0, |s| s.pct)
    }

    /// Moves that were undone within 10 ms, in per cent of all moves.
    pub fn undone_pct(&self) -> f64 {
        let moves = self.totals.moves.iter().sum::<u64>();
        let undone = self.counters.as_ref().map_or(0, |c| c.moves_undone);
        if moves == 0 { 0.0 } else { undone as f64 * 100.0 / moves as f64 }
    }

    /// The same as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let seconds = self.duration_ns as f64 / 1e9;
        let t = &self.totals;
        let _ = writeln!(
            out,
            "{} CPUs, {seconds} s of virtual time, seed {}, {} events",
            self.cpus, self.seed, t.events
        );
        let _ = writeln!(out, "\nCPU time");
        for share in &self.shares {
            let _ = writeln!(out, "  {:<18} {:8.3} %", share.cause.name(), share.pct);
        }
        let _ = writeln!(out, "  {:<18} {:8.3} %", "idle", self.idle_pct);
        let _ = writeln!(out, "\nTasks");
        let rate = |n: u64| n as f64 / seconds;
        let _ = writeln!(out, "  work done          {:10.1} /s", self.done_per_s);
        let _ = writeln!(out, "  switches           {:10.1} /s", rate(t.switches));
        let _ = writeln!(out, "  wake-ups           {:10.1} /s", rate(t.wakeups));
        let per_switch = t.waited_ns as f64 / t.switches.max(1) as f64 / 1000.0;
        let _ = writeln!(
            out,
            "  run-queue wait     {per_switch:10.1} us on average, {:.1} us at most",
            t.longest_wait_ns as f64 / 1000.0
        );
        if t.piped_bytes > 0 {
            let speed = t.piped_bytes as f64 / seconds / 1e6;
            let _ = writeln!(out, "  through pipes      {speed:10.1} MB/s");
        }
        let [core, llc, package, far] = t.moves;
        let _ = writeln!(
            out,
            "  moved by balancing {:10}  (core {core}, LLC {llc}, package {package}, far {far}); \
             {:.2} % undone within 10 ms",
            core + llc + package + far,
            self.undone_pct()
        );
        let _ = writeln!(out, "\nShared lines         accesses/s   transfers/s   ns per access");
        let mask =
            self.lines.mask.iter().fold((0, 0, 0), |sum, l| {
                (sum.0 + l.accesses, sum.1 + l.transfers, sum.2 + l.time_ns)
            });
        let (flag, record) = (&self.lines.flag, &self.lines.record);
        for (name, (accesses, transfers, time)) in [
            ("serialize flag", (flag.accesses, flag.transfers, flag.time_ns)),
            ("nohz mask", mask),
            ("nohz record", (record.accesses, record.transfers, record.time_ns)),
        ] {
            let per = time as f64 / accesses.max(1) as f64;
            let _ = writeln!(
                out,
                "  {name:<18} {:11.1} {:13.1} {per:15.1}",
                rate(accesses),
                rate(transfers)
            );
        }
        let _ = writeln!(
            out,
            "\nWork conservation    {} violations, longest idle while work waited {:.2} ms",
            self.violations,
            self.longest_idle_ns as f64 / 1e6
        );
        if let Some(first) = &self.first_violation {
            let at = first.at.0 as f64 / 1e9;
            let _ = writeln!(out, "  first, at {at:.6} s: {first}");
        }
        out
    }

    /// Busy share of each CPU, in per cent.
    pub fn busy_pct(sim: &Sim) -> Vec<(CpuId, f64)> {
        let m = &sim.machine;
        let all = m.now.0.max(1) as f64;
        let busy = |c: CpuId| 100.0 - m.cpus[c.index()].idle_ns as f64 * 100.0 / all;
        m.online.iter().map(|c| (c, busy(c))).collect()
    }

    /// How long the machine ran.
    pub fn duration(&self) -> Nanos {
        Nanos(self.duration_ns)
    }
}
