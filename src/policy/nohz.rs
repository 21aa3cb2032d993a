//! Nohz idle balancing: what a busy tick decides, which idle CPU helps, and the words that busy
//! and idle CPUs share for it (kernel: `nohz_balancer_kick`, `find_new_ilb`, `kick_ilb`,
//! `nohz_balance_enter_idle`, `nohz_balance_exit_idle`).
//!
//! The order that keeps every CPU in view: a CPU that goes idle sets its bit, *then* a fence, *then*
//! the marks; the helper clears the marks, *then* a fence, *then* reads the mask. Whoever the
//! helper misses has its marks still set, and the next busy tick finds them.

use crate::cpumask::Cpumask;
use crate::policy::facts::Facts;
use crate::policy::skip::SkipReason;
use crate::policy::tunables::{
    Ilb, NohzCount, NohzEmpty, NohzMask, NohzOrder, OffOn, OnOff, Tunables,
};
use crate::sync::CacheLine;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use crate::units::{CpuId, Nanos};
use bitflags::bitflags;

/// Time after which idle CPUs' statistics are looked at again (kernel: `LOAD_AVG_PERIOD`).
pub const BLOCKED_PERIOD: Nanos = Nanos::from_ms(32);

/// Idle CPUs that each further tick of the period stands for under `nohz-scale`.
pub const SCALE_CPUS: u32 = 64;

bitflags! {
    /// What a kick asks for (kernel: `NOHZ_*_KICK`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Kick: u8 {
        /// Balance for every idle CPU that is due.
        const BALANCE = 1 << 0;
        /// Look at the load of idle CPUs.
        const STATS = 1 << 1;
        /// Work out the next balance anew.
        const NEXT = 1 << 2;
        /// Go on with a walk that another helper began.
        const RELAY = 1 << 3;
    }
}

/// What a busy CPU knows at its tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyTick {
    /// Its tasks.
    pub nr_running: u32,
    /// Whether side activity takes a noticeable part of it.
    pub reduced: bool,
    /// Whether an idle CPU is preferred to it for packing.
    pub asym: bool,
    /// Whether it has a misfit task; `None` where all CPUs are of one size.
    pub misfit: Option<bool>,
    /// Busy CPUs that share its last-level cache, itself included.
    pub llc_busy: u32,
}

impl BusyTick {
    /// Whether there is reason to balance (kernel: the tests of `nohz_balancer_kick`, in order).
    fn has_reason(&self) -> bool {
        self.nr_running >= 2
            || (self.nr_running >= 1 && self.reduced)
            || self.asym
            // Where sizes differ they alone count, not the use of caches.
            || self.misfit.unwrap_or(self.llc_busy > 1)
    }
}

/// Shared writes and looks, as a measure of what sharing costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Writes to shared lines at idle entry and exit.
    pub line_writes: u64,
    /// Looks at the mask or the counter.
    pub checks: u64,
    /// Those among them at a time when idle balancing was not due.
    pub early_checks: u64,
}

/// The fields that every busy tick reads.
#[derive(Debug)]
struct Record {
    next_balance: AtomicU64,
    next_blocked: AtomicU64,
    has_blocked: AtomicBool,
    needs_update: AtomicBool,
    /// The CPU asked last, for `ilb=round-robin`.
    last_helper: AtomicU32,
    /// Earliest due time met by the walk under way.
    walk_next: AtomicU64,
    /// The helper that began it.
    walk_origin: AtomicU32,
}

/// The nohz state of a machine (kernel: `struct nohz_data` and `nohz_flags`).
#[derive(Debug)]
pub struct Nohz {
    record: CacheLine<Record>,
    /// CPUs that idle; written at idle entry and on the first busy tick.
    global: CacheLine<Box<[AtomicU64]>>,
    /// The same by node, each part on its own lines.
    by_node: Box<[CacheLine<NodeMask>]>,
    node_of: Box<[u16]>,
    /// Their number, for kernels up to 6.19.
    nr_idle: CacheLine<AtomicU32>,
    pending: Box<[AtomicU8]>,
}

