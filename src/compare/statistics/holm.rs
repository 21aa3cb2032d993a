//! Holm's correction: with many rows, some differ by chance.

/// The p values adjusted so that the chance of *any* false call stays at the level they are
/// compared with, in the order given (as R's `p.adjust(p, "holm")`).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut floor: f64 = 0.0;
    for (rank, &i) in order.iter().enumerate() {
        floor = floor.max(p[i] * (p.len() - rank) as f64).min(1.0);
        adjusted[i] = floor;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_as_r_does() {
        // R: p.adjust(c(0.04, 0.01, 0.03, 0.02), "holm") = 0.06 0.04 0.06 0.06
        let adjusted = holm(&[0.04, 0.01, 0.03, 0.02]);
        for (a, b) in adjusted.iter().zip([0.06, 0.04, 0.06, 0.06]) {
            assert!((a - b).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.6, 0.7]), [1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }
}
