//! A run against its baseline: a row per cell and figure, worst first, and what it comes to.

use std::fmt;

use super::pairing::{self, Incompatible, Pair, label};
use super::snapshot::Snapshot;
use super::tolerance::Rules;
use super::{exact, figures, statistical};
use crate::run::{Params, World};
use crate::statistics::Interval;

/// What became of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// It was measured, and is not any more. First, so that no table is too short to name it.
    Missing,
    /// It got worse.
    Worse,
    /// Live: it cannot be told, because the generator was the bottleneck.
    Invalid,
    /// Live: it cannot be told from so few repeats.
    TooFew,
    /// Virtual: it changed, and is no merit.
    Other,
    /// It got better.
    Better,
    /// Live: it differs by much, and may do so by chance.
    Noise,
    /// Virtual: it is the same to the last bit; live: it differs by too little to matter.
    Same,
}

impl Verdict {
    /// All of them, worst first.
    pub(crate) const ALL: [Self; 8] = [
        Self::Missing,
        Self::Worse,
        Self::Invalid,
        Self::TooFew,
        Self::Other,
        Self::Better,
        Self::Noise,
        Self::Same,
    ];

    /// The verdict in words.
    #[must_use]
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Worse => "worse",
            Self::Invalid => "invalid run",
            Self::TooFew => "too few repeats",
            Self::Other => "other",
            Self::Better => "better",
            Self::Noise => "within noise",
            Self::Same => "unchanged",
        }
    }

    /// Whether it is told as a number only.
    #[must_use]
    pub(crate) fn is_quiet(self) -> bool {
        matches!(self, Self::Noise | Self::Same)
    }
}

/// One figure of one cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// The cell in words.
    pub cell: String,
    /// Where it ran.
    pub mode: World,
    /// The policy.
    pub policy: String,
    /// The parameters of the baseline's cell.
    pub params: Params,
    /// The figure, such as `ttft_ms.p50`.
    pub metric: String,
    /// The median over the repeats of the baseline; none where it was not measured.
    pub before: Option<f64>,
    /// The median over the repeats of the run.
    pub after: Option<f64>,
    /// Live: the 95 % interval of after / before.
    pub interval: Option<Interval>,
    /// Live: how likely chance alone changes any figure of the cell so much in this direction.
    pub p: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
}

impl Row {
    /// A row without statistics.
    pub(super) fn new(
        pair: &Pair<'_>,
        label: &str,
        metric: &str,
        (before, after): (Option<f64>, Option<f64>),
        verdict: Verdict,
    ) -> Self {
        Self {
            cell: label.to_owned(),
            mode: pair.before.mode,
            policy: pair.before.policy.clone(),
            params: pair.before.params.clone(),
            metric: metric.to_owned(),
            before,
            after,
            interval: None,
            p: None,
            verdict,
        }
    }

    /// Whether it makes the gate fail: what got worse or is missing, and in virtual time whatever changed.
    #[must_use]
    pub(crate) fn fails(&self) -> bool {
        match self.verdict {
            Verdict::Missing | Verdict::Worse => true,
            Verdict::Better | Verdict::Other => self.mode == World::Virtual,
            Verdict::Invalid | Verdict::TooFew | Verdict::Noise | Verdict::Same => false,
        }
    }

    /// How much it changed, for the order among equal verdicts.
    fn size(&self) -> f64 {
        match (self.before, self.after) {
            (Some(before), Some(after)) if before != 0.0 => ((after - before) / before).abs(),
            (before, after) if before == after => 0.0,
            _ => f64::INFINITY,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = figures::unit(&self.metric);
        let (before, after) = figures::pair(self.before, self.after, unit);
        let difference = figures::difference(self.before, self.after, unit);
        write!(
            f,
            "{} {}: {before} → {after} ({difference}), {}",
            self.cell,
            self.metric,
            self.verdict.words()
        )
    }
}

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is held against the run.
    Passed,
    /// A figure got worse or is missing, or a virtual one changed.
    Failed,
    /// Live figures prove nothing.
    Unproven,
}

impl Outcome {
    /// The outcome in a word.
    #[must_use]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unproven => "unproven",
        }
    }
}

/// A run against its baseline.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Comparison {
    /// The scenario.
    pub scenario: String,
    /// Worst first.
    pub rows: Vec<Row>,
    /// What a reader should know beside the rows.
    pub notes: Vec<String>,
}

