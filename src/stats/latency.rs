//! A latency histogram that one thread writes and others read: buckets of powers of two.

use crate::units::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};

const BUCKETS: usize = 48;

/// Counts of latencies by magnitude.
#[derive(Debug)]
pub struct Latencies {
    /// Bucket i holds latencies below 2^i ns that no lower bucket holds.
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Latencies {
    /// Counts one.
    pub fn note(&self, latency: Nanos) {
        let bucket = (u64::BITS - latency.0.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// An upper bound, at most twice too high, of the latency below which `share` (0 to 1) of
    /// them lie; `None` if there are none.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, bucket) in self.buckets.iter().enumerate() {
            seen += bucket.load(Ordering::Relaxed);
            if seen >= wanted {
                return Some(Nanos(1 << i));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_bound_from_above_within_a_factor_of_two() {
        let latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        for us in 1..=100 {
            latencies.note(Nanos::from_us(us));
        }
        latencies.note(Nanos::MAX);
        assert_eq!(latencies.count(), 101);
        let p50 = latencies.quantile(0.5).unwrap();
        assert!(p50 >= Nanos::from_us(50) && p50 <= Nanos::from_us(100), "{p50}");
    }
}
