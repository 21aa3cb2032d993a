//! Statistics through scx_stats: one structure whose descriptions make the JSON, the help and the
//! monitor's lines. Each reader gets the difference to its own last reading.

use super::bpf::intf;
use super::live::Live;
use anyhow::{Context, Result};
use scx_stats::prelude::*;
use scx_stats_derive::Stats;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What happened since the reader last asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    /// Length of the interval.
    #[stat(desc = "length of the interval, seconds")]
    pub interval_s: f64,
    /// CPU use of the agent.
    #[stat(desc = "CPU time of the agent, per cent of one CPU")]
    pub agent_pct: f64,
    /// Balancing attempts.
    #[stat(desc = "balancing attempts at any level")]
    pub passes: u64,
    /// Tasks moved by the balancing passes.
    #[stat(desc = "tasks moved by balancing passes")]
    pub moves: u64,
    /// Moves that were undone at once.
    #[stat(desc = "moves undone within 10 ms (ping-pong)")]
    pub moves_undone: u64,
    /// Tasks pulled by plan.
    #[stat(desc = "tasks pulled by a CPU that would have idled, by its pull plan")]
    pub pulls: u64,
    /// Context switches.
    #[stat(desc = "times a task started to run")]
    pub switches: u64,
    /// Run-queue wait.
    #[stat(desc = "mean time from runnable to running, microseconds")]
    pub wait_us: f64,
    /// Attempts at the serialize flag.
    #[stat(desc = "attempts to take the serialize flag")]
    pub serialize_attempts: u64,
    /// Attempts that failed.
    #[stat(desc = "attempts that found the serialize flag taken")]
    pub serialize_busy: u64,
    /// Page faults of the workers.
    #[stat(desc = "page faults of the agent's workers since they were ready")]
    pub faults: u64,
    /// Allocations of the workers.
    #[stat(desc = "heap allocations of the agent's workers since they were ready")]
    pub allocations: u64,
}

/// Running totals at one reading.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    at_ns: u64,
    agent_ns: u64,
    passes: u64,
    moves: u64,
    moves_undone: u64,
    pulls: u64,
    switches: u64,
    wait_ns: u64,
    serialize_attempts: u64,
    serialize_busy: u64,
    faults: u64,
    allocations: u64,
}

impl Totals {
    fn now(live: &Live) -> Self {
        let mut totals = Self {
            at_ns: live.uptime_ns(),
            agent_ns: live.agent_cpu_ns(),
            pulls: live.stat(intf::baton_stat_BATON_STAT_PULLED),
            switches: live.stat(intf::baton_stat_BATON_STAT_SWITCHES),
            wait_ns: live.stat(intf::baton_stat_BATON_STAT_WAIT_NS),
            faults: live.meter(|m| m.minor_faults.load(Relaxed) + m.major_faults.load(Relaxed)),
            allocations: live.allocations().unwrap_or_default(),
            ..Self::default()
        };
        if let Some(c) = live.total() {
            totals.passes = c.sum(|p| p.lb_count);
            totals.moves = c.sum(|p| p.lb_gained);
            totals.moves_undone = c.moves_undone;
            totals.serialize_attempts = c.sum(|p| p.serialize_attempts);
            totals.serialize_busy = c.sum(|p| p.serialize_busy);
        }
        totals
    }

    fn since(&self, earlier: &Self) -> Metrics {
        let interval_ns = (self.at_ns - earlier.at_ns).max(1);
        let switches = self.switches - earlier.switches;
        let wait_ns = self.wait_ns - earlier.wait_ns;
        Metrics {
            interval_s: interval_ns as f64 / 1e9,
            agent_pct: 100.0 * (self.agent_ns - earlier.agent_ns) as f64 / interval_ns as f64,
            passes: self.passes - earlier.passes,
            moves: self.moves - earlier.moves,
            moves_undone: self.moves_undone - earlier.moves_undone,
            pulls: self.pulls - earlier.pulls,
            switches,
            wait_us: wait_ns as f64 / 1e3 / switches.max(1) as f64,
            serialize_attempts: self.serialize_attempts - earlier.serialize_attempts,
            serialize_busy: self.serialize_busy - earlier.serialize_busy,
            faults: self.faults,
            allocations: self.allocations,
        }
    }
}

fn server_data(live: Option<Arc<Live>>) -> StatsServerData<(), ()> {
    let open: Box<dyn StatsOpener<(), ()>> = Box::new(move |_| {
        let live = live.clone().context("no scheduler to read from")?;
        let mut last = Totals::now(&live);
        let read: Box<dyn StatsReader<(), ()>> = Box::new(move |_args, _| {
            let now = Totals::now(&live);
            let metrics = now.since(&last);
            last = now;
            metrics.to_json()
        });
        Ok(read)
    });
    StatsServerData::new().add_meta(Metrics::meta()).add_ops("top", StatsOps { open, close: None })
}

/// Answers statistics readers until dropped.
pub(crate) struct Server {
    _server: StatsServer<(), ()>,
}

impl Server {
    pub(crate) fn start(live: Arc<Live>) -> Result<Self> {
        let server = StatsServer::new(server_data(Some(live)))
            .launch()
            .context("the statistics socket cannot be opened")?;
        Ok(Self { _server: server })
    }
}

/// Prints what each statistic means.
pub fn describe(out: &mut impl Write) -> Result<()> {
    server_data(None).describe_meta(out, None)
}

/// Prints a line every `interval` from the running scheduler, until `stop`.
pub fn monitor(interval: Duration, stop: &AtomicBool) -> Result<()> {
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || stop.load(Relaxed),
        |m| {
            writeln!(
                std::io::stdout(),
                "agent {:5.2}%  passes {:6}  moves {:5} (undone {:3})  pulls {:6}  switches {:7}  \
                 wait {:8.1} us  serialize {:5} (busy {:4})  faults {} allocs {}",
                m.agent_pct,
                m.passes,
                m.moves,
                m.moves_undone,
                m.pulls,
                m.switches,
                m.wait_us,
                m.serialize_attempts,
                m.serialize_busy,
                m.faults,
                m.allocations
            )
            .context("the statistics cannot be written")
        },
    )
}
