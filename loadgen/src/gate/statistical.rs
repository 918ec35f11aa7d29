//! Live cells: a difference counts when it is large enough to matter and too regular to be chance.
//!
//! Large enough: the medians differ by more than the figure's [`Tolerance`]. Too regular: a one-sided Mann–Whitney test on
//! the values of all repeats, corrected after Holm over the figures of the cell, at 5 %. One-sided, because a worse figure
//! and a better one have different consequences; at five against five repeats the smallest possible p-value is 1/252,
//! which leaves room for twelve figures.

use super::comparison::{Row, Verdict};
use super::figures::{self, Direction};
use super::pairing::Pair;
use super::snapshot::Cell;
use super::tolerance::{Rules, Tolerance};
use crate::statistics::{bootstrap, holm, mann_whitney, median};

/// Fewest repeats on either side that prove anything.
pub(crate) const LEAST_REPEATS: usize = 5;
/// Highest corrected p-value that is no chance.
const LEVEL: f64 = 0.05;
/// Of the draws of the intervals; any will do, as long as it stays.
const SEED: u64 = 1;

/// A figure of both cells: the values of its repeats.
struct Samples<'a> {
    tolerance: &'a Tolerance,
    before: Vec<f64>,
    after: Vec<f64>,
}

/// A row for every figure that is judged and was measured in the baseline.
pub(super) fn rows(pair: &Pair<'_>, label: &str, rules: &Rules) -> Vec<Row> {
    let samples = |tolerance| Samples {
        tolerance,
        before: measured(pair.before, tolerance),
        after: measured(pair.after, tolerance),
    };
    let mut all: Vec<Samples<'_>> = rules.tolerances().iter().map(samples).collect();
    all.retain(|samples| !samples.before.is_empty());
    all.sort_by_key(|samples| figures::place(samples.tolerance.metric));
    let worse = corrected(&all, Direction::Worse);
    let better = corrected(&all, Direction::Better);
    let chances = worse.into_iter().zip(better);
    all.iter()
        .zip(chances)
        .map(|(samples, (worse, better))| samples.row(pair, label, worse, better))
        .collect()
}

fn measured(cell: &Cell, tolerance: &Tolerance) -> Vec<f64> {
    cell.figures.get(tolerance.metric).into_iter().flatten().flatten().copied().collect()
}

