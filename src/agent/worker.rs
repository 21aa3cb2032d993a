//! The worker thread: rounds while there is something to balance, sleep while there is not.

use super::clock;
use super::doorbell::Doorbell;
use super::live_host::LiveHost;
use super::report::{Faults, Report};
use crate::balancer::StandIn;
use crate::domains::DomainTree;
use crate::units::Nanos;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest sleep of an idle worker; it also bounds how late it sees that it should quit.
const IDLE_SLEEP: Duration = Duration::from_millis(500);

/// Balances until `quit`.
pub(crate) fn run(
    mut host: LiveHost<'_>,
    doorbell: Doorbell<'_>,
    tree: &DomainTree,
    tick: Nanos,
    quit: &AtomicBool,
) -> Report {
    let mut balancer = StandIn::new(tree);
    // The first round touches everything that later ones touch.
    balancer.round(&mut host);
    let (faults, started, cpu_time) = (Faults::now(), clock::now(), clock::process_cpu_time());
    let mut report = Report::default();
    let mut next = clock::now();
    while !quit.load(Ordering::Relaxed) {
        let summary = balancer.round(&mut host);
        report.rounds += 1;
        report.moved += u64::from(summary.moved);
        if summary.waiting == 0 {
            doorbell.arm();
            if balancer.round(&mut host).waiting == 0 {
                doorbell.wait(IDLE_SLEEP);
                report.sleeps += 1;
            }
            doorbell.disarm();
        }
        // A late round does not make the next ones early: no bursts after a stall.
        let now = clock::now();
        next = if next + tick > now { next + tick } else { now + tick };
        std::thread::sleep(Duration::from_nanos((next - now).0));
    }
    report.faults = Faults::now().since(&faults);
    report.elapsed = clock::now() - started;
    report.cpu_time = clock::process_cpu_time() - cpu_time;
    report
}