/// The words of the mask in which one node has CPUs.
#[derive(Debug)]
struct NodeMask {
    first_word: usize,
    words: Box<[AtomicU64]>,
}

impl NodeMask {
    fn new(node_of: &[u16], node: usize) -> Self {
        let here = |&n: &u16| usize::from(n) == node;
        let first_word = node_of.iter().position(here).unwrap_or(0) / 64;
        let end = node_of.iter().rposition(here).map_or(first_word, |cpu| cpu / 64 + 1);
        Self { first_word, words: words(end - first_word) }
    }
}

fn words(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

impl Nohz {
    /// The state of a machine none of whose CPUs idles; `node_of` gives each CPU's node.
    pub fn new(node_of: Box<[u16]>) -> Self {
        let width = node_of.len();
        let nodes = node_of.iter().max().map_or(1, |&n| usize::from(n) + 1);
        Self {
            record: CacheLine(Record {
                next_balance: AtomicU64::new(0),
                next_blocked: AtomicU64::new(0),
                has_blocked: AtomicBool::new(false),
                needs_update: AtomicBool::new(false),
                last_helper: AtomicU32::new(u32::MAX),
                walk_next: AtomicU64::new(u64::MAX),
                walk_origin: AtomicU32::new(0),
            }),
            global: CacheLine(words(width.div_ceil(64))),
            by_node: (0..nodes).map(|node| CacheLine(NodeMask::new(&node_of, node))).collect(),
            node_of,
            nr_idle: CacheLine(AtomicU32::new(0)),
            pending: (0..width).map(|_| AtomicU8::new(0)).collect(),
        }
    }

    fn part(&self, cpu: CpuId) -> &AtomicU64 {
        let node = &self.by_node[usize::from(self.node_of[cpu.index()])].0;
        &node.words[cpu.index() / 64 - node.first_word]
    }

    /// Whether the CPU is in the idle mask.
    pub fn is_idle(&self, cpu: CpuId) -> bool {
        let (word, bit) = (cpu.index() / 64, 1 << (cpu.0 % 64));
        let in_either =
            self.global.0[word].load(Ordering::Relaxed) | self.part(cpu).load(Ordering::Relaxed);
        in_either & bit != 0
    }

    /// The CPU idles now (kernel: `nohz_balance_enter_idle`).
    pub fn enter_idle(&self, tunables: &Tunables, cpu: CpuId, traffic: &mut Traffic) {
        if !self.is_idle(cpu) {
            let word = match tunables.nohz_mask {
                NohzMask::Global => &self.global.0[cpu.index() / 64],
                NohzMask::Node => self.part(cpu),
            };
            word.fetch_or(1 << (cpu.0 % 64), Ordering::Relaxed);
            traffic.line_writes += 1;
            if tunables.nohz_count == NohzCount::Counter {
                self.nr_idle.0.fetch_add(1, Ordering::Relaxed);
                traffic.line_writes += 1;
            }
            // The bit before the marks: a helper that misses the bit finds the marks set after it
            // cleared them.
            fence(Ordering::SeqCst);
            self.mark(&self.record.0.needs_update);
        }
        self.mark(&self.record.0.has_blocked);
    }

    /// Sets a mark; always a store, as the helper's clearing may be under way.
    fn mark(&self, mark: &AtomicBool) {
        mark.store(true, Ordering::Relaxed);
    }

    /// The CPU's first busy tick after it idled (kernel: `nohz_balance_exit_idle`). Not at wake-up:
    /// a CPU that wakes for a moment only leaves the mask alone.
    pub fn exit_idle(&self, tunables: &Tunables, cpu: CpuId, traffic: &mut Traffic) {
        let bit = 1 << (cpu.0 % 64);
        let mut was_idle = false;
        // Both layouts: the setting may have changed while it idled.
        for word in [&self.global.0[cpu.index() / 64], self.part(cpu)] {
            if word.load(Ordering::Relaxed) & bit != 0 {
                word.fetch_and(!bit, Ordering::Relaxed);
                traffic.line_writes += 1;
                was_idle = true;
            }
        }
        if was_idle && tunables.nohz_count == NohzCount::Counter {
            let less = |n: u32| n.checked_sub(1);
            // Zero if the setting changed while CPUs idled: they were never counted.
            if self.nr_idle.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                traffic.line_writes += 1;
            }
        }
    }

    /// Copies the idle mask; both layouts, as the setting may have changed.
    pub fn idle_cpus(&self, into: &mut Cpumask) {
        into.clear_all();
        self.mask_words().for_each(|(i, word)| into.or_word(i, word));
    }

    /// The words of both layouts, with their positions in the mask.
    fn mask_words(&self) -> impl Iterator<Item = (usize, u64)> {
        let by_node = self.by_node.iter().map(|n| (n.0.first_word, &n.0.words[..]));
        std::iter::once((0, &self.global.0[..])).chain(by_node).flat_map(|(first, words)| {
            let load =
                move |(i, word): (usize, &AtomicU64)| (first + i, word.load(Ordering::Relaxed));
            words.iter().enumerate().map(load)
        })
    }

    /// Whether any CPU idles, by the mask or the counter.
    pub fn any_idle(&self, tunables: &Tunables) -> bool {
        match tunables.nohz_count {
            NohzCount::Counter => self.nr_idle.0.load(Ordering::Relaxed) > 0,
            NohzCount::Mask => self.mask_words().any(|(_, word)| word != 0),
        }
    }

    /// When idle balancing is due next.
    pub fn next_balance(&self) -> Nanos {
        Nanos(self.record.0.next_balance.load(Ordering::Relaxed))
    }

    /// What a busy CPU's tick asks for, if for anything (kernel: `nohz_balancer_kick`). The caller
    /// has made sure that the CPU is busy and has left nohz state.
    pub fn kick_decision(
        &self,
        tunables: &Tunables,
        now: Nanos,
        tick: impl FnOnce() -> BusyTick,
        traffic: &mut Traffic,
    ) -> Result<Kick, SkipReason> {
        if tunables.nohz == OnOff::Off {
            return Err(SkipReason::NohzOff);
        }
        let record = &self.record.0;
        let mut kick = Kick::empty();
        let mut reason = SkipReason::NohzNoReason;
        if record.has_blocked.load(Ordering::Relaxed)
            && now.0 > record.next_blocked.load(Ordering::Relaxed)
        {
            kick = Kick::STATS;
        }
        let is_due = now >= self.next_balance();
        let mut nobody_idles = || {
            traffic.checks += 1;
            traffic.early_checks += u64::from(!is_due);
            !self.any_idle(tunables)
        };
        let stop = match tunables.nohz_order {
            NohzOrder::TimeFirst if !is_due => Some(SkipReason::NohzNotDue),
            NohzOrder::TimeFirst => nobody_idles().then_some(SkipReason::NohzNobodyIdles),
            NohzOrder::CountFirst if nobody_idles() => Some(SkipReason::NohzNobodyIdles),
            NohzOrder::CountFirst => (!is_due).then_some(SkipReason::NohzNotDue),
        };
        match stop {
            Some(SkipReason::NohzNobodyIdles) if tunables.nohz_empty == NohzEmpty::Return => {
                return Err(SkipReason::NohzNobodyIdles);
            }
            Some(why) => reason = why,
            None if tick().has_reason() => kick = Kick::STATS | Kick::BALANCE,
            None => {}
        }
        if record.needs_update.load(Ordering::Relaxed) {
            kick |= Kick::NEXT;
        }
        if kick.is_empty() { Err(reason) } else { Ok(kick) }
    }

    /// Sends a kick to an idle CPU (kernel: `kick_ilb`): who must be woken, or why nobody. The next
    /// time is set first, so that other busy ticks keep away while a helper is looked for; a
    /// helper that has been asked already is not asked again.
    pub fn kick_ilb(
        &self,
        tunables: &Tunables,
        kick: Kick,
        (now, tick): (Nanos, Nanos),
        helper: impl FnOnce(CpuId) -> Option<CpuId>,
    ) -> Result<CpuId, SkipReason> {
        let record = &self.record.0;
        if kick.contains(Kick::BALANCE) {
            let ticks = match tunables.nohz_scale {
                OffOn::Off => 1,
                OffOn::On => self
                    .mask_words()
                    .map(|(_, word)| word.count_ones())
                    .sum::<u32>()
                    .div_ceil(SCALE_CPUS)
                    .max(1),
            };
            let next = now + Nanos(tick.0.saturating_mul(u64::from(ticks)));
            record.next_balance.store(next.0, Ordering::Relaxed);
        }
        let last = CpuId(record.last_helper.load(Ordering::Relaxed));
        // No helper: the marks stay, the next tick tries again.
        let cpu = helper(last).ok_or(SkipReason::NohzNoHelper)?;
        let pending = &self.pending[cpu.index()];
        if Kick::from_bits_truncate(pending.load(Ordering::Relaxed)).contains(kick) {
            return Err(SkipReason::NohzPending);
        }
        if pending.fetch_or(kick.bits(), Ordering::AcqRel) != 0 {
            return Err(SkipReason::NohzPending);
        }
        if tunables.ilb == Ilb::RoundRobin {
            record.last_helper.store(cpu.0, Ordering::Relaxed);
        }
        Ok(cpu)
    }

    /// Whether the CPU has been asked to help; a plain read.
    pub fn is_pending(&self, cpu: CpuId) -> bool {
        self.pending[cpu.index()].load(Ordering::Relaxed) != 0
    }

    /// Takes the requests of a helper.
    pub fn take_pending(&self, cpu: CpuId) -> Kick {
        Kick::from_bits_truncate(self.pending[cpu.index()].swap(0, Ordering::AcqRel))
    }

    /// Hands a walk on to the next helper; true if it must be woken.
    pub fn hand_on(&self, cpu: CpuId, kick: Kick) -> bool {
        self.pending[cpu.index()].fetch_or(kick.bits(), Ordering::AcqRel) == 0
    }

    /// Starts a walk: clears the marks that it will answer for.
    pub fn begin_walk(&self, helper: CpuId, kick: Kick, now: Nanos) {
        let record = &self.record.0;
        record.walk_origin.store(helper.0, Ordering::Relaxed);
        if kick.contains(Kick::STATS) {
            record.has_blocked.store(false, Ordering::Relaxed);
        }
        if kick.contains(Kick::NEXT) {
            record.needs_update.store(false, Ordering::Relaxed);
        }
        // The marks before the mask, see above.
        fence(Ordering::SeqCst);
        record.walk_next.store((now + Nanos::from_secs(60)).0, Ordering::Relaxed);
    }

    /// Takes over a part of a walk: when its CPUs are due, and whether load is left on them.
    pub fn note_walk(&self, next: Nanos, has_blocked: bool) {
        self.record.0.walk_next.fetch_min(next.0, Ordering::Relaxed);
        if has_blocked {
            self.mark(&self.record.0.has_blocked);
        }
    }

    /// Where a walk goes on outside `shard` after `helper` has done its part: the next idle CPU in
    /// order, with wrap, before the one that began it.
    pub fn next_helper(&self, idle: &Cpumask, shard: &Cpumask, helper: CpuId) -> Option<CpuId> {
        let width = idle.width() as u32;
        let origin = self.record.0.walk_origin.load(Ordering::Relaxed);
        let walked = |cpu: CpuId| (cpu.0 + width - origin) % width;
        idle.iter_wrap(CpuId(helper.0 + 1))
            .find(|&cpu| !shard.test(cpu) && walked(cpu) > walked(helper))
    }

    /// Ends a walk.
    pub fn end_walk(&self, kick: Kick, now: Nanos) {
        let record = &self.record.0;
        let next = record.walk_next.load(Ordering::Relaxed);
        record.next_balance.store(next, Ordering::Relaxed);
        if kick.contains(Kick::STATS) {
            record.next_blocked.store((now + BLOCKED_PERIOD).0, Ordering::Relaxed);
        }
    }

    /// Breaks a walk off, the helper having got work: the marks are set again for the next one.
    pub fn abort_walk(&self, kick: Kick) {
        if kick.contains(Kick::STATS) {
            self.mark(&self.record.0.has_blocked);
        }
        if kick.contains(Kick::NEXT) {
            self.mark(&self.record.0.needs_update);
        }
    }
}

