//! Virtual cells: the same seed gives the same figures to the last bit, whatever built the program.

use super::comparison::{Row, Verdict};
use super::figures::{self, Direction};
use super::pairing::Pair;
use crate::statistics::median;

/// A row for every figure of the baseline, on the baseline's seeds.
pub(super) fn rows(pair: &Pair<'_>, label: &str) -> Vec<Row> {
    let Pair { before, after } = pair;
    let judge = |name: &str| {
        let from = &before.figures[name];
        let at_seed = |seed: &u64| {
            let place = after.seeds.iter().position(|other| other == seed)?;
            *after.figures.get(name)?.get(place)?
        };
        let to: Vec<Option<f64>> = before.seeds.iter().map(at_seed).collect();
        let medians = (median_beside(from, &to), median_beside(&to, from));
        let verdict = if *from == to {
            Verdict::Same
        } else if lacks(&to, from) {
            Verdict::Missing
        } else {
            changed(name, medians)
        };
        Row::new(pair, label, name, medians, verdict)
    };
    figures::in_order(before.figures.keys()).into_iter().map(judge).collect()
}

/// Whether some values lack one that others have.
fn lacks(values: &[Option<f64>], others: &[Option<f64>]) -> bool {
    values.iter().zip(others).any(|(value, other)| value.is_none() && other.is_some())
}

/// The median; none where a value is lacking that the other side has, for medians of different seeds tell of no change.
fn median_beside(values: &[Option<f64>], others: &[Option<f64>]) -> Option<f64> {
    let measured: Vec<f64> = values.iter().flatten().copied().collect();
    median(&measured).filter(|_| !lacks(values, others))
}

/// What a change is, by the medians.
fn changed(name: &str, medians: (Option<f64>, Option<f64>)) -> Verdict {
    let (Some(before), Some(after)) = medians else { return Verdict::Other };
    match figures::direction(name, before, after) {
        Direction::Better => Verdict::Better,
        Direction::Worse => Verdict::Worse,
        Direction::Neither => Verdict::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fixture::cell;
    use crate::gate::snapshot::Cell;
    use crate::run::World;

    fn verdict(figure: &str, before: &[f64], after: &[f64]) -> Verdict {
        let [before, after] = [before, after].map(|values| cell(World::Virtual, "p", figure, values));
        rows(&Pair { before: &before, after: &after }, "p")[0].verdict
    }

    #[test]
    fn the_last_bit_counts_and_has_a_direction() {
        let up = f64::from_bits(0.5_f64.to_bits() + 1);
        for (figure, after, expected) in [
            ("hit_rate", 0.5, Verdict::Same),
            ("hit_rate", up, Verdict::Better),
            ("ttft_ms.p50", up, Verdict::Worse),
            ("ttft_ms.p50", 0.4, Verdict::Better),
            ("requests", up, Verdict::Other),
            ("unheard_of", up, Verdict::Other),
        ] {
            assert_eq!(verdict(figure, &[0.5], &[after]), expected, "{figure} {after}");
        }
        assert_eq!(
            verdict("hit_rate", &[0.4, 0.5, 0.6], &[0.4, 0.5, 0.7]),
            Verdict::Other,
            "the same median"
        );
    }

    #[test]
    fn seeds_pair_and_further_ones_do_not_count() {
        let before = cell(World::Virtual, "p", "hit_rate", &[0.1, 0.2]);
        let after = Cell {
            seeds: vec![3, 2, 1],
            figures: [("hit_rate".to_owned(), [0.9, 0.2, 0.1].map(Some).to_vec())].into(),
            ..before.clone()
        };
        assert_eq!(rows(&Pair { before: &before, after: &after }, "p")[0].verdict, Verdict::Same);
    }

    #[test]
    fn a_figure_that_is_gone_is_missing_and_one_that_came_is_a_change() {
        let both = [Some(0.25), Some(0.75)];
        for (case, from, to, expected, medians) in [
            ("all seeds", both, [None, None], Verdict::Missing, (Some(0.5), None)),
            (
                "one seed; the rest looks better",
                both,
                [None, Some(0.75)],
                Verdict::Missing,
                (Some(0.5), None),
            ),
            ("one came", [None, Some(0.75)], both, Verdict::Other, (None, Some(0.5))),
            ("never measured", [None, None], [None, None], Verdict::Same, (None, None)),
        ] {
            let [before, after] = [from, to].map(|values| Cell {
                figures: [("hit_rate".to_owned(), values.to_vec())].into(),
                ..cell(World::Virtual, "p", "hit_rate", &[0.0, 0.0])
            });
            let row = &rows(&Pair { before: &before, after: &after }, "p")[0];
            assert_eq!((row.verdict, (row.before, row.after)), (expected, medians), "{case}");
            assert_eq!(row.fails(), expected != Verdict::Same, "{case}");
        }
        let before = cell(World::Virtual, "p", "hit_rate", &[0.1]);
        let after = Cell { figures: [].into(), ..before.clone() };
        let row = &rows(&Pair { before: &before, after: &after }, "p")[0];
        assert_eq!(row.to_string(), "p hit_rate: 10 % → – (not measured in one), missing");
    }
}
