//! The statistics behind a verdict: quantiles, a paired bootstrap interval, the signed-rank test
//! and Holm's correction. Pure functions over samples; distributions come from `statrs`.

mod bootstrap;
mod holm;
mod signed_rank;

pub use bootstrap::{Interval, mean_interval};
pub use holm::holm;
pub use signed_rank::{SignedRank, signed_rank, smallest_p};

/// Arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample standard deviation (n − 1); `None` of fewer than two values.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Quantile `q` (0 to 1) by linear interpolation between order statistics, as R's type 7; `None`
/// of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

/// The same for values that are in rising order already.
pub(crate) fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// Median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_r_type_7() {
        // R: quantile(1:10, c(0, .25, .5, .95, 1)) = 1 3.25 5.5 9.55 10
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        for (q, expected) in [(0.0, 1.0), (0.25, 3.25), (0.5, 5.5), (0.95, 9.55), (1.0, 10.0)] {
            assert!((quantile(&values, q).unwrap() - expected).abs() < 1e-12, "{q}");
        }
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(median(&[4.0]), Some(4.0));
    }

    #[test]
    fn deviation_divides_by_one_less_than_the_number() {
        // 2 4 4 4 5 5 7 9: mean 5, squares 32, sqrt(32 / 7).
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert!((deviation(&values).unwrap() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(deviation(&[1.0]), None);
    }
}