/// The CPUs of the idle mask, some of which have got work since. Asking takes a look at the CPU.
pub trait Candidates {
    /// The first of them from `from` on that idles.
    fn next_idle(&mut self, from: CpuId) -> Option<CpuId>;

    /// Whether a CPU idles, of the idle mask or not.
    fn idles(&mut self, cpu: CpuId) -> bool;
}

/// Which idle CPU is asked (kernel: `find_new_ilb`). The search ends at the first that fits.
pub fn find_new_ilb(
    rule: Ilb,
    facts: &Facts,
    candidates: &mut impl Candidates,
    last: CpuId,
) -> Option<CpuId> {
    match rule {
        Ilb::First => candidates.next_idle(CpuId(0)),
        // An idle thread of a busy core would slow its sibling down.
        Ilb::IdleCore => {
            let (mut first, mut from) = (None, CpuId(0));
            while let Some(cpu) = candidates.next_idle(from) {
                if facts.siblings(cpu).iter().all(|&s| s == cpu || candidates.idles(s)) {
                    return Some(cpu);
                }
                first = first.or(Some(cpu));
                from = CpuId(cpu.0 + 1);
            }
            first
        }
        Ilb::RoundRobin => {
            let after = candidates.next_idle(CpuId(last.0.wrapping_add(1)));
            after.or_else(|| candidates.next_idle(CpuId(0)))
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_cpu_that_the_helper_misses_leaves_its_marks() {
        loom::model(|| {
            let nohz = Arc::new(Nohz::new(Box::new([0, 0])));
            let tunables = Tunables::default();
            let idler = {
                let nohz = Arc::clone(&nohz);
                loom::thread::spawn(move || {
                    nohz.enter_idle(&tunables, CpuId(1), &mut Traffic::default());
                })
            };
            nohz.begin_walk(CpuId(0), Kick::STATS | Kick::NEXT, Nanos(1));
            let met = nohz.is_idle(CpuId(1));
            idler.join().unwrap();
            let record = &nohz.record.0;
            let marked = record.has_blocked.load(Ordering::Relaxed)
                && record.needs_update.load(Ordering::Relaxed);
            assert!(met || marked, "left out for ever");
        });
    }

    #[test]
    fn two_busy_ticks_send_one_kick() {
        loom::model(|| {
            let nohz = Arc::new(Nohz::new(Box::new([0, 0])));
            let tunables = Tunables::default();
            let kick = move |nohz: &Nohz| {
                let at = (Nanos(1), Nanos(1));
                nohz.kick_ilb(&tunables, Kick::BALANCE, at, |_| Some(CpuId(1))).is_ok()
            };
            let other = {
                let nohz = Arc::clone(&nohz);
                loom::thread::spawn(move || kick(&nohz))
            };
            let sent = u32::from(kick(&nohz)) + u32::from(other.join().unwrap());
            assert_eq!(sent, 1);
            assert_eq!(nohz.take_pending(CpuId(1)), Kick::BALANCE);
        });
    }
}
