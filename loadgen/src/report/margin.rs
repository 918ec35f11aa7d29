//! Whether the best of several figures is really better than the others, or no more than a draw of the seeds.

use super::format::trimmed;
use super::metric::{Better, Metric};
use super::stats::Spread;

/// A lead of at most this share of the next figure is none.
const LEAST: f64 = 0.02;

/// The rule, in words.
pub(super) const RULE: &str = "A side wins where it is more than 2 % better than the next and no seed of it comes into the range of the next; \
     otherwise it is a tie.";

/// How figures of the same thing stand to each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    /// One is better than all others.
    Won {
        /// Its place.
        first: usize,
        /// The next one's.
        second: usize,
        /// By how much, in words: `12 % lower`.
        lead: String,
    },
    /// None is better than all others; these share the first rank.
    Tied(Vec<usize>),
    /// There is nothing to compare.
    Alone,
}

/// How the figures of `metric` stand, each the spread over the seeds of one side.
pub(super) fn standing(spreads: &[Option<Spread>], metric: &Metric) -> Standing {
    let mut order: Vec<(usize, Spread)> =
        spreads.iter().enumerate().filter_map(|(place, spread)| Some((place, (*spread)?))).collect();
    match metric.better {
        Better::Higher => order.sort_by(|a, b| b.1.median.total_cmp(&a.1.median)),
        Better::Lower => order.sort_by(|a, b| a.1.median.total_cmp(&b.1.median)),
        Better::Neither => return Standing::Alone,
    }
    let [(first, best), (second, next), ..] = order[..] else { return Standing::Alone };
    if !is_clear(best, next, metric) {
        let tied = order.iter().filter(|(_, other)| !is_clear(best, *other, metric));
        return Standing::Tied(tied.map(|(place, _)| *place).collect());
    }
    Standing::Won { first, second, lead: lead(best.median, next.median, metric) }
}

/// Whether the ranges do not meet and the medians are apart.
fn is_clear(best: Spread, other: Spread, metric: &Metric) -> bool {
    let apart = match metric.better {
        Better::Higher => best.min > other.max,
        _ => best.max < other.min,
    };
    apart && (best.median - other.median).abs() > LEAST * other.median.abs()
}

/// By how much one figure is better than another. Shares are compared in points.
fn lead(best: f64, next: f64, metric: &Metric) -> String {
    let word = if metric.better == Better::Higher { "higher" } else { "lower" };
    let by = match metric.unit {
        "share" => format!("{} points", trimmed((best - next).abs() * 100.0, 0)),
        _ if next == 0.0 => return word.to_owned(),
        _ if best > 2.0 * next => format!("{} times", trimmed(best / next, 1)),
        _ => format!("{} %", trimmed((best - next).abs() / next * 100.0, 0)),
    };
    format!("{by} {word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(min: f64, median: f64, max: f64) -> Option<Spread> {
        Some(Spread { median, min, max })
    }

    fn of(name: &str, spreads: &[Option<Spread>]) -> Standing {
        standing(spreads, Metric::named(name).unwrap())
    }

    #[test]
    fn a_clear_lead_wins_and_is_told_in_words() {
        let won = |first, second, lead: &str| Standing::Won { first, second, lead: lead.to_owned() };
        let two = [spread(90.0, 100.0, 110.0), spread(190.0, 200.0, 210.0)];
        assert_eq!(of("ttft_ms.p50", &two), won(0, 1, "50 % lower"));
        assert_eq!(of("input_tok_s", &two), won(1, 0, "100 % higher"));
        let three = [spread(0.4, 0.5, 0.5), None, spread(0.9, 0.97, 1.0), spread(0.1, 0.2, 0.3)];
        assert_eq!(of("slo_attainment", &three), won(2, 0, "47 points higher"));
        assert_eq!(
            of("input_tok_s", &[spread(1.0, 1.0, 1.0), spread(9.0, 9.0, 9.0)]),
            won(1, 0, "9 times higher")
        );
    }

    #[test]
    fn what_seeds_may_turn_is_a_tie() {
        let overlapping = [spread(80.0, 100.0, 150.0), spread(140.0, 200.0, 210.0)];
        assert_eq!(of("ttft_ms.p50", &overlapping), Standing::Tied(vec![0, 1]));
        let near = [spread(100.0, 100.0, 100.0), spread(102.0, 102.0, 102.0), spread(300.0, 300.0, 300.0)];
        assert_eq!(of("ttft_ms.p50", &near), Standing::Tied(vec![0, 1]), "not the third");
        assert_eq!(of("ttft_ms.p50", &near[..1]), Standing::Alone);
        assert_eq!(of("requests", &near), Standing::Alone, "no merit");
    }
}