impl Comparison {
    /// What it comes to. What is proven counts before what is not.
    #[must_use]
    pub(crate) fn outcome(&self) -> Outcome {
        let unproven = |row: &Row| matches!(row.verdict, Verdict::Invalid | Verdict::TooFew);
        if self.rows.iter().any(Row::fails) {
            Outcome::Failed
        } else if self.rows.iter().any(unproven) {
            Outcome::Unproven
        } else {
            Outcome::Passed
        }
    }

    /// How many rows have a verdict.
    #[must_use]
    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }
}

/// Compares a run with its baseline.
///
/// # Errors
/// If they are of different scenarios, cells, seeds or machines, or there is nothing to compare.
pub(crate) fn compare(
    baseline: &Snapshot,
    run: &Snapshot,
    rules: &Rules,
) -> Result<Comparison, Incompatible> {
    let pairs = pairing::pairs(baseline, run, rules)?;
    let mut rows = Vec::new();
    for pair in &pairs {
        let label = label(&baseline.cells, pair.before);
        let judged = match pair.before.mode {
            World::Virtual => exact::rows(pair, &label),
            World::Live => statistical::rows(pair, &label, rules),
        };
        if judged.is_empty() {
            return Err(Incompatible::Nothing(label));
        }
        let void = pair.before.mode == World::Live && !run.invalid.is_empty();
        rows.extend(
            judged.into_iter().map(|row| if void { Row { verdict: Verdict::Invalid, ..row } } else { row }),
        );
    }
    rows.sort_by(|a, b| a.verdict.cmp(&b.verdict).then(b.size().total_cmp(&a.size())));
    Ok(Comparison { scenario: run.scenario.clone(), rows, notes: notes(baseline, run, &pairs) })
}

