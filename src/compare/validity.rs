//! Whether a run counts. A run that does not measure what its side says is shown with its reason
//! and never averaged.

use super::machine::{Observation, Sight};
use super::side::Scheduler;
use std::collections::BTreeMap;

/// Share of the looks that must find the tasks with their scheduler. Not all: a task may be seen
/// just as it ends.
const IN_CHARGE: f64 = 0.9;

/// Checks a run.
///
/// # Errors
/// Why it does not count.
pub fn check(scheduler: &Scheduler, run: &Observation) -> Result<(), String> {
    attached_before(scheduler, run)?;
    settings_before(scheduler, run)?;
    attached_throughout(scheduler, run)?;
    settings_after(scheduler, run)?;
    in_charge(scheduler, run)?;
    match &run.failure {
        Some(failure) => Err(format!("the workload failed: {failure}")),
        None => Ok(()),
    }
}

fn is_attached(scheduler: &Scheduler, sight: &Sight) -> bool {
    match scheduler {
        Scheduler::Kernel => matches!(sight.state.as_str(), "" | "disabled"),
        Scheduler::Baton { .. } => sight.state == "enabled" && sight.ops.starts_with("baton"),
        Scheduler::Command { .. } => sight.state == "enabled",
    }
}

fn attached_before(scheduler: &Scheduler, run: &Observation) -> Result<(), String> {
    match is_attached(scheduler, &run.before) {
        true => Ok(()),
        false => Err(format!("before the run {}", told(&run.before))),
    }
}

fn attached_throughout(scheduler: &Scheduler, run: &Observation) -> Result<(), String> {
    let Observation { before, after, .. } = run;
    // First: the kernel may not have noticed yet.
    if let Some(how) = &run.scheduler_ended {
        return Err(format!("the scheduler was ejected: its process ended during the run ({how})"));
    }
    if !is_attached(scheduler, after) {
        return Err(match scheduler {
            Scheduler::Kernel => format!("after the run {}", told(after)),
            _ => format!("the scheduler was ejected: after the run {}", told(after)),
        });
    }
    if before.ops != after.ops || before.enable_seq != after.enable_seq {
        return Err("schedulers came and went during the run".into());
    }
    Ok(())
}

fn told(sight: &Sight) -> String {
    let state = if sight.state.is_empty() { "absent" } else { &sight.state };
    match sight.ops.as_str() {
        "" => format!("sched_ext was {state}"),
        ops => format!("sched_ext was {state} with {ops}"),
    }
}

/// All settings that are to be in force; `None` for what has none.
fn wanted(scheduler: &Scheduler) -> Option<&BTreeMap<String, String>> {
    match scheduler {
        Scheduler::Baton { settings, .. } => Some(settings),
        Scheduler::Kernel | Scheduler::Command { .. } => None,
    }
}

fn settings_before(scheduler: &Scheduler, run: &Observation) -> Result<(), String> {
    match (wanted(scheduler), &run.before.settings) {
        (None, _) => Ok(()),
        (Some(wanted), Some(found)) => in_force(wanted, found),
        (Some(_), None) => {
            Err("before the run scx_baton did not say which settings are in force".into())
        }
    }
}

fn settings_after(scheduler: &Scheduler, run: &Observation) -> Result<(), String> {
    let Some(wanted) = wanted(scheduler) else { return Ok(()) };
    let Some(found) = &run.after.settings else {
        return Err("the scheduler was ejected or hangs: after the run it did not say which \
                    settings are in force"
            .into());
    };
    in_force(wanted, found)?;
    if run.before.epoch != run.after.epoch {
        return Err("settings were changed during the run".into());
    }
    Ok(())
}

fn in_force(
    wanted: &BTreeMap<String, String>,
    found: &BTreeMap<String, String>,
) -> Result<(), String> {
    match wanted.iter().find(|(name, value)| found.get(*name) != Some(value)) {
        None => Ok(()),
        Some((name, value)) => {
            let found = found.get(name).map_or("unknown", String::as_str);
            Err(format!("{name} was {found}, not {value}"))
        }
    }
}

