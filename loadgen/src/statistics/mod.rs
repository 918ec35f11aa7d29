//! Statistics that a verdict rests upon: intervals, tests and fits. Every function is pure, and what draws is seeded.

pub(crate) mod bootstrap;
pub(crate) mod holm;
pub(crate) mod knee;
#[cfg(test)]
pub(crate) mod kolmogorov;
pub(crate) mod mann_whitney;
pub(crate) mod student_t;

/// The median of some values, the mean of the two middle ones where their number is even; `None` of nothing.
#[must_use]
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some(f64::midpoint(sorted[low], sorted[high]))
}

/// The arithmetic mean; `None` of nothing.
#[must_use]
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of a sample (divisor n − 1); `None` of fewer than two values.
#[must_use]
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// Two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower one.
    pub low: f64,
    /// The upper one.
    pub high: f64,
}

impl Interval {
    /// Whether a value lies within, the bounds included.
    #[cfg(test)]
    pub fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_spread() {
        assert_eq!(
            (median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])),
            (None, Some(2.0), Some(2.5))
        );
        assert_eq!((mean(&[]), mean(&[1.0, 2.0])), (None, Some(1.5)));
        assert_eq!((deviation(&[1.0]), deviation(&[1.0, 3.0])), (None, Some(2.0_f64.sqrt())));
    }
}
