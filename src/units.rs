//! Newtypes for ids and quantities, so that a CPU cannot be passed for a node or a load for a
//! count.
//!
//! Load, utilisation and capacity share the kernel's scale: 1,024 is one nice-0 task running all
//! the time on one CPU of full capacity.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The id as an index into a table of that many entries.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            fn from(i: usize) -> Self {
                debug_assert!(<$inner>::try_from(i).is_ok());
                Self(i as $inner)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing of it.
            pub const ZERO: Self = Self(0);

            /// The difference, or zero where `other` is larger: a quantity never wraps.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A logical CPU, by the kernel's number.
    CpuId(u32)
}
id! {
    /// A NUMA node, by the kernel's number.
    NodeId(u32)
}

quantity! {
    /// A point on, or a span of, the monotonic clock in nanoseconds.
    Nanos
}
quantity! {
    /// Decaying average of runnable time × weight (kernel: `load_avg`); 1,024 = one nice-0 task
    /// that always wants to run.
    Load
}
quantity! {
    /// Decaying average of running time × 1,024 (kernel: `util_avg`), or of runnable time
    /// (`runnable_avg`).
    Util
}
quantity! {
    /// A task's share, as the kernel's nice table has it: nice 0 = 1,024, nice 5 = 335.
    Weight
}
quantity! {
    /// What a CPU can deliver; 1,024 = the largest CPU of the machine, undisturbed.
    Capacity
}

impl Nanos {
    /// The largest time: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// `n` microseconds.
    pub const fn from_us(n: u64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_ms(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }
}

impl Sub for Nanos {
    type Output = Self;
    /// Saturates: clocks read on different CPUs may disagree by a little.
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Capacity {
    /// One full CPU (kernel: `SCHED_CAPACITY_SCALE`).
    pub const SCALE: Self = Self(1024);
}

impl Weight {
    /// A nice-0 task.
    pub const NICE_0: Self = Self(1024);
}

/// Names one task for as long as it lives. `generation` differs when a pid is reused, so that a
/// decision about a dead task cannot hit its successor.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct TaskKey {
    /// The kernel's thread id (`task_struct::pid`).
    pub pid: u32,
    /// Counts tasks seen by the host, from 1; 0 names no task.
    pub generation: u32,
}

impl TaskKey {
    /// One word for the BPF boundary: generation in the high half.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.pid as u64
    }

    /// The inverse of [`TaskKey::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self { pid: bits as u32, generation: (bits >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_never_wrap() {
        assert_eq!(Nanos(3) - Nanos(5), Nanos::ZERO);
        assert_eq!(Load(u64::MAX) + Load(1), Load(u64::MAX));
        assert_eq!([Load(1), Load(2)].into_iter().sum::<Load>(), Load(3));
    }

    #[test]
    fn task_key_survives_the_boundary() {
        let key = TaskKey { pid: 4_194_304, generation: u32::MAX };
        assert_eq!(TaskKey::from_bits(key.to_bits()), key);
    }
}
