//! How a sleeping worker is woken: each has a ring buffer of its own, in which the BPF component
//! puts one event a sleep, at the moment at which there is something to balance.

use crate::units::Nanos;
use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One page: a worker that is behind needs to hear of it once.
const BYTES: u32 = 4096;

/// A worker's end of its bell.
pub(crate) struct Bell {
    ring: RingBuffer<'static>,
    /// When it was last rung, on the BPF component's clock; zero once that has been told.
    rung_at: Arc<AtomicU64>,
    /// What `ring` maps.
    _map: MapHandle,
}

impl Bell {
    /// Makes the bell of `worker` and puts it into the BPF component's table of `bells`.
    pub(crate) fn install(bells: &impl MapCore, worker: u32) -> Result<Self> {
        let opts =
            bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
        let map = MapHandle::create(MapType::RingBuf, Some("baton_bell"), 0, 0, BYTES, &opts)
            .context("a worker's event buffer cannot be made")?;
        bells
            .update(&worker.to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .context("a worker's event buffer cannot be handed over")?;
        let mut builder = RingBufferBuilder::new();
        let rung_at = Arc::new(AtomicU64::new(0));
        let note = Arc::clone(&rung_at);
        builder.add(&map, move |event| {
            note.store(event.try_into().map_or(0, u64::from_ne_bytes), Ordering::Relaxed);
            0
        })?;
        let ring = builder.build().context("a worker's event buffer cannot be opened")?;
        Ok(Self { ring, rung_at, _map: map })
    }

    /// Sleeps until somebody rings or has rung since the last sleep; no longer than `timeout`, to
    /// the millisecond ([`Duration::MAX`]: for as long as it takes). Returns when it was rung.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<Nanos> {
        // An interrupted wait is a short wait.
        self.ring.poll_raw(timeout);
        Some(Nanos(self.rung_at.swap(0, Ordering::Relaxed))).filter(|at| *at > Nanos::ZERO)
    }
}
