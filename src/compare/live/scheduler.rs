//! Starting and ending schedulers, and knowing from the kernel that it happened.

use super::kernel::sight;
use super::process::{Options, POLL, Process, find, is_program};
use crate::compare::machine::Sight;
use crate::compare::side::Scheduler;
use crate::control::{Request, ask};
use anyhow::{Result, bail};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a scheduler may take to attach or to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// The scx_baton beside this program, else the one on the PATH.
pub(super) fn baton() -> PathBuf {
    const NAME: &str = "scx_baton";
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|exe| Some(exe.parent()?.join(NAME)));
    beside.filter(|p| is_program(p)).or_else(|| find(NAME)).unwrap_or_else(|| NAME.into())
}

/// A scheduler that was started here.
pub(super) struct Started {
    process: Process,
}

impl Started {
    /// Any process, taken for a scheduler's.
    #[cfg(test)]
    pub(super) fn of(process: Process) -> Self {
        Self { process }
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.group()
    }

    /// How its process ended; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.process.ended()?;
        Some(self.process.failure(status).unwrap_or_else(|| "without an error".into()))
    }

    /// Ends it and waits until the kernel's scheduler is back.
    pub(super) fn stop(mut self) -> Result<()> {
        self.process.end(Signal::INT);
        let patience = Instant::now() + PATIENCE;
        while is_attached(&sight()) {
            if Instant::now() > patience {
                bail!("sched_ext is still {} after its scheduler ended", sight().state);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

/// Whether any scheduler is attached, or half so.
fn is_attached(sight: &Sight) -> bool {
    !matches!(sight.state.as_str(), "" | "disabled")
}

/// Whether this side can be started here at all.
pub(super) fn check(baton: &Path, scheduler: &Scheduler) -> Result<()> {
    let program = match scheduler {
        Scheduler::Kernel => return Ok(()),
        Scheduler::Baton { .. } => baton.display().to_string(),
        Scheduler::Command { words } => words.first().cloned().unwrap_or_default(),
    };
    if sight().state.is_empty() {
        bail!("this kernel has no sched_ext (see `baton check`): only `kernel` can be a side here");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("attaching a scheduler takes root: run this with sudo");
    }
    if !(is_program(Path::new(&program)) || find(&program).is_some()) {
        bail!("there is no program `{program}` here");
    }
    Ok(())
}

/// Starts what this side schedules with and waits until the kernel has enabled it; nothing for the
/// kernel's own.
pub(super) fn start(
    baton: &Path,
    scheduler: &Scheduler,
    stop: &AtomicBool,
) -> Result<Option<Started>> {
    let words = match scheduler {
        Scheduler::Kernel => return Ok(None),
        Scheduler::Baton { .. } => {
            let mut words = vec![baton.display().to_string()];
            words.extend(scheduler.baton_arguments());
            words
        }
        Scheduler::Command { words } => words.clone(),
    };
    let before = sight();
    if before.state.is_empty() {
        bail!("this kernel has no sched_ext (see `baton check`)");
    }
    if is_attached(&before) {
        bail!("{} is attached already", before.ops);
    }
    let mut process =
        Process::start(&words, &Options { tied: Some("TERM"), ..Options::default() })?;
    let patience = Instant::now() + PATIENCE;
    loop {
        let now = sight();
        if is_ready(scheduler, &before, &now) {
            break;
        }
        if let Some(status) = process.ended() {
            let why = process.failure(status).unwrap_or_else(|| "it ended at once".into());
            bail!("{why}");
        }
        if stop.load(Ordering::Relaxed) {
            bail!("told to stop");
        }
        if Instant::now() > patience {
            bail!("it did not attach within {} s; {}", PATIENCE.as_secs(), process.last_words());
        }
        std::thread::sleep(POLL);
    }
    Ok(Some(Started { process }))
}

/// Enabled, by name, once more than before; scx_baton also answers.
fn is_ready(scheduler: &Scheduler, before: &Sight, now: &Sight) -> bool {
    let newly = before.enable_seq.is_none() || now.enable_seq > before.enable_seq;
    let attached = now.state == "enabled" && !now.ops.is_empty() && newly;
    match scheduler {
        Scheduler::Baton { .. } => {
            attached && now.ops.starts_with("baton") && ask(&Request::Get).is_ok()
        }
        _ => attached,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(state: &str, ops: &str, seq: u64) -> Sight {
        Sight { state: state.into(), ops: ops.into(), enable_seq: Some(seq), ..Sight::default() }
    }

    #[test]
    fn ready_is_what_the_kernel_says() {
        let rusty = Scheduler::Command { words: vec!["scx_rusty".into()] };
        let before = sight("disabled", "", 3);
        assert!(is_ready(&rusty, &before, &sight("enabled", "rusty", 4)));
        assert!(!is_ready(&rusty, &before, &sight("enabling", "rusty", 3)));
        assert!(!is_ready(&rusty, &before, &sight("enabled", "rusty", 3)));
        assert!(is_attached(&sight("disabling", "", 4)) && !is_attached(&before));
    }
}
