//! How the BPF component wakes sleeping workers: one event in a ring buffer for each sleep.

use super::bpf::intf;
use anyhow::{Context, Result};
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The agent's end of the ring buffer.
pub(crate) struct Doorbell<'a> {
    ring: RingBuffer<'a>,
    /// By worker: somebody rang for it.
    rung: Arc<[AtomicBool]>,
}

impl<'a> Doorbell<'a> {
    /// A doorbell for so many workers.
    pub(crate) fn new(events: &'a dyn MapCore, nr_workers: usize) -> Result<Self> {
        let rung: Arc<[AtomicBool]> = (0..nr_workers).map(|_| AtomicBool::new(false)).collect();
        let note = Arc::clone(&rung);
        let mut builder = RingBufferBuilder::new();
        builder.add(events, move |bytes| {
            const WORKER: usize = std::mem::offset_of!(intf::baton_event, worker);
            let word = bytes.get(WORKER..WORKER + 4).and_then(|w| w.try_into().ok());
            let worker = word.map(u32::from_ne_bytes);
            if let Some(flag) = worker.and_then(|w| note.get(w as usize)) {
                flag.store(true, Ordering::Relaxed);
            }
            0
        })?;
        let ring = builder.build().context("the event buffer cannot be opened")?;
        Ok(Self { ring, rung })
    }

    /// Sleeps until somebody rings or `timeout` has passed; calls `wake` with each worker that
    /// somebody rang for.
    pub(crate) fn wait(&self, timeout: Duration, mut wake: impl FnMut(usize)) {
        // An interrupted wait is a short wait.
        let _ = self.ring.poll(timeout);
        for (worker, flag) in self.rung.iter().enumerate() {
            if flag.swap(false, Ordering::Relaxed) {
                wake(worker);
            }
        }
    }
}
