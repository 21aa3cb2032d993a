//! Moves of the last moments, to see whether one is undone (ping-pong).

use crate::units::{CpuId, Nanos, TaskKey};

/// A move back within this time undoes the one before.
pub const UNDONE_WITHIN: Nanos = Nanos::from_ms(10);

const SLOTS: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Move {
    task: TaskKey,
    src: CpuId,
    dst: CpuId,
    at: Nanos,
}

/// The last move of each task, one slot for each of 1,024 classes of pids: a collision forgets
/// the older move, so the count errs towards too few.
#[derive(Debug)]
pub(super) struct RecentMoves {
    slots: Box<[Move]>,
}

impl Default for RecentMoves {
    fn default() -> Self {
        Self { slots: vec![Move::default(); SLOTS].into_boxed_slice() }
    }
}

impl RecentMoves {
    /// Notes a move; true if it takes back the task's last one.
    pub(super) fn note(&mut self, task: TaskKey, src: CpuId, dst: CpuId, now: Nanos) -> bool {
        let slot = &mut self.slots[task.pid as usize % SLOTS];
        let undone = slot.task == task
            && slot.src == dst
            && slot.dst == src
            && now - slot.at <= UNDONE_WITHIN;
        *slot = Move { task, src, dst, at: now };
        undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_prompt_return_is_an_undone_move() {
        let mut recent = RecentMoves::default();
        let task = TaskKey { pid: 7, generation: 1 };
        let other = TaskKey { pid: 7, generation: 2 };
        let (a, b, c) = (CpuId(0), CpuId(1), CpuId(2));
        assert!(!recent.note(task, a, b, Nanos(0)));
        assert!(recent.note(task, b, a, UNDONE_WITHIN));
        assert!(!recent.note(task, a, c, UNDONE_WITHIN), "on to a third");
        assert!(!recent.note(other, c, a, UNDONE_WITHIN), "another task of that pid");
        assert!(!recent.note(other, a, c, Nanos(20_000_001)), "too late");
    }
}
