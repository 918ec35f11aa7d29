//! The interval of a mean of few values (W. Gosset's t).

use super::{Interval, deviation, mean};

/// The interval that holds the mean of what `values` were drawn from with a probability of 95 %, if they are about normal;
/// `None` of fewer than two values.
#[must_use]
pub(crate) fn interval(values: &[f64]) -> Option<Interval> {
    let (mean, deviation) = (mean(values)?, deviation(values)?);
    let count = values.len() as f64;
    let reach = quantile(values.len() - 1) * deviation / count.sqrt();
    Some(Interval { low: mean - reach, high: mean + reach })
}

/// The 97.5 % quantile of t with `freedom` degrees of freedom (at least 1), found by bisection of its distribution.
fn quantile(freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 16.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if share_within(middle, freedom) < 0.95 { low = middle } else { high = middle }
    }
    low
}

/// The probability of −t … t. Closed forms for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4).
fn share_within(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let mut term = if freedom.is_multiple_of(2) { 1.0 } else { cos };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    let first = if freedom.is_multiple_of(2) { 1 } else { 2 };
    for k in (first..freedom.saturating_sub(2)).step_by(2) {
        term *= cos * cos * k as f64 / (k + 1) as f64;
        sum += term;
    }
    if freedom.is_multiple_of(2) { sin * sum } else { std::f64::consts::FRAC_2_PI * (angle + sin * sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_table() {
        for (freedom, expected) in [
            (1, 12.7062),
            (2, 4.3027),
            (3, 3.1824),
            (4, 2.7764),
            (5, 2.5706),
            (9, 2.2622),
            (10, 2.2281),
            (30, 2.0423),
            (100, 1.9840),
        ] {
            let got = quantile(freedom);
            assert!((got - expected).abs() < 1e-4, "{freedom}: {got} is not {expected}");
        }
    }

    #[test]
    fn an_interval_is_centred_and_needs_two_values() {
        let got = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        // 3 ± 2.7764 · 1.5811 / √5
        assert!((got.low - 1.0368).abs() < 1e-3 && (got.high - 4.9632).abs() < 1e-3, "{got:?}");
        assert!(got.holds(3.0) && !got.holds(5.0));
        assert_eq!(interval(&[1.0]), None);
        assert_eq!(interval(&[2.0, 2.0]), Some(Interval { low: 2.0, high: 2.0 }));
    }
}
