//! Whether values come from a distribution (Kolmogorov and Smirnov). Tests of what is drawn rest upon it.

/// The largest distance between the distribution of `values` and `cumulative`, in units of the distance that a sample of
/// this size passes by chance once in a thousand times: 1.95 / √n, the asymptotic value for n above 35.
pub(crate) fn distance(mut values: Vec<f64>, cumulative: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let at = |(i, value): (usize, &f64)| {
        let expected = cumulative(*value);
        (expected - i as f64 / count).abs().max(((i + 1) as f64 / count - expected).abs())
    };
    values.iter().enumerate().map(at).fold(0.0, f64::max) / (1.95 / count.sqrt())
}

#[test]
fn a_sample_is_near_its_own_distribution_and_far_from_others() {
    let even: Vec<f64> = (0..1000).map(|i| (f64::from(i) + 0.5) / 1000.0).collect();
    let bound = 1.95 / 1000_f64.sqrt();
    assert!((distance(even.clone(), |x| x) * bound - 0.0005).abs() < 1e-9);
    assert!(distance(even, |x| x * x) > 1.0);
    let one = |share: f64| distance(vec![2.0], |_| share) * 1.95;
    assert!((one(0.25) - 0.75).abs() < 1e-9 && (one(0.75) - 0.75).abs() < 1e-9, "above and below");
}
