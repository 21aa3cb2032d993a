//! Opens, sizes, loads and attaches the BPF component, and says why it ended.

use super::Config;
use super::bpf::intf;
use super::bpf::skel::{BpfSkel, BpfSkelBuilder};
use super::mapped::Mapped;
use crate::kconfig::Kconfig;
use crate::sched_ext;
use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, OpenObject};
use scx_utils::{UserExitInfo, compat, scx_ops_attach, scx_ops_load, scx_ops_open, uei_exited};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

/// The loaded BPF component. Dropping it detaches.
pub(crate) struct Loaded<'a> {
    pub(crate) skel: BpfSkel<'a>,
    link: Option<Link>,
    sizes: Sizes,
}

/// How large the tables are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// CPU ids there may be.
    pub(crate) nr_cpu_ids: usize,
    /// Workers.
    pub(crate) nr_slots: usize,
    /// Nodes, at least one.
    pub(crate) nr_homes: usize,
}

/// The tables that both sides map.
pub(crate) struct Tables {
    pub(crate) cpus: Mapped<intf::baton_cpu>,
    pub(crate) plans: Mapped<intf::baton_pull_plan>,
    pub(crate) fork_plans: Mapped<intf::baton_fork_plan>,
    pub(crate) slots: Mapped<intf::baton_slot>,
    pub(crate) globals: Mapped<intf::baton_globals>,
}

impl Tables {
    /// Tells the BPF side which worker balances each CPU; before it is attached.
    pub(crate) fn assign(&self, worker_by_cpu: &[u32]) {
        for (cpu, worker) in worker_by_cpu.iter().enumerate() {
            let record = self.cpus.ptr(cpu);
            // SAFETY: the field is inside the mapping and written here alone.
            unsafe { (&raw mut (*record).worker).write_volatile(*worker) };
        }
    }

    /// Tells the BPF side which CPUs are of one node; before it is attached. `home_by_cpu`: the node's
    /// number, as many as there are plans for CPUs outside all nodes.
    pub(crate) fn assign_homes(&self, home_by_cpu: &[u32]) {
        for (cpu, &home) in home_by_cpu.iter().enumerate() {
            let others = (cpu + 1..home_by_cpu.len()).chain(0..=cpu);
            let next = others.into_iter().find(|&c| home_by_cpu[c] == home).unwrap_or(cpu);
            let record = self.cpus.ptr(cpu);
            // SAFETY: the fields are inside the mapping and written here alone.
            unsafe {
                (&raw mut (*record).home).write_volatile(home);
                (&raw mut (*record).next_in_home).write_volatile(next as u32);
            }
        }
    }

    /// Whether a task waits on the CPU while another class has it, or nobody for a moment. Such a
    /// CPU's ticks are not ours, so they wake no worker.
    pub(crate) fn is_blocked(&self, cpu: usize) -> bool {
        let record = self.cpus.ptr(cpu);
        // SAFETY: the fields are inside the mapping; volatile because the BPF side writes them.
        let (queued, state) = unsafe {
            let queued = (&raw const (*record).nr_queued).read_volatile();
            (queued, (&raw const (*record).state).read_volatile())
        };
        queued > 0 && state == intf::baton_cpu_state_BATON_CPU_OTHER
    }
}