/// What is not in the rows: what changed of the router's own settings, what was not compared, and why a run is void or
/// its times are not its own.
fn notes(baseline: &Snapshot, run: &Snapshot, pairs: &[Pair<'_>]) -> Vec<String> {
    let mut notes = Vec::new();
    if baseline.fingerprint.router != run.fingerprint.router {
        notes.push("the settings of the router differ from those of the baseline".to_owned());
    }
    for world in [World::Virtual, World::Live] {
        if run.has(world) && !baseline.has(world) {
            let word = world.label();
            notes.push(format!("{word} cells were not compared: the baseline has none"));
        }
    }
    let new = |pair: &&Pair<'_>| {
        pair.before.mode == World::Virtual
            && pair.after.figures.keys().any(|name| !pair.before.figures.contains_key(name))
    };
    if let Some(pair) = pairs.iter().find(new) {
        let names = pair.after.figures.keys().filter(|name| !pair.before.figures.contains_key(*name));
        let names = figures::in_order(names).join(", ");
        notes.push(format!("not compared, because the baseline does not have them: {names}"));
    }
    if baseline.has(World::Live) {
        notes.extend(run.invalid.iter().chain(&run.disturbed).cloned());
        if baseline.machine.is_none() || run.machine.is_none() {
            notes
                .push("live figures are compared without knowing whether the machine is the same".to_owned());
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fixture::{cell, snapshot};

    fn of(world: World, figure: &str, before: &[f64], after: &[f64]) -> Comparison {
        let [before, after] = [before, after].map(|values| snapshot(vec![cell(world, "p", figure, values)]));
        compare(&before, &after, &Rules::default()).unwrap()
    }

    #[test]
    fn virtual_changes_fail_whichever_way_and_live_ones_only_if_worse() {
        let live = |after: f64| of(World::Live, "hit_rate", &[0.50; 5], &[after; 5]).outcome();
        let exact = |after: f64| of(World::Virtual, "hit_rate", &[0.5], &[after]).outcome();
        assert_eq!((exact(0.5), exact(0.6), exact(0.4)), (Outcome::Passed, Outcome::Failed, Outcome::Failed));
        assert_eq!((live(0.5), live(0.6), live(0.4)), (Outcome::Passed, Outcome::Passed, Outcome::Failed));
        assert_eq!(of(World::Live, "hit_rate", &[0.5; 5], &[0.5; 3]).outcome(), Outcome::Unproven);
        let no_merit = of(World::Virtual, "requests", &[10.0], &[11.0]);
        assert_eq!((no_merit.rows[0].verdict, no_merit.outcome()), (Verdict::Other, Outcome::Failed));
    }

    #[test]
    fn the_worst_is_first_and_what_is_proven_counts_before_what_is_not() {
        let base = [("a", 0.5), ("b", 0.5), ("c", 0.5)];
        let mut cells: Vec<_> =
            base.iter().map(|(p, v)| cell(World::Virtual, p, "hit_rate", &[*v])).collect();
        cells.push(cell(World::Live, "d", "hit_rate", &[0.5]));
        let before = snapshot(cells);
        let mut after = before.clone();
        for (place, value) in [0.6, 0.4, 0.3].into_iter().enumerate() {
            after.cells[place].figures.insert("hit_rate".into(), vec![Some(value)]);
        }
        let comparison = compare(&before, &after, &Rules::default()).unwrap();
        let order: Vec<&str> = comparison.rows.iter().map(|row| row.policy.as_str()).collect();
        assert_eq!(order, ["c", "b", "d", "a"]);
        assert_eq!(comparison.outcome(), Outcome::Failed);
        assert_eq!(
            comparison.rows[0].to_string(),
            "c (virtual) hit_rate: 50 % → 30 % (-20.00 points), worse"
        );
    }

    #[test]
    fn nothing_to_compare_is_refused() {
        let refused = |before: &Snapshot, after: &Snapshot| {
            compare(before, after, &Rules::default()).unwrap_err().to_string()
        };
        for world in [World::Virtual, World::Live] {
            let run = snapshot(vec![cell(world, "p", "hit_rate", &[0.5; 5])]);
            let error = refused(&snapshot(Vec::new()), &run);
            assert!(error.starts_with("the baseline has no cells") && error.contains("--update"), "{error}");
            let mut bare = run.clone();
            bare.cells[0].figures.clear();
            let error = refused(&bare, &run);
            assert!(error.contains("no figure of p (") && error.contains("--update"), "{error}");
        }
        // Live cells are judged by some figures only.
        let other = snapshot(vec![cell(World::Live, "p", "requests", &[9.0; 5])]);
        assert!(refused(&other, &other).contains("no figure of p (live)"));
    }

    #[test]
    fn every_verdict_is_listed_worst_first() {
        assert!(Verdict::ALL.is_sorted());
        assert_eq!(Verdict::ALL.map(|verdict| verdict as usize), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_void_run_proves_nothing() {
        let before = snapshot(vec![cell(World::Live, "p", "hit_rate", &[0.5; 5])]);
        let mut after = before.clone();
        after.invalid = vec!["live p seed 1: the generator was the bottleneck".into()];
        let comparison = compare(&before, &after, &Rules::default()).unwrap();
        assert_eq!((comparison.outcome(), comparison.rows[0].verdict), (Outcome::Unproven, Verdict::Invalid));
        assert!(comparison.notes.contains(&after.invalid[0]));
    }

    #[test]
    fn a_disturbed_run_is_judged_and_it_is_told() {
        let before = snapshot(vec![cell(World::Live, "p", "hit_rate", &[0.5; 5])]);
        let mut after = before.clone();
        after.disturbed = vec!["live p seed 1: something else had the machine".into()];
        let comparison = compare(&before, &after, &Rules::default()).unwrap();
        assert_eq!(comparison.outcome(), Outcome::Passed);
        assert!(comparison.notes.contains(&after.disturbed[0]));
    }

    #[test]
    fn notes_tell_what_the_rows_do_not() {
        let before = snapshot(vec![cell(World::Virtual, "p", "hit_rate", &[0.5])]);
        let mut after = before.clone();
        after.fingerprint.router = "else".into();
        after.cells[0].figures.insert("later".into(), vec![Some(1.0)]);
        after.cells.push(cell(World::Live, "p", "hit_rate", &[0.5]));
        let comparison = compare(&before, &after, &Rules::default()).unwrap();
        let notes = comparison.notes.join("\n");
        assert!(notes.contains("settings of the router") && notes.contains("have them: later"), "{notes}");
        assert!(notes.contains("live cells were not compared"), "{notes}");
        assert_eq!(comparison.outcome(), Outcome::Passed);
    }
}
