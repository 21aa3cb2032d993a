//! A bootstrap interval for the mean of paired differences.
//!
//! Plain percentile intervals are too narrow for few samples. This is the *expanded* percentile
//! interval (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 4.3): the
//! percentiles are moved outwards as far as Student's distribution and the n − 1 divisor ask for.

use super::{mean, quantile_of_sorted};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// An interval, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether it holds this value.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The interval of the given level (such as 0.95) for the mean of `values`, from that many
/// resamples; `None` of fewer than two values.
pub fn mean_interval(
    values: &[f64],
    level: f64,
    resamples: usize,
    rng: &mut impl Rng,
) -> Option<Interval> {
    let n = values.len();
    if n < 2 || resamples == 0 {
        return None;
    }
    let mut means: Vec<f64> = (0..resamples)
        .map(|_| (0..n).map(|_| values[rng.random_range(0..n)]).sum::<f64>() / n as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let tail = expanded_tail(n, (1.0 - level) / 2.0)?;
    // The mean itself bounds the interval where the tail is beyond what resampling can show.
    let center = mean(values)?;
    Some(Interval {
        low: quantile_of_sorted(&means, tail)?.min(center),
        high: quantile_of_sorted(&means, 1.0 - tail)?.max(center),
    })
}

/// The share of resamples to cut off at each end in place of `tail`.
fn expanded_tail(n: usize, tail: f64) -> Option<f64> {
    let students = StudentsT::new(0.0, 1.0, (n - 1) as f64).ok()?;
    let normal = Normal::new(0.0, 1.0).ok()?;
    let widening = (n as f64 / (n - 1) as f64).sqrt();
    Some(normal.cdf(widening * students.inverse_cdf(tail)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    /// Darwin's maize: height differences of 15 pairs, in eighths of an inch (Fisher 1935).
    const MAIZE: [f64; 15] =
        [49.0, -67.0, 8.0, 16.0, 6.0, 23.0, 28.0, 41.0, 14.0, 29.0, 56.0, 24.0, 75.0, 60.0, -48.0];

    #[test]
    fn the_tail_is_that_of_the_paper() {
        // Hesterberg's table: for a nominal 0.025, n = 5, 10, 20, 40, 100 use these.
        for (n, expected) in [(5, 0.0010), (10, 0.0086), (20, 0.0159), (40, 0.0203), (100, 0.0231)]
        {
            let tail = expanded_tail(n, 0.025).unwrap();
            assert!((tail - expected).abs() < 0.0002, "{n}: {tail}");
        }
    }

    #[test]
    fn darwins_maize_has_about_students_interval() {
        // R: t.test(d) gives 0.0039 to 41.8627.
        let mut rng = Pcg64::seed_from_u64(1);
        let interval = mean_interval(&MAIZE, 0.95, 20_000, &mut rng).unwrap();
        assert!((interval.low - 0.004).abs() < 3.5, "{interval:?}");
        assert!((interval.high - 41.863).abs() < 3.5, "{interval:?}");
    }

    #[test]
    fn a_seed_decides_everything() {
        let of = |seed| mean_interval(&MAIZE, 0.95, 500, &mut Pcg64::seed_from_u64(seed));
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn constant_values_have_an_interval_of_one_point() {
        let mut rng = Pcg64::seed_from_u64(1);
        let interval = mean_interval(&[2.0; 6], 0.95, 100, &mut rng).unwrap();
        assert_eq!((interval.low, interval.high), (2.0, 2.0));
        assert_eq!(mean_interval(&[2.0], 0.95, 100, &mut rng), None);
    }
}
