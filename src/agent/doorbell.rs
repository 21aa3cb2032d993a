//! How the BPF component wakes a sleeping agent: one event in a ring buffer for each sleep.

use super::bpf::intf;
use super::mapped::Mapped;
use anyhow::{Context, Result};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The agent's end of the ring buffer.
pub(crate) struct Doorbell<'a> {
    ring: RingBuffer<'a>,
    globals: &'a Mapped<intf::baton_globals>,
    rung: Arc<AtomicBool>,
}

impl<'a> Doorbell<'a> {
    pub(crate) fn new(
        events: &'a dyn MapCore,
        globals: &'a Mapped<intf::baton_globals>,
    ) -> Result<Self> {
        let mut builder = RingBufferBuilder::new();
        let rung = Arc::new(AtomicBool::new(false));
        let note = Arc::clone(&rung);
        builder.add(events, move |_| {
            note.store(true, Ordering::Relaxed);
            0
        })?;
        let ring = builder.build().context("the event buffer cannot be opened")?;
        Ok(Self { ring, globals, rung })
    }

    fn asleep(&self) -> &AtomicU32 {
        // SAFETY: the field is inside the mapping, which `self` borrows; both sides touch it
        // with atomic operations only.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.globals.ptr(0)).agent_asleep) }
    }

    /// From now on, the next task that has to wait rings, once.
    pub(crate) fn arm(&self) {
        self.asleep().store(1, Ordering::SeqCst);
    }

    /// Sleeps until somebody rings or `timeout` has passed; says whether somebody rang.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        // An interrupted wait is a short wait.
        let _ = self.ring.poll(timeout);
        self.rung.swap(false, Ordering::Relaxed)
    }
}