/// For every figure how likely chance alone makes any of them look so changed in a direction.
fn corrected(all: &[Samples<'_>], direction: Direction) -> Vec<f64> {
    holm::corrected(&all.iter().map(|samples| samples.chance(direction)).collect::<Vec<_>>())
}

impl Samples<'_> {
    /// Which way it went, by the medians.
    fn direction(&self) -> Direction {
        match (median(&self.before), median(&self.after)) {
            (Some(before), Some(after)) => figures::direction(self.tolerance.metric, before, after),
            _ => Direction::Neither,
        }
    }

    /// How likely chance alone makes it look so changed in a direction. The test is symmetric, so its two-sided value
    /// is twice the one in the direction that was seen.
    fn chance(&self, direction: Direction) -> f64 {
        let one_sided = mann_whitney::p_value(&self.before, &self.after) / 2.0;
        if self.direction() == direction { one_sided } else { 1.0 - one_sided }
    }

    fn row(&self, pair: &Pair<'_>, label: &str, worse: f64, better: f64) -> Row {
        let (before, after) = (median(&self.before), median(&self.after));
        let direction = self.direction();
        let p = if direction == Direction::Better { better } else { worse };
        let matters = before.zip(after).is_some_and(|(from, to)| self.tolerance.is_exceeded(from, to));
        let too_few = pair.before.repeats().min(pair.after.repeats()) < LEAST_REPEATS;
        let verdict = if too_few {
            Verdict::TooFew
        } else if after.is_none() {
            // In no repeat: nothing got as far.
            Verdict::Missing
        } else if self.before.len().min(self.after.len()) < LEAST_REPEATS {
            Verdict::TooFew
        } else if !matters {
            Verdict::Same
        } else if p > LEVEL {
            Verdict::Noise
        } else {
            match direction {
                Direction::Better => Verdict::Better,
                Direction::Worse => Verdict::Worse,
                Direction::Neither => Verdict::Same,
            }
        };
        let interval = bootstrap::ratio_of_medians(&self.after, &self.before, SEED);
        let p = (verdict != Verdict::TooFew && after.is_some()).then_some(p);
        Row { interval, p, ..Row::new(pair, label, self.tolerance.metric, (before, after), verdict) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fixture::cell;
    use crate::run::World;

    const BASE: [f64; 5] = [100.0, 102.0, 98.0, 101.0, 99.0];

    fn row(figure: &str, before: &[f64], after: &[f64]) -> Row {
        let [before, after] = [before, after].map(|values| cell(World::Live, "p", figure, values));
        let mut rows = rows(&Pair { before: &before, after: &after }, "p", &Rules::default());
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    }

    #[test]
    fn large_and_regular_is_a_verdict_in_its_direction() {
        let worse = row("ttft_ms.p50", &BASE, &BASE.map(|v| v * 1.2));
        assert_eq!(worse.verdict, Verdict::Worse);
        assert!((worse.p.unwrap() - 1.0 / 252.0).abs() < 1e-9, "{:?}", worse.p);
        assert!(worse.interval.unwrap().low > 1.1);
        assert_eq!(row("ttft_ms.p50", &BASE, &BASE.map(|v| v * 0.8)).verdict, Verdict::Better);
        assert_eq!(row("input_tok_s", &BASE, &BASE.map(|v| v * 0.8)).verdict, Verdict::Worse);
        assert_eq!(row("failed", &[0.0; 5], &[3.0, 4.0, 3.0, 2.0, 5.0]).verdict, Verdict::Worse);
    }

    #[test]
    fn small_or_irregular_is_none() {
        assert_eq!(
            row("ttft_ms.p50", &BASE, &BASE.map(|v| v * 1.08)).verdict,
            Verdict::Same,
            "8 %, however regular"
        );
        assert_eq!(row("ttft_ms.p50", &BASE, &[50.0, 300.0, 120.0, 90.0, 130.0]).verdict, Verdict::Noise);
        assert_eq!(row("failed", &[0.0; 5], &[0.0, 0.0, 0.0, 0.0, 9.0]).verdict, Verdict::Same, "the median");
    }

    #[test]
    fn few_repeats_prove_nothing() {
        assert_eq!(row("ttft_ms.p50", &BASE[..4], &BASE.map(|v| v * 9.0)).verdict, Verdict::TooFew);
        assert_eq!(row("ttft_ms.p50", &BASE, &[900.0; 4]).verdict, Verdict::TooFew);
    }

    #[test]
    fn what_is_not_measured_any_more_is_missing() {
        let before = cell(World::Live, "p", "ttft_ms.p50", &BASE);
        let mut after = before.clone();
        after.figures.insert("ttft_ms.p50".into(), vec![None; 5]);
        let rows = rows(&Pair { before: &before, after: &after }, "p", &Rules::default());
        assert_eq!((rows[0].verdict, rows[0].after, rows[0].fails()), (Verdict::Missing, None, true));
    }

    #[test]
    fn five_repeats_are_enough_for_all_default_figures_at_once() {
        let mut before = cell(World::Live, "p", "hit_rate", &BASE);
        let rules = Rules::default();
        for tolerance in rules.tolerances() {
            before.figures.insert(tolerance.metric.into(), BASE.map(Some).to_vec());
        }
        let mut after = before.clone();
        after.figures.insert("ttft_ms.p50".into(), BASE.map(|v| Some(v * 1.5)).to_vec());
        let rows = rows(&Pair { before: &before, after: &after }, "p", &rules);
        let worse: Vec<&str> =
            rows.iter().filter(|row| row.verdict == Verdict::Worse).map(|row| row.metric.as_str()).collect();
        assert_eq!((rows.len(), worse), (8, vec!["ttft_ms.p50"]));
    }

    #[test]
    fn one_figure_lends_another_no_certainty() {
        // Of the 252 orders of five and five, 7 are as far from the middle as this one: 2.8 %. As one of two figures that is
        // 5.6 %, which is not enough; and that the other one got better for certain says nothing for it.
        let before = [100.0, 101.0, 102.0, 103.0, 165.0];
        let after = [130.0, 140.0, 160.0, 170.0, 180.0];
        let alone = row("ttft_ms.p50", &before, &after);
        assert_eq!(alone.verdict, Verdict::Worse, "{alone}");
        assert!((alone.p.unwrap() - 7.0 / 252.0).abs() < 1e-9);
        let mut cells = [&before, &after].map(|values| cell(World::Live, "p", "ttft_ms.p50", values));
        for (cell, factor) in cells.iter_mut().zip([1.0, 2.0]) {
            cell.figures.insert("input_tok_s".into(), BASE.map(|value| Some(value * factor)).to_vec());
        }
        let rows = rows(&Pair { before: &cells[0], after: &cells[1] }, "p", &Rules::default());
        let verdicts: Vec<_> = rows.iter().map(|row| (row.metric.as_str(), row.verdict)).collect();
        assert_eq!(verdicts, [("input_tok_s", Verdict::Better), ("ttft_ms.p50", Verdict::Noise)]);
        assert!((rows[1].p.unwrap() - 14.0 / 252.0).abs() < 1e-9);
    }

    #[test]
    fn a_figure_that_few_repeats_have_proves_nothing() {
        let before = cell(World::Live, "p", "ttft_ms.p50", &BASE);
        let mut after = before.clone();
        let measured = [Some(900.0), Some(901.0), None, None, None];
        after.figures.insert("ttft_ms.p50".into(), measured.to_vec());
        let rows = rows(&Pair { before: &before, after: &after }, "p", &Rules::default());
        assert_eq!((rows[0].verdict, rows[0].p), (Verdict::TooFew, None));
    }
}
