//! The closing lines of the log: what the agent did and what it cost.

use super::bpf::intf;
use super::live::Live;
use crate::balancer::MoveOutcome;
use log::info;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) fn log(live: &Live) {
    let percent = 100.0 * live.agent_cpu_ns() as f64 / live.uptime_ns().max(1) as f64;
    let counted = live.allocations().map_or_else(|| "not counted".to_string(), |n| n.to_string());
    info!(
        "agent: {percent:.2} % of one CPU, {} wake-ups; its workers after start: {} minor and {} \
         major page faults, allocations {counted}",
        live.meter(|m| m.wakeups.load(Relaxed)),
        live.meter(|m| m.minor_faults.load(Relaxed)),
        live.meter(|m| m.major_faults.load(Relaxed)),
    );
    let globals = live.tables.globals.read(0);
    let outcomes: Vec<String> = MoveOutcome::ALL
        .iter()
        .zip(globals.outcomes)
        .map(|(outcome, n)| format!("{} {n}", outcome.name()))
        .collect();
    info!("requests: {} issued = {}", globals.issued, outcomes.join(" + "));
    info!(
        "tasks: {} switches, {} pulled by plan, {} direct, {} moved ran on the destination, {} \
         elsewhere",
        live.stat(intf::baton_stat_BATON_STAT_SWITCHES),
        live.stat(intf::baton_stat_BATON_STAT_PULLED),
        live.stat(intf::baton_stat_BATON_STAT_DIRECT),
        live.stat(intf::baton_stat_BATON_STAT_LANDED),
        live.stat(intf::baton_stat_BATON_STAT_DIVERTED),
    );
    if let Some(total) = live.total() {
        info!(
            "balancing: {} passes, {} tasks gained, {} moves undone within 10 ms",
            total.sum(|c| c.lb_count),
            total.sum(|c| c.lb_gained),
            total.moves_undone
        );
    }
    match live.violations() {
        (0, _) => info!("work conservation: no violation"),
        (n, first) => {
            info!("work conservation: {n} violations; the first: {}", first.unwrap_or_default());
        }
    }
}
