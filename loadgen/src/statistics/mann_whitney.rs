//! Whether one sample tends to be above another (H. Mann and D. Whitney, 1947), whatever their distributions.

/// Samples of up to this many values in all are judged exactly.
const EXACT_UP_TO: usize = 40;

/// The two-sided p-value of `a` and `b` being draws of one distribution. Exact for small samples without ties; otherwise
/// by the normal approximation with correction for ties and continuity. 1 if either is empty or all values are equal.
#[must_use]
pub(crate) fn p_value(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let mut values: Vec<(f64, bool)> =
        a.iter().map(|v| (*v, true)).chain(b.iter().map(|v| (*v, false))).collect();
    values.sort_by(|x, y| x.0.total_cmp(&y.0));
    let (ranks_of_a, ties) = ranks(&values);
    let (n, m) = (a.len(), b.len());
    let u = ranks_of_a - (n * (n + 1)) as f64 / 2.0;
    if ties == 0.0 && n + m <= EXACT_UP_TO { exact(u, n, m) } else { approximate(u, n, m, ties) }
}

/// The sum of the ranks of the first sample, and Σ(t³ − t) over groups of t equal values.
fn ranks(values: &[(f64, bool)]) -> (f64, f64) {
    let (mut sum, mut ties, mut from) = (0.0, 0.0, 0);
    while from < values.len() {
        let to = from + values[from..].iter().take_while(|v| v.0 == values[from].0).count();
        let rank = (from + 1 + to) as f64 / 2.0;
        sum += rank * values[from..to].iter().filter(|v| v.1).count() as f64;
        let tied = (to - from) as f64;
        ties += tied.powi(3) - tied;
        from = to;
    }
    (sum, ties)
}

/// Of all ways to mix the samples, the share whose U is as far from its mean.
fn exact(u: f64, n: usize, m: usize) -> f64 {
    let ways = ways(n, m);
    let all: f64 = ways.iter().sum();
    let low = u.min((n * m) as f64 - u);
    let tail: f64 = ways.iter().take(low as usize + 1).sum();
    (2.0 * tail / all).min(1.0)
}

/// How many ways of mixing samples of `n` and `m` values give each U: the coefficients of the Gaussian binomial.
fn ways(n: usize, m: usize) -> Vec<f64> {
    let mut counts = vec![0.0; n * m + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        // Times (1 − x^(m+i)), then divided by (1 − x^i).
        for u in (m + i..counts.len()).rev() {
            counts[u] -= counts[u - m - i];
        }
        for u in i..counts.len() {
            counts[u] += counts[u - i];
        }
    }
    counts
}

fn approximate(u: f64, n: usize, m: usize, ties: f64) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let off = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    (2.0 * upper_tail(off / variance.sqrt())).min(1.0)
}

/// The share of a standard normal distribution above `z` ≥ 0 (Abramowitz and Stegun 26.2.17, off by less than 7.5e-8).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-4, "{got} is not {expected}");
    }

    #[test]
    fn small_samples_are_judged_exactly() {
        // Five against five, all apart: 2 of the 252 orders.
        close(p_value(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]), 2.0 / 252.0);
        // U = 9 of 16: 62 of the 70 orders are as far from 8.
        close(p_value(&[1.0, 4.0, 6.0, 8.0], &[2.0, 3.0, 5.0, 7.0]), 0.885_714);
        let total: f64 = ways(5, 7).iter().sum();
        close(total, 792.0);
    }

    #[test]
    fn ties_and_large_samples_use_the_approximation() {
        // By hand: U = 2.5, variance 38.18, z = 2.4275.
        close(p_value(&[1.0, 2.0, 2.0, 3.0, 4.0, 5.0], &[4.0, 5.0, 5.0, 6.0, 7.0, 8.0]), 0.015_203);
        assert_eq!(p_value(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
        let low: Vec<f64> = (0..30).map(f64::from).collect();
        let high: Vec<f64> = (0..30).map(|i| f64::from(i) + 20.5).collect();
        assert!(p_value(&low, &high) < 1e-5);
        assert!(p_value(&low, &low.iter().map(|v| v + 0.5).collect::<Vec<_>>()) > 0.5);
    }

    #[test]
    fn nothing_proves_nothing() {
        assert_eq!(p_value(&[], &[1.0]), 1.0);
        close(p_value(&[1.0], &[2.0]), 1.0);
    }
}
