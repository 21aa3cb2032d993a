//! Atomics and locks: the standard ones, or the model checker's under `--cfg loom`, so that what
//! is checked is what runs.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

use std::sync::PoisonError;

/// Keeps a word that many CPUs write away from its neighbours: 128 bytes, because adjacent lines
/// are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// Locks, even after another thread panicked: what is guarded here is whole after every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
