//! A histogram of times that one thread writes and others read: four buckets for each power of two.

use crate::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

/// Up to 2^48 ns.
const BUCKETS: usize = 4 * 46;

/// Counts of times by magnitude.
#[derive(Debug)]
pub struct Latencies {
    /// Bucket i holds times below [`end`] of it that no lower bucket holds.
    buckets: [AtomicU64; BUCKETS],
}

/// The bucket of a time: its highest bit and the two bits after it.
fn bucket(time: Nanos) -> usize {
    let t = time.0.max(4);
    let high = t.ilog2() as usize;
    (4 * (high - 2) + (t >> (high - 2) & 3) as usize).min(BUCKETS - 1)
}

/// Where a bucket ends.
fn end(bucket: usize) -> Nanos {
    Nanos((5 + bucket as u64 % 4) << (bucket / 4))
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Latencies {
    /// Counts one.
    pub fn note(&self, latency: Nanos) {
        self.buckets[bucket(latency)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// An upper bound, at most a quarter too high, of the time below which `share` (0 to 1) of
    /// them lie; `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Ordering::Relaxed);
            if seen >= wanted {
                return Some(end(i));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_bound_from_above_within_a_quarter() {
        let latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        for us in 1..=100 {
            latencies.note(Nanos::from_us(us));
        }
        latencies.note(Nanos::MAX);
        assert_eq!(latencies.count(), 101);
        for time in [0, 1, 7, 8, 1023, 1024, 1279, 1280, 1 << 40].map(Nanos) {
            assert!(time < end(bucket(time)), "{time}");
            assert!(bucket(time) == 0 || end(bucket(time) - 1) <= time, "{time}");
        }
        let p50 = latencies.quantile(0.5).unwrap();
        assert!(p50 >= Nanos::from_us(50) && p50 <= Nanos::from_us(63), "{p50}");
    }
}
