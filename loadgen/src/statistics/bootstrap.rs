//! Intervals by drawing again from what was measured (B. Efron), for figures that no formula knows.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::{Interval, median};

/// How often is drawn again.
const ROUNDS: usize = 2000;

/// The 95 % interval (percentile method) of the ratio of medians, `changed` over `base`; the samples are independent. `None`
/// if either has fewer than two values, or the base has a median of 0 in too many draws. The same `seed` gives the same
/// interval.
#[must_use]
pub(crate) fn ratio_of_medians(changed: &[f64], base: &[f64], seed: u64) -> Option<Interval> {
    if changed.len() < 2 || base.len() < 2 {
        return None;
    }
    let mut draws = Pcg64::new(u128::from(seed), 0x7261_7469);
    let ratio = || Some(median(&again(changed, &mut draws))? / median(&again(base, &mut draws))?);
    middle(std::iter::repeat_with(ratio).take(ROUNDS).flatten())
}

/// The 95 % interval of the mean of paired differences, such as of two policies on the same seeds. `None` of fewer than two.
#[must_use]
pub(crate) fn mean_of_differences(differences: &[f64], seed: u64) -> Option<Interval> {
    if differences.len() < 2 {
        return None;
    }
    let mut draws = Pcg64::new(u128::from(seed), 0x6469_6666);
    let mean = || super::mean(&again(differences, &mut draws));
    middle(std::iter::repeat_with(mean).take(ROUNDS).flatten())
}

/// As many values, each drawn from all.
fn again(values: &[f64], draws: &mut Pcg64) -> Vec<f64> {
    let below = |bound: usize, draw: u64| ((u128::from(draw) * bound as u128) >> 64) as usize;
    (0..values.len()).map(|_| values[below(values.len(), draws.random::<u64>())]).collect()
}

/// The middle 95 %.
fn middle(figures: impl Iterator<Item = f64>) -> Option<Interval> {
    let mut figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    figures.sort_by(f64::total_cmp);
    let cut = ROUNDS / 40;
    (figures.len() > ROUNDS / 2)
        .then(|| Interval { low: figures[cut], high: figures[figures.len() - 1 - cut] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_covered_and_narrow_samples_give_narrow_intervals() {
        let base = [100.0, 101.0, 99.0, 100.5, 99.5];
        let slower = base.map(|v| v * 1.2);
        let interval = ratio_of_medians(&slower, &base, 1).unwrap();
        assert!(interval.holds(1.2) && interval.low > 1.15 && interval.high < 1.25, "{interval:?}");
        assert!(ratio_of_medians(&base, &base, 1).unwrap().holds(1.0));
        assert_eq!(ratio_of_medians(&slower, &base, 1), Some(interval), "seeded");
        assert_eq!(ratio_of_medians(&[1.0], &base, 1), None);
        assert_eq!(ratio_of_medians(&base, &[0.0, 0.0], 1), None);
    }

    #[test]
    fn differences_around_nothing_are_noise() {
        assert!(mean_of_differences(&[1.0, -1.0, 0.5, -0.4, 0.1], 1).unwrap().holds(0.0));
        assert!(!mean_of_differences(&[1.0, 1.2, 0.9, 1.1, 0.8], 1).unwrap().holds(0.0));
    }

    #[test]
    fn the_middle_is_95_per_cent() {
        // A mean of 1 comes with a probability of 1/27, which is more than 2.5 % and less than 5 %.
        assert_eq!(mean_of_differences(&[0.0, 0.0, 1.0], 1).unwrap().high, 1.0);
        assert_eq!(mean_of_differences(&[0.0, 0.0, -1.0], 1).unwrap().low, -1.0);
        // Of four it comes with 1/256, and 3/4 or more with 13/256.
        assert_eq!(mean_of_differences(&[0.0, 0.0, 0.0, 1.0], 1).unwrap().high, 0.75);
    }
}