fn in_charge(scheduler: &Scheduler, run: &Observation) -> Result<(), String> {
    let charge = run.charge;
    if charge.seen == 0 || scheduler.is_partial() {
        return Ok(());
    }
    let ours = charge.ours as f64 / charge.seen as f64;
    let (right, whose) = match scheduler {
        Scheduler::Kernel => (1.0 - ours, "the kernel's scheduler"),
        _ => (ours, "sched_ext"),
    };
    if right >= IN_CHARGE {
        return Ok(());
    }
    Err(format!("only {:.0} % of the workload's tasks were with {whose}", 100.0 * right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::machine::Charge;
    use crate::compare::side::parse_sides;

    fn schedulers() -> [Scheduler; 3] {
        let sides = ["kernel", "baton:--newidle off", "cmd:x"].map(String::from);
        let sides = parse_sides(&sides).unwrap();
        [0, 1, 2].map(|i| sides[i].scheduler.clone())
    }

    /// A run without fault.
    fn good(scheduler: &Scheduler) -> Observation {
        let mut sight = Sight { state: "enabled".into(), enable_seq: Some(4), ..Sight::default() };
        let mut charge = Charge { seen: 40, ours: 40 };
        match scheduler {
            Scheduler::Kernel => {
                sight.state = "disabled".into();
                charge.ours = 0;
            }
            Scheduler::Baton { settings, .. } => {
                sight.ops = "baton_0.1.0".into();
                sight.settings = Some(settings.clone());
                sight.epoch = Some(2);
            }
            Scheduler::Command { .. } => sight.ops = "rusty".into(),
        }
        Observation { before: sight.clone(), after: sight, charge, ..Observation::default() }
    }

    #[test]
    fn runs_without_fault_count() {
        for scheduler in schedulers() {
            assert_eq!(check(&scheduler, &good(&scheduler)), Ok(()));
        }
        let without_sched_ext = Observation::default();
        assert_eq!(check(&Scheduler::Kernel, &without_sched_ext), Ok(()));
    }

    #[test]
    fn each_fault_is_found_and_named() {
        type Spoil = fn(&mut Observation);
        let [kernel, baton, cmd] = schedulers();
        let cases: [(&Scheduler, Spoil, &str); 14] = [
            (
                &kernel,
                |o| o.before.state = "enabled".into(),
                "before the run sched_ext was enabled",
            ),
            (&kernel, |o| o.after.state = "enabled".into(), "after the run"),
            (&kernel, |o| o.after.enable_seq = Some(5), "came and went"),
            (&kernel, |o| o.charge.ours = 40, "only 0 % of the workload's tasks"),
            (
                &baton,
                |o| o.after.state = "disabled".into(),
                "ejected: after the run sched_ext was disabled",
            ),
            (&baton, |o| o.after.enable_seq = Some(5), "came and went"),
            (
                &baton,
                |o| o.before.ops = "rusty".into(),
                "before the run sched_ext was enabled with rusty",
            ),
            (
                &baton,
                |o| o.before.settings = None,
                "before the run scx_baton did not say which settings are in force",
            ),
            (
                &baton,
                |o| o.after.settings = None,
                "ejected or hangs: after the run it did not say which settings are in force",
            ),
            // Killed: the kernel still calls it enabled, and nobody answers.
            (
                &baton,
                |o| {
                    o.scheduler_ended = Some("signal 9".into());
                    o.after.settings = None;
                },
                "the scheduler was ejected: its process ended during the run (signal 9)",
            ),
            (&baton, |o| o.after.epoch = Some(3), "changed during the run"),
            (
                &cmd,
                |o| o.scheduler_ended = Some("status 1: stall".into()),
                "ejected: its process ended during the run (status 1: stall)",
            ),
            (&cmd, |o| o.charge.ours = 30, "only 75 % of the workload's tasks were with sched_ext"),
            (
                &cmd,
                |o| o.failure = Some("exit status 1".into()),
                "the workload failed: exit status 1",
            ),
        ];
        for (scheduler, spoil, part) in cases {
            let mut run = good(scheduler);
            spoil(&mut run);
            let reason = check(scheduler, &run).unwrap_err();
            assert!(reason.contains(part), "{reason} lacks {part}");
        }
    }

    #[test]
    fn other_settings_than_those_asked_for_are_named() {
        let [_, baton, _] = schedulers();
        let mut run = good(&baton);
        if let Some(settings) = &mut run.before.settings {
            settings.insert("newidle".into(), "plan".into());
        }
        assert_eq!(check(&baton, &run), Err("newidle was plan, not off".into()));
    }
}
