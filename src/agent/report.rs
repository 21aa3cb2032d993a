//! What the agent cost and what became of its requests.

use super::bpf::intf;
use super::loader::Tables;
use crate::balancer::MoveOutcome;
use crate::units::Nanos;
use log::info;

/// Page faults of the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    minor: u64,
    major: u64,
}

impl Faults {
    pub(crate) fn now() -> Self {
        // SAFETY: zeroes are a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is valid for the kernel to write.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
        Self { minor: usage.ru_minflt as u64, major: usage.ru_majflt as u64 }
    }

    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self { minor: self.minor - earlier.minor, major: self.major - earlier.major }
    }
}

/// One run of the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) rounds: u64,
    pub(crate) moved: u64,
    pub(crate) sleeps: u64,
    pub(crate) faults: Faults,
    pub(crate) elapsed: Nanos,
    pub(crate) cpu_time: Nanos,
}

impl Report {
    /// Writes the run's totals to the log.
    pub(crate) fn log(&self, tables: &Tables) {
        let percent = 100.0 * self.cpu_time.0 as f64 / self.elapsed.0.max(1) as f64;
        info!(
            "agent: {} rounds, {} sleeps, {} tasks moved, {percent:.2} % of one CPU, \
             {} minor and {} major page faults after start",
            self.rounds, self.sleeps, self.moved, self.faults.minor, self.faults.major
        );
        let globals = tables.globals.read(0);
        let outcomes: Vec<String> = MoveOutcome::ALL
            .iter()
            .zip(globals.outcomes)
            .map(|(outcome, n)| format!("{outcome:?} {n}"))
            .collect();
        info!("requests: {} issued = {}", globals.issued, outcomes.join(" + "));
        let total = |stat| -> u64 {
            (0..tables.cpus.len()).map(|cpu| tables.cpus.read(cpu).stats[stat as usize]).sum()
        };
        info!(
            "tasks: {} switches, {} pulled by plan, {} direct, {} moved ran on the destination, \
             {} elsewhere",
            total(intf::baton_stat_BATON_STAT_SWITCHES),
            total(intf::baton_stat_BATON_STAT_PULLED),
            total(intf::baton_stat_BATON_STAT_DIRECT),
            total(intf::baton_stat_BATON_STAT_LANDED),
            total(intf::baton_stat_BATON_STAT_DIVERTED),
        );
    }
}
