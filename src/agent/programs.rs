//! The syscall programs, callable from any worker thread.

use super::bpf::intf;
use super::bpf::skel::BpfSkel;
use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// One program, run by number of the caller's slot.
pub(crate) struct Program(OwnedFd);

/// All programs that the agent runs.
pub(crate) struct Programs {
    pub(crate) clock: Program,
    pub(crate) kick: Program,
    pub(crate) ring: Program,
    pub(crate) list: Program,
    pub(crate) move_tasks: Program,
    pub(crate) push: Program,
    pub(crate) push_expire: Program,
}

impl Programs {
    pub(crate) fn new(skel: &BpfSkel<'_>) -> Result<Self> {
        let progs = &skel.progs;
        Ok(Self {
            clock: Program::new(&progs.baton_clock)?,
            kick: Program::new(&progs.baton_kick)?,
            ring: Program::new(&progs.baton_ring)?,
            list: Program::new(&progs.baton_list)?,
            move_tasks: Program::new(&progs.baton_move)?,
            push: Program::new(&progs.baton_push)?,
            push_expire: Program::new(&progs.baton_push_expire)?,
        })
    }
}

impl Program {
    fn new(prog: &libbpf_rs::ProgramMut<'_>) -> Result<Self> {
        prog.as_fd().try_clone_to_owned().map(Self).context("a BPF program's handle")
    }

    /// Runs the program on `slot`. Returns whether the kernel ran it and it returned 0.
    /// Allocates nothing.
    pub(crate) fn run(&self, slot: u32) -> bool {
        let mut args = intf::baton_args { slot };
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            ctx_in: (&raw mut args).cast(),
            ctx_size_in: size_of_val(&args) as u32,
            ..Default::default()
        };
        // SAFETY: the descriptor is open for as long as `self` lives; `opts` and the context it
        // points to are valid for the call, which keeps neither.
        let ret = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut opts) };
        ret == 0 && opts.retval == 0
    }
}
