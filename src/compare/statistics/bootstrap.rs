//! A bootstrap interval for the mean of paired differences.
//!
//! Plain percentile intervals are too narrow for few samples. This is the *expanded* percentile
//! interval (T. Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, section 4.3): the
//! percentiles are moved outwards as far as Student's distribution and the n − 1 divisor ask for.
//! Of fewer than 6 values that is not far enough, as no resample has a mean beyond the values
//! themselves (of 3 normal values it would cover 74 % in place of 95 %): Student's own interval
//! stands in there.

use super::{deviation, mean, quantile_of_sorted};
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Fewest values that are resampled.
const FEWEST_RESAMPLED: usize = 6;

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
    if n < FEWEST_RESAMPLED {
        return students_interval(values, level);
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

/// The interval for the mean of normal values.
fn students_interval(values: &[f64], level: f64) -> Option<Interval> {
    let n = values.len() as f64;
    let students = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let center = mean(values)?;
    let half = students.inverse_cdf(0.5 + level / 2.0) * deviation(values)? / n.sqrt();
    Some(Interval { low: center - half, high: center + half })
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
    fn few_values_have_students_interval() {
        // R: t.test(c(1, 2, 4))$conf.int = -1.461 6.128
        let mut rng = Pcg64::seed_from_u64(1);
        let interval = mean_interval(&[1.0, 2.0, 4.0], 0.95, 100, &mut rng).unwrap();
        assert!((interval.low + 1.461_166).abs() < 1e-4, "{interval:?}");
        assert!((interval.high - 6.127_833).abs() < 1e-4, "{interval:?}");
    }

    #[test]
    fn it_covers_about_what_it_says() {
        const TRIALS: u32 = 1_000;
        let mut rng = Pcg64::seed_from_u64(9);
        for n in [3, 5, 6, 10, 20] {
            let mut held = 0;
            for _ in 0..TRIALS {
                // Nearly normal around 0.
                let mut value = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
                let values: Vec<f64> = (0..n).map(|_| value()).collect();
                let interval = mean_interval(&values, 0.95, 400, &mut rng).unwrap();
                held += u32::from(interval.holds(0.0));
            }
            assert!(held * 100 >= 90 * TRIALS, "{n} values: {held} of {TRIALS}");
        }
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
