//! Wilcoxon's signed-rank test for paired differences, two-sided.
//!
//! Zeros are left out and ties share their mean rank. Up to 50 pairs the distribution is counted
//! exactly, ties included; above that it is approximated by the normal one.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

/// Most pairs for which all sign patterns are counted.
const EXACT_UP_TO: usize = 50;

/// The result of the test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignedRank {
    /// Pairs that differ.
    pub pairs: usize,
    /// Sum of the ranks of positive differences (R's V).
    pub statistic: f64,
    /// Two-sided p value; 1 if no pair differs.
    pub p: f64,
}

/// The smallest p value that this many pairs can give.
pub fn smallest_p(pairs: usize) -> f64 {
    2.0f64.powi(1 - i32::try_from(pairs).unwrap_or(i32::MAX)).min(1.0)
}

/// Tests whether the differences lie symmetrically around 0.
pub fn signed_rank(differences: &[f64]) -> SignedRank {
    let mut values: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    values.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (doubled, ties) = doubled_ranks(&values);
    let positive: u64 =
        values.iter().zip(&doubled).filter(|(v, _)| **v > 0.0).map(|(_, rank)| rank).sum();
    let p = if values.len() <= EXACT_UP_TO {
        exact(&doubled, positive)
    } else {
        approximate(values.len() as f64, ties, positive as f64 / 2.0)
    };
    SignedRank { pairs: values.len(), statistic: positive as f64 / 2.0, p }
}

/// Twice the mean rank of each value, and the sum of t³ − t over the groups of ties.
fn doubled_ranks(values: &[f64]) -> (Vec<u64>, f64) {
    let mut ranks = Vec::with_capacity(values.len());
    let mut ties = 0.0;
    for group in values.chunk_by(|a, b| a.abs() == b.abs()) {
        let (before, size) = (ranks.len() as u64, group.len() as u64);
        ranks.extend(std::iter::repeat_n(2 * before + size + 1, group.len()));
        ties += (size * size * size - size) as f64;
    }
    (ranks, ties)
}

/// Counts the sign patterns by their sum of positive doubled ranks.
fn exact(doubled: &[u64], positive: u64) -> f64 {
    let total: u64 = doubled.iter().sum();
    let mut patterns = vec![0.0f64; total as usize + 1];
    patterns[0] = 1.0;
    for &rank in doubled {
        for sum in (rank as usize..patterns.len()).rev() {
            patterns[sum] += patterns[sum - rank as usize];
        }
    }
    let extreme = positive.min(total - positive) as usize;
    let tail: f64 = patterns[..=extreme].iter().sum();
    let exponent = i32::try_from(doubled.len()).unwrap_or(i32::MAX);
    (2.0 * tail / 2.0f64.powi(exponent)).min(1.0)
}

/// With correction for continuity and ties, as R's `wilcox.test` does.
fn approximate(n: f64, ties: f64, positive: f64) -> f64 {
    let variance = n * (n + 1.0) * (2.0 * n + 1.0) / 24.0 - ties / 48.0;
    let distance = (positive - n * (n + 1.0) / 4.0).abs();
    let z = (distance - 0.5).max(0.0) / variance.sqrt();
    Normal::new(0.0, 1.0).map_or(1.0, |normal| (2.0 * normal.cdf(-z)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(differences: &[f64], statistic: f64, p: f64) {
        let test = signed_rank(differences);
        assert!((test.statistic - statistic).abs() < 1e-9, "{test:?}");
        assert!((test.p - p).abs() < 5e-5, "{test:?}");
    }

    #[test]
    fn hollander_and_wolfe_depression_scores() {
        // Hollander & Wolfe (1973), the example of R's wilcox.test: V = 40, one-sided 0.01953.
        // In thousandths.
        let x = [1830, 500, 1620, 2480, 1680, 1880, 1550, 3060, 1300];
        let y = [878, 647, 598, 2050, 1060, 1290, 1060, 3140, 1290];
        let differences: Vec<f64> = x.iter().zip(y).map(|(x, y)| f64::from(x - y)).collect();
        check(&differences, 40.0, 0.03906);
    }

    #[test]
    fn darwins_maize() {
        // R: wilcox.test(d): V = 96, p-value = 0.04126
        let d = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48];
        check(&d.map(f64::from), 96.0, 0.04126);
    }

    #[test]
    fn critical_values_of_the_tables() {
        // Two-sided 5 %: n = 6 needs W = 0, n = 10 needs W <= 8 (p 0.0488; W = 9 is 0.0645).
        check(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 21.0, 0.03125);
        let signs = |negative: &[usize]| -> Vec<f64> {
            (1..=10usize)
                .map(|i| if negative.contains(&i) { -(i as f64) } else { i as f64 })
                .collect()
        };
        check(&signs(&[8]), 47.0, 0.04883);
        check(&signs(&[9]), 46.0, 0.06445);
    }

    #[test]
    fn ties_and_zeros_by_hand() {
        // |d| = 1, 1, 2 with ranks 1.5, 1.5, 3: all positive is 1 of 8 patterns each way.
        check(&[1.0, 1.0, 2.0, 0.0], 6.0, 0.25);
        // Sums <= 1.5: {}, {a}, {b}: 3 of 8 patterns, doubled.
        check(&[1.0, -1.0, -2.0], 1.5, 0.75);
        check(&[0.0, 0.0], 0.0, 1.0);
    }

    #[test]
    fn the_approximation_continues_the_exact_one() {
        let values: Vec<f64> =
            (1..=50).map(|i: i32| f64::from(if i % 3 == 0 { -i } else { i })).collect();
        let (doubled, ties) = doubled_ranks(&values);
        let positive: u64 =
            values.iter().zip(&doubled).filter(|(v, _)| **v > 0.0).map(|(_, r)| r).sum();
        let (a, b) = (exact(&doubled, positive), approximate(50.0, ties, positive as f64 / 2.0));
        assert!((a - b).abs() < 0.001, "{a} {b}");
    }

    #[test]
    fn few_pairs_cannot_be_significant() {
        assert_eq!(smallest_p(6), 0.03125);
        assert_eq!(smallest_p(5), 0.0625);
        assert_eq!(smallest_p(0), 1.0);
    }
}
