//! Order statistics on plain slices: exact, and defined where nothing was measured.

/// The `q`-quantile (0 ..= 1) of ascending values, interpolated linearly between the two nearest ranks: numpy's
/// default method, rank `q · (n − 1)`. `None` of nothing.
pub(crate) fn quantile(ascending: &[f64], q: f64) -> Option<f64> {
    let last = ascending.len().checked_sub(1)?;
    let rank = q.clamp(0.0, 1.0) * last as f64;
    let below = rank.floor() as usize;
    let (low, high) = (ascending[below], ascending[(below + 1).min(last)]);
    Some(low + (high - low) * (rank - below as f64))
}

/// `part / whole`, and 0 of an empty whole: a rate of nothing is no rate, not an error.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A figure over the seeds of one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// The spread of some values; `None` of nothing.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let median = quantile(&values, 0.5)?;
        Some(Self { median, min: *values.first()?, max: *values.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_numpys() {
        // numpy.percentile([15, 20, 35, 40, 50], [0, 25, 40, 50, 90, 99, 100])
        let values = [15.0, 20.0, 35.0, 40.0, 50.0];
        for (q, expected) in
            [(0.0, 15.0), (0.25, 20.0), (0.4, 29.0), (0.5, 35.0), (0.9, 46.0), (0.99, 49.6), (1.0, 50.0)]
        {
            let got = quantile(&values, q).unwrap();
            assert!((got - expected).abs() < 1e-9, "q {q}: {got} is not {expected}");
        }
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_spread_of_an_even_number_of_seeds_is_centred() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn nothing_has_a_zero_ratio() {
        assert_eq!(ratio(1.0, 0.0), 0.0);
        assert_eq!(ratio(1.0, 4.0), 0.25);
    }
}
