//! Whether values come from a distribution (Kolmogorov and Smirnov).

/// The largest distance between the distribution of `values` and `cumulative`.
#[must_use]
pub fn distance(values: &[f64], cumulative: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let at = |(i, value): (usize, &f64)| {
        let expected = cumulative(*value);
        (expected - i as f64 / count).abs().max(((i + 1) as f64 / count - expected).abs())
    };
    sorted.iter().enumerate().map(at).fold(0.0, f64::max)
}

/// The distance that a sample of `count` passes by chance once in a thousand times: 1.95 / √n, the asymptotic value for
/// n above 35.
#[must_use]
pub fn bound(count: usize) -> f64 {
    1.95 / (count as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_near_its_own_distribution_and_far_from_others() {
        let even: Vec<f64> = (0..1000).map(|i| (f64::from(i) + 0.5) / 1000.0).collect();
        assert!((distance(&even, |x| x) - 0.0005).abs() < 1e-9);
        assert!(distance(&even, |x| x * x) > bound(1000));
        assert_eq!(distance(&[2.0], |_| 0.25), 0.75);
    }
}
