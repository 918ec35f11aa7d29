//! Virtual cells: the same seed gives the same figures to the last bit, whatever built the program.

use super::comparison::{Row, Verdict};
use super::figures;
use super::pairing::Pair;
use crate::report::Better;
use crate::statistics::median;

/// A row for every figure of the baseline, on the baseline's seeds. A figure that the run lacks counts as not measured.
pub(super) fn rows(pair: &Pair<'_>, label: &str) -> Vec<Row> {
    let Pair { before, after } = pair;
    let judge = |name: &str| {
        let from = &before.figures[name];
        let at_seed = |seed: &u64| {
            let place = after.seeds.iter().position(|other| other == seed)?;
            *after.figures.get(name)?.get(place)?
        };
        let to: Vec<Option<f64>> = before.seeds.iter().map(at_seed).collect();
        let same = *from == to;
        let [from, to] =
            [from, &to].map(|values| median(&values.iter().flatten().copied().collect::<Vec<_>>()));
        let verdict = if same { Verdict::Same } else { direction(name, from, to) };
        Row::exact(pair, label, name, (from, to), verdict)
    };
    figures::in_order(before.figures.keys()).into_iter().map(judge).collect()
}

/// What a change is, by the medians. It is neither better nor worse where the medians agree or the figure is no merit.
fn direction(name: &str, before: Option<f64>, after: Option<f64>) -> Verdict {
    let (Some(before), Some(after)) = (before, after) else { return Verdict::Other };
    match figures::better(name) {
        Better::Higher if after > before => Verdict::Better,
        Better::Higher if after < before => Verdict::Worse,
        Better::Lower if after < before => Verdict::Better,
        Better::Lower if after > before => Verdict::Worse,
        _ => Verdict::Other,
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
    fn a_figure_that_is_gone_is_a_change() {
        let before = cell(World::Virtual, "p", "hit_rate", &[0.1]);
        let mut after = before.clone();
        after.figures.clear();
        let row = &rows(&Pair { before: &before, after: &after }, "p")[0];
        assert_eq!((row.verdict, row.after), (Verdict::Other, None));
    }
}
