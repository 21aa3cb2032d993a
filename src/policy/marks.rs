//! What passes over other levels and of other CPUs have found out about a group.
//!
//! Hints between workers: a lost race costs one pass, so plain relaxed words will do.

use crate::domains::GroupId;
use crate::sync::atomic::{AtomicU8, Ordering};

/// Two marks for each group.
#[derive(Debug)]
pub struct GroupMarks {
    marks: Box<[AtomicU8]>,
}

const IMBALANCED: u8 = 1;
const BOUND: u8 = 2;

impl GroupMarks {
    /// Marks for `groups` groups, none set.
    pub fn new(groups: usize) -> Self {
        Self { marks: (0..groups).map(|_| AtomicU8::new(0)).collect() }
    }

    fn get(&self, group: GroupId, mark: u8) -> bool {
        self.marks[group.0 as usize].load(Ordering::Relaxed) & mark != 0
    }

    /// The line is written only if that changes it.
    fn put(&self, group: GroupId, mark: u8, value: bool) {
        let word = &self.marks[group.0 as usize];
        if self.get(group, mark) == value {
            return;
        }
        if value {
            word.fetch_or(mark, Ordering::Relaxed);
        } else {
            word.fetch_and(!mark, Ordering::Relaxed);
        }
    }

    /// Whether affinity kept the group from balancing *inside* (kernel:
    /// `sched_group_capacity::imbalance`): the level above then takes tasks from it by number.
    pub fn is_imbalanced(&self, group: GroupId) -> bool {
        self.get(group, IMBALANCED)
    }

    /// Sets or clears [`GroupMarks::is_imbalanced`].
    pub fn set_imbalanced(&self, group: GroupId, value: bool) {
        self.put(group, IMBALANCED, value);
    }

    /// Whether some of the group's tasks may not leave for every other group of the domain: the
    /// domain's average load is then out of reach and says nothing.
    pub fn is_bound(&self, group: GroupId) -> bool {
        self.get(group, BOUND)
    }

    /// Sets or clears [`GroupMarks::is_bound`].
    pub fn set_bound(&self, group: GroupId, value: bool) {
        self.put(group, BOUND, value);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_two_marks_are_apart() {
        let marks = GroupMarks::new(2);
        let group = GroupId(1);
        marks.set_imbalanced(group, true);
        marks.set_bound(group, true);
        marks.set_imbalanced(group, false);
        assert!(marks.is_bound(group) && !marks.is_imbalanced(group));
        assert!(!marks.is_bound(GroupId(0)));
    }
}
