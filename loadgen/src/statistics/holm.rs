//! Several tests at once: without a correction one of twenty fails by chance.

/// The p-values after Holm's step-down correction (S. Holm, 1979), in the order given. A test is significant at a level if its
/// corrected value is at most the level; then the chance of any false alarm among all is at most that level too.
#[must_use]
pub(crate) fn corrected(p_values: &[f64]) -> Vec<f64> {
    let count = p_values.len();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut corrected = vec![0.0; count];
    let mut highest = 0.0_f64;
    for (rank, place) in order.into_iter().enumerate() {
        highest = highest.max(p_values[place] * (count - rank) as f64).min(1.0);
        corrected[place] = highest;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_is_weighed_by_all_and_order_is_kept() {
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") = 0.03 0.06 0.06 0.02
        let got = corrected(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expected) in got.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - expected).abs() < 1e-12, "{got} {expected}");
        }
        assert_eq!(corrected(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(corrected(&[]), [0.0; 0]);
    }
}