/// Opens, configures and loads the program; nothing is attached yet.
pub(crate) fn load<'a>(
    storage: &'a mut MaybeUninit<OpenObject>,
    config: &Config,
    sizes: Sizes,
) -> Result<Loaded<'a>> {
    let mut builder = BpfSkelBuilder::default();
    builder.obj_builder.debug(config.verbose > 1);

    let kconfig = CString::new(kconfig(&kernel_release()?))
        .context("the kernel's configuration holds a zero byte")?;
    let open_opts = libbpf_rs::libbpf_sys::bpf_object_open_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_object_open_opts>() as _,
        kconfig: kconfig.as_ptr(),
        ..Default::default()
    };
    let mut skel = scx_ops_open!(builder, storage, baton_ops, Some(open_opts))?;

    let ops = skel.struct_ops.baton_ops_mut();
    ops.exit_dump_len = config.exit_dump_len;
    if config.partial {
        ops.flags |= *compat::SCX_OPS_SWITCH_PARTIAL;
    }
    let width = u32::try_from(sizes.nr_cpu_ids).context("more CPU ids than fit in 32 bits")?;
    let (nr_slots, nr_homes) = (sizes.nr_slots as u32, sizes.nr_homes as u32);
    skel.maps.cpus.set_max_entries(width)?;
    skel.maps.pull_plans.set_max_entries(width)?;
    skel.maps.fork_plans.set_max_entries(nr_homes)?;
    skel.maps.slots.set_max_entries(nr_slots)?;
    skel.maps.bells.set_max_entries(nr_slots)?;
    let rodata =
        skel.maps.rodata_data.as_deref_mut().context("the BPF object has no read-only data")?;
    rodata.nr_cpu_ids = width;
    rodata.nr_slots = nr_slots;
    rodata.slice_ns = config.slice.0;
    rodata.slice_min_ns = config.slice_min.0;
    rodata.wakeup_preempt = config.wakeup_preempt;
    rodata.agent_tgid = std::process::id() as i32;

    let skel = scx_ops_load!(skel, baton_ops, uei)?;
    Ok(Loaded { skel, link: None, sizes })
}

/// The `CONFIG_*` values that the BPF headers read, with what stands for "unknown".
const KCONFIG_NEEDED: [(&str, &str); 3] = [
    ("CONFIG_CC_VERSION_TEXT", "\"unknown\""),
    ("CONFIG_LOCALVERSION", "\"\""),
    ("CONFIG_PREEMPT_RCU", "n"),
];

/// Those values of the running kernel, as text for libbpf. It looks for the configuration in two
/// places only and says "Invalid argument" when it finds neither, or when one value is missing.
fn kconfig(release: &str) -> String {
    let found = Kconfig::find(Path::new("/"), release).unwrap_or_default();
    let options = found.options();
    let line = |(name, unknown): (&str, &str)| {
        format!("{name}={}\n", options.get(name).copied().unwrap_or(unknown))
    };
    KCONFIG_NEEDED.into_iter().map(line).collect()
}

impl Loaded<'_> {
    /// Maps the tables that both sides share.
    pub(crate) fn tables(&self) -> Result<Tables> {
        let maps = &self.skel.maps;
        let Sizes { nr_cpu_ids, nr_slots, nr_homes } = self.sizes;
        Ok(Tables {
            cpus: Mapped::new(maps.cpus.as_fd(), nr_cpu_ids)?,
            plans: Mapped::new(maps.pull_plans.as_fd(), nr_cpu_ids)?,
            fork_plans: Mapped::new(maps.fork_plans.as_fd(), nr_homes)?,
            slots: Mapped::new(maps.slots.as_fd(), nr_slots)?,
            globals: Mapped::new(maps.data_shared.as_fd(), 1)?,
        })
    }

    /// Attaches, and reads back from the kernel that it is this scheduler that is now in charge.
    pub(crate) fn attach(&mut self) -> Result<()> {
        self.link = Some(scx_ops_attach!(self.skel, baton_ops)?);
        let root = Path::new("/");
        match (sched_ext::state(root).as_deref(), sched_ext::ops(root).as_deref()) {
            (Some("enabled"), Some(name)) if name.starts_with("baton") => Ok(()),
            (state, name) => bail!(
                "the program was accepted, yet the kernel says state {} with scheduler {}",
                state.unwrap_or("unknown"),
                name.unwrap_or("none"),
            ),
        }
    }

    /// Whether the kernel has ended the scheduler.
    pub(crate) fn exited(&self) -> bool {
        uei_exited!(self.skel, uei)
    }

    /// Detaches, waits until the kernel has taken over, and returns why it ended.
    pub(crate) fn detach(mut self) -> UserExitInfo {
        drop(self.link.take());
        scx_utils::uei_read!(self.skel, uei)
    }
}

/// `uname -r`.
pub(crate) fn kernel_release() -> Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .context("the kernel's release cannot be read: is /proc mounted?")?;
    Ok(text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_needed_value_has_a_line_even_if_unknown() {
        let text = kconfig("no-such-release");
        assert_eq!(text.lines().count(), KCONFIG_NEEDED.len());
        assert!(text.lines().all(|line| line.contains('=')));
    }
}
