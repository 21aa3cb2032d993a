//! The event queue: what happens next, ordered by (time, tie).

use crate::units::{CpuId, Nanos};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Index of a task in the machine's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// The id as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The task on a CPU has done its work or used up its slice; void if `run` is not the CPU's.
    RunEnds {
        /// Where.
        cpu: CpuId,
        /// Which stretch of running.
        run: u32,
    },
    /// A CPU's timer tick.
    Tick(CpuId),
    /// A sleeping task's time has come; void if it has been woken since.
    Timer {
        /// Which task.
        task: TaskId,
        /// Which of its sleeps.
        sleep: u32,
    },
    /// A CPU's access to a shared line is done; it goes on with the next one.
    LineDone(CpuId),
    /// A source of work gives its next piece.
    Arrival(u32),
    /// An idle CPU has been asked to balance for all.
    Kick(CpuId),
    /// A worker of the agent runs a round.
    Round(u32),
    /// The agent answers a CPU that asked for work.
    Newidle(CpuId),
    /// An idle CPU is told to use its pull plan.
    LookAgain(CpuId),
    /// A planned change of the machine (hotplug, clock), by position in the scenario.
    Change(u32),
    /// The observers look.
    Sample,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    tie: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.tie) == (other.at, other.tie)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Reversed: the heap gives the largest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.tie).cmp(&(self.at, self.tie))
    }
}

/// The queue. Events of one time come in the order in which they were planned.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    planned: u64,
}

impl EventQueue {
    /// Plans an event.
    pub(crate) fn plan(&mut self, at: Nanos, event: Event) {
        self.planned += 1;
        self.heap.push(Entry { at, tie: self.planned, event });
    }

    /// Takes the next event.
    pub(crate) fn next(&mut self) -> Option<(Nanos, Event)> {
        self.heap.pop().map(|e| (e.at, e.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_then_order_of_planning() {
        let mut queue = EventQueue::default();
        for (at, i) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            queue.plan(Nanos(at), Event::Arrival(i));
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        let expected = [(3, 1), (3, 3), (5, 0), (5, 2)];
        assert_eq!(order, expected.map(|(at, i)| (Nanos(at), Event::Arrival(i))));
    }
}
