//! The serialize gate: only its holder may balance across NUMA nodes (kernel:
//! `sched_balance_running`).
//!
//! The flag is never waited for. It is taken with an acquiring compare-exchange and given back with
//! a releasing store, so what a holder saw of the machine happens before the next holder's look.

use crate::domains::{LevelKind, SchedDomain, SdFlags};
use crate::policy::env::PassKind;
use crate::policy::tunables::{SerializePasses, SerializeScope, Tunables};
use crate::sync::CacheLine;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Whether a pass over this domain needs the flag.
pub fn applies(tunables: &Tunables, domain: &SchedDomain, pass: PassKind, busy: bool) -> bool {
    domain.flags.contains(SdFlags::SERIALIZE)
        && tunables.serialize_scope != SerializeScope::Off
        && domain.distance >= tunables.serialize_min_distance
        && match tunables.serialize_passes {
            SerializePasses::All => true,
            SerializePasses::Periodic => pass != PassKind::Newidle,
            SerializePasses::Busy => pass != PassKind::Newidle && busy,
        }
}

/// The flags: one for the machine and one for each NUMA level, each alone on its cache lines.
#[derive(Debug)]
pub struct SerializeGate {
    flags: Box<[CacheLine<AtomicBool>]>,
}

impl SerializeGate {
    /// Flags for a machine with `numa_levels` NUMA levels.
    pub fn new(numa_levels: usize) -> Self {
        Self { flags: (0..=numa_levels).map(|_| CacheLine(AtomicBool::new(false))).collect() }
    }

    /// The flag for a domain under this scope.
    fn flag(&self, scope: SerializeScope, level: LevelKind) -> &AtomicBool {
        let index = match (scope, level) {
            (SerializeScope::Level, LevelKind::Numa(n)) => usize::from(n),
            _ => 0,
        };
        &self.flags[index.min(self.flags.len() - 1)].0
    }

    /// Takes the flag if it is free; it is given back when the guard is dropped, on every way
    /// out. The guard remembers which flag it holds, so a change of scope in between is harmless.
    pub fn try_acquire(
        &self,
        scope: SerializeScope,
        level: LevelKind,
    ) -> Option<SerializeGuard<'_>> {
        let flag = self.flag(scope, level);
        // The guard must not exist, even for a moment, when the flag was not taken: its drop would
        // release the holder's.
        match flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(SerializeGuard { flag }),
            Err(_) => None,
        }
    }
}

/// Holds the serialize flag.
#[derive(Debug)]
pub struct SerializeGuard<'a> {
    flag: &'a AtomicBool,
}

impl Drop for SerializeGuard<'_> {
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NUMA_1: LevelKind = LevelKind::Numa(1);
    const NUMA_2: LevelKind = LevelKind::Numa(2);

    #[test]
    fn a_failed_attempt_leaves_the_holder_its_flag() {
        let gate = SerializeGate::new(1);
        let held = gate.try_acquire(SerializeScope::Global, NUMA_1);
        assert!(held.is_some());
        assert!(gate.try_acquire(SerializeScope::Global, NUMA_1).is_none());
        assert!(gate.try_acquire(SerializeScope::Global, NUMA_1).is_none());
        drop(held);
        assert!(gate.try_acquire(SerializeScope::Global, NUMA_1).is_some());
    }

    #[test]
    fn the_scope_says_who_excludes_whom() {
        let gate = SerializeGate::new(2);
        let _one = gate.try_acquire(SerializeScope::Level, NUMA_1);
        assert!(gate.try_acquire(SerializeScope::Level, NUMA_1).is_none());
        let _two = gate.try_acquire(SerializeScope::Level, NUMA_2);
        assert!(_two.is_some());
        assert!(gate.try_acquire(SerializeScope::Global, NUMA_2).is_some());
    }

    #[test]
    fn each_flag_has_its_own_cache_lines() {
        assert_eq!(align_of::<CacheLine<AtomicBool>>(), 128);
        assert_eq!(size_of::<CacheLine<AtomicBool>>(), 128);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use std::sync::Arc;

    /// What only the holder may touch; loom reports any access that is not ordered with the last.
    struct Guarded(UnsafeCell<u32>);

    // SAFETY: the cell is only touched by the holder of the flag; that this excludes races is what
    // the model checks.
    unsafe impl Sync for Guarded {}

    #[test]
    fn one_holder_at_a_time_sees_what_the_last_one_did() {
        loom::model(|| {
            let gate = Arc::new(SerializeGate::new(1));
            let passes = Arc::new(Guarded(UnsafeCell::new(0)));
            let try_once = |gate: &SerializeGate, passes: &Guarded| {
                let Some(_guard) = gate.try_acquire(SerializeScope::Global, LevelKind::Numa(1))
                else {
                    return 0;
                };
                // SAFETY: the flag is held, see `Guarded`.
                passes.0.with_mut(|n| unsafe { *n += 1 });
                1
            };
            let workers: Vec<_> = (0..2)
                .map(|_| {
                    let (gate, passes) = (Arc::clone(&gate), Arc::clone(&passes));
                    loom::thread::spawn(move || try_once(&gate, &passes) + try_once(&gate, &passes))
                })
                .collect();
            let done: u32 = workers.into_iter().map(|w| w.join().unwrap()).sum();
            assert!(done >= 1, "nobody waits, so somebody got it");
            // SAFETY: all workers have ended.
            assert_eq!(passes.0.with(|n| unsafe { *n }), done);
            // Given back on every way out.
            assert!(gate.try_acquire(SerializeScope::Global, LevelKind::Numa(1)).is_some());
        });
    }
}
