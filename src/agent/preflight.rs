//! Refuses to start where the scheduler cannot run, in one sentence that says what to do.

use super::loader;
use anyhow::{Result, bail};

/// Checks what loading would otherwise fail on with a bare errno.
pub fn preflight() -> Result<()> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!("loading a scheduler needs root: run it with sudo");
    }
    let Some(state) = loader::state() else {
        bail!(
            "this kernel ({}) has no sched_ext: boot one built with CONFIG_SCHED_CLASS_EXT=y, \
             6.16 or later",
            loader::kernel_release()?
        );
    };
    if state != "disabled" {
        bail!(
            "another sched_ext scheduler ({}) is in charge: stop it first",
            loader::attached_ops().unwrap_or_else(|| "name unknown".into())
        );
    }
    Ok(())
}
