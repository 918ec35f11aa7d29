//! Numbers out of measurements, of which some are disturbed.

/// Farther from the middle than so many times the usual distance, a measurement is a disturbance.
const FAR: f64 = 6.0;
/// The least that measurements may differ without one of them being a disturbance.
const NEAR: f64 = 1e-3;
/// The least relative error of a mean: counters count in microseconds, and no engine is its formula to the last digit.
const LEAST_ERROR: f64 = 3e-4;

/// A mean of some of several measurements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mean {
    pub(super) ns: f64,
    /// Which of the measurements it is of.
    pub(super) keep: Vec<bool>,
    /// Relative standard error.
    pub(super) error: f64,
}

/// Repeated measurements of the same thing, in series: the mean of each without its disturbances. How much one time varies is learnt from all series together, and is the second of what is
/// given back; where nothing was repeated it is `guess`.
pub(super) fn means(series: &[Vec<f64>], guess: f64) -> (Vec<Mean>, f64) {
    let shares: Vec<Vec<f64>> = series
        .iter()
        .map(|all| {
            let middle = median(&mut all.clone()).unwrap_or(1.0);
            all.iter().map(|ns| ns / middle - 1.0).collect()
        })
        .collect();
    // The middle of a series is no measurement of how far it is from the middle.
    let mut distances: Vec<f64> =
        (shares.iter().flatten()).map(|share| share.abs()).filter(|distance| *distance > 0.0).collect();
    let limit = FAR * median(&mut distances).unwrap_or(0.0).max(NEAR / FAR);
    let (mut squares, mut freedom) = (0.0, 0.0);
    let mut kept = Vec::new();
    for (all, shares) in series.iter().zip(&shares) {
        let keep: Vec<bool> = shares.iter().map(|share| share.abs() <= limit).collect();
        let of = |values: &[f64]| -> Vec<f64> {
            values.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(value, _)| *value).collect()
        };
        let near = of(shares);
        let mean = near.iter().sum::<f64>() / near.len().max(1) as f64;
        squares += near.iter().map(|share| (share - mean).powi(2)).sum::<f64>();
        freedom += near.len().saturating_sub(1) as f64;
        let times = of(all);
        kept.push((times.iter().sum::<f64>() / times.len().max(1) as f64, keep, times.len()));
    }
    let spread = if freedom > 0.0 { (squares / freedom).sqrt() } else { guess };
    let error = |count: usize| (spread / (count.max(1) as f64).sqrt()).max(LEAST_ERROR);
    (kept.into_iter().map(|(ns, keep, count)| Mean { ns, keep, error: error(count) }).collect(), spread)
}

/// The slope of the line through points, by the median of Theil and Sen, which a few late answers do not move.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let least = points.iter().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
    // Between neighbours any disturbance is a slope.
    let far = (most - least) / 4.0;
    let mut slopes = Vec::new();
    for (at, (x1, y1)) in points.iter().enumerate() {
        for (x2, y2) in &points[at + 1..] {
            if x2 != x1 && (x2 - x1).abs() >= far {
                slopes.push((y2 - y1) / (x2 - x1));
            }
        }
    }
    median(&mut slopes)
}

/// The middle one.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_time_is_left_out_and_the_error_shrinks_with_repeats() {
        let noisy = |count: usize| -> Vec<f64> {
            (0..count).map(|at| 100.0 + ((at * 7) % 11) as f64 - 5.0).collect()
        };
        let mut disturbed = noisy(22);
        disturbed[3] = 900.0;
        let (all, _) = means(&[disturbed, noisy(88), vec![50.0]], 0.0);
        assert!((all[0].ns - 100.0).abs() < 1.0 && !all[0].keep[3], "{:?}", all[0]);
        let spread = 0.0316;
        for (at, count) in [(0, 21.0_f64), (1, 88.0), (2, 1.0)] {
            let expected = spread / count.sqrt();
            assert!((all[at].error / expected - 1.0).abs() < 0.1, "{at}: {} for {expected}", all[at].error);
        }
    }

    #[test]
    fn times_that_do_not_vary_are_certain() {
        let (all, _) = means(&[vec![5.0; 3], vec![7.0]], 0.1);
        assert_eq!((all[0].ns, all[0].error, all[1].error), (5.0, LEAST_ERROR, LEAST_ERROR));
    }

    #[test]
    fn what_was_not_repeated_is_not_certain() {
        let (all, _) = means(&[vec![5.0], vec![7.0]], 0.1);
        assert_eq!((all[0].error, all[1].error), (0.1, 0.1));
    }

    #[test]
    fn disturbed_neighbours_do_not_tilt_the_line() {
        let near = (0..7).map(|at| (10.0 + f64::from(at) * 0.01, 60.0 + f64::from(at % 3)));
        let points: Vec<_> = near.chain([(20.0, 80.0), (40.0, 120.0), (200.0, 440.0)]).collect();
        let slope = slope(&points).unwrap();
        assert!((slope - 2.0).abs() < 0.02, "{slope}");
    }

    #[test]
    fn a_late_answer_does_not_move_the_line() {
        let points = [(1.0, 12.0), (2.0, 14.0), (3.0, 16.0), (4.0, 90.0), (5.0, 20.0)];
        assert_eq!(slope(&points), Some(2.0));
    }
}
