//! Where a curve bends: two straight pieces that fit better than one.

/// Fewest points that a bend is looked for in.
const FEWEST: usize = 5;
/// Share of the error of one straight line that the second piece has to take away.
const LEAST_GAIN: f64 = 0.5;
/// Errors that differ by this share of the error of one straight line are equal.
const ROUNDING: f64 = 1e-9;

/// A bend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Knee {
    /// The place of the last point of the first piece.
    pub at: usize,
    /// Slope before it.
    pub before: f64,
    /// Slope after it.
    pub after: f64,
}

/// The bend of a curve whose points ascend in x, such as latency over offered load: the split into two fitted lines with the
/// least squared error. `None` of fewer than five points, and where two lines fit hardly better than one.
#[must_use]
pub(crate) fn knee(points: &[(f64, f64)]) -> Option<Knee> {
    if points.len() < FEWEST {
        return None;
    }
    let (_, alone) = line(points);
    // Each piece has two points at least; a point that fits both pieces belongs to the first.
    let mut best: Option<(Knee, f64)> = None;
    for at in (1..points.len() - 2).rev() {
        let ((before, first), (after, second)) = (line(&points[..=at]), line(&points[at + 1..]));
        let error = first + second;
        if best.is_none_or(|(_, least)| error < least - ROUNDING * alone) {
            best = Some((Knee { at, before, after }, error));
        }
    }
    let (knee, error) = best?;
    (alone > 0.0 && error <= (1.0 - LEAST_GAIN) * alone).then_some(knee)
}

/// Slope and squared error of the line of least squares.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (xx, xy) = points
        .iter()
        .fold((0.0, 0.0), |(xx, xy), point| (xx + (point.0 - x).powi(2), xy + (point.0 - x) * (point.1 - y)));
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    let error = points.iter().map(|point| (point.1 - y - slope * (point.0 - x)).powi(2)).sum();
    (slope, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bend_is_found_and_a_line_has_none() {
        let bent: Vec<(f64, f64)> = (0..10)
            .map(f64::from)
            .map(|x| (x, if x <= 6.0 { 10.0 + x } else { 16.0 + 50.0 * (x - 6.0) }))
            .collect();
        let knee = knee(&bent).unwrap();
        assert_eq!(knee.at, 6);
        assert!((knee.before - 1.0).abs() < 1e-9 && (knee.after - 50.0).abs() < 1e-9, "{knee:?}");
        let straight: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), 3.0 * f64::from(x))).collect();
        assert_eq!(super::knee(&straight), None);
        // Two lines follow noise a little better than one, and that is no bend.
        let noise = [0.6, -0.4, 0.5, -0.6, 0.4, 0.3, -0.5, 0.6, -0.4, 0.2];
        let noisy: Vec<(f64, f64)> = straight.iter().zip(noise).map(|((x, y), off)| (*x, y + off)).collect();
        assert_eq!(super::knee(&noisy), None);
        assert_eq!(super::knee(&bent[..4]), None);
    }
}
