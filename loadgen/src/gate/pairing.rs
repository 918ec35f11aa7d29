//! Which cell of a baseline a cell of a run is compared with.
//!
//! A cell is known by its world, its policy and the parameters that differ among its siblings. An option that is set for
//! all of them alike is part of what is tested, as a default is: the figures say what it does.

use std::collections::BTreeSet;

use serde_json::Value;

use super::changes;
use super::snapshot::{Cell, Machine, Snapshot};
use super::tolerance::Rules;
use crate::run::World;

/// Why two snapshots cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Incompatible {
    /// They are of different scenarios.
    #[error(
        "the baseline is of scenario `{0}` and the run of `{1}`; name the baseline of `{1}`, or write one with --update"
    )]
    Scenario(String, String),
    /// The scenario asks something else now: its name, and what differs.
    #[error(
        "the baseline of `{0}` was recorded for another workload, arrival, fleet, faults or objectives: {1}; run the \
         scenario as it was, or record it anew with --update"
    )]
    Work(String, String),
    /// The baseline is empty.
    #[error("the baseline has no cells; record it anew with --update")]
    Empty,
    /// The baseline has a cell without anything to judge by.
    #[error("the baseline has no figure of {0} to compare with; record it anew with --update")]
    Nothing(String),
    /// The baseline has a world that was not run.
    #[error(
        "the baseline has {0} cells and the run has none; run with --mode both, or record it anew with --update"
    )]
    World(&'static str),
    /// A cell of the baseline was not run.
    #[error(
        "{0} is in the baseline and not in the run; run every cell, or record the baseline anew with --update"
    )]
    NotRun(String),
    /// A cell was run that the baseline does not have.
    #[error("{0} is in the run and not in the baseline; record the baseline anew with --update")]
    New(String),
    /// Virtual runs with other seeds.
    #[error(
        "{0} has no run with seed {1} of the baseline; run with --seeds {2}, or record the baseline anew with --update"
    )]
    Seed(String, u64, usize),
    /// Live figures of another machine.
    #[error(
        "the live cells of the baseline were recorded on another machine or build ({0}; this one is {1}); record one here \
         with --update, or compare all the same with --any-machine"
    )]
    Machine(String, String),
}

/// Two cells of one identity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) before: &'a Cell,
    pub(super) after: &'a Cell,
}

/// The pairs of all cells of the worlds in the baseline, in the order of the baseline.
pub(super) fn pairs<'a>(
    before: &'a Snapshot,
    after: &'a Snapshot,
    rules: &Rules,
) -> Result<Vec<Pair<'a>>, Incompatible> {
    if before.scenario != after.scenario {
        return Err(Incompatible::Scenario(before.scenario.clone(), after.scenario.clone()));
    }
    if before.fingerprint.work != after.fingerprint.work {
        let changes = changes::words(&before.fingerprint.asked, &after.fingerprint.asked);
        return Err(Incompatible::Work(before.scenario.clone(), changes));
    }
    if before.cells.is_empty() {
        return Err(Incompatible::Empty);
    }
    for world in [World::Virtual, World::Live] {
        if before.has(world) && !after.has(world) {
            return Err(Incompatible::World(world.label()));
        }
    }
    let names = Names { before: &before.cells, after: &after.cells };
    let pair = |cell: &'a Cell| {
        let after = after.cells.iter().find(|other| names.same(cell, other));
        let after = after.ok_or_else(|| Incompatible::NotRun(label(&before.cells, cell)))?;
        Ok(Pair { before: cell, after })
    };
    let pairs: Vec<Pair<'_>> = before.cells.iter().map(pair).collect::<Result<_, _>>()?;
    let is_new =
        |cell: &&Cell| before.has(cell.mode) && !pairs.iter().any(|pair| std::ptr::eq(pair.after, *cell));
    if let Some(new) = after.cells.iter().find(is_new) {
        return Err(Incompatible::New(label(&after.cells, new)));
    }
    seeds(&pairs, &before.cells)?;
    if before.has(World::Live) && !rules.any_machine {
        machines(before.machine.as_ref(), after.machine.as_ref())?;
    }
    Ok(pairs)
}

/// A virtual cell needs every seed of the baseline; live repeats need only be enough, which is judged later.
fn seeds(pairs: &[Pair<'_>], cells: &[Cell]) -> Result<(), Incompatible> {
    for Pair { before, after } in pairs.iter().filter(|pair| pair.before.mode == World::Virtual) {
        if let Some(seed) = before.seeds.iter().find(|seed| !after.seeds.contains(seed)) {
            return Err(Incompatible::Seed(label(cells, before), *seed, before.repeats()));
        }
    }
    Ok(())
}

/// Where both machines are known they must be alike.
fn machines(before: Option<&Machine>, after: Option<&Machine>) -> Result<(), Incompatible> {
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    let words = |machine: &Machine| {
        let cpu = machine.cpu.as_deref().unwrap_or("unknown processor");
        format!("{cpu}, {}, {} cores, {} build", machine.machine, machine.cores, machine.build)
    };
    let (before, after) = (words(before), words(after));
    if before == after { Ok(()) } else { Err(Incompatible::Machine(before, after)) }
}

/// What the cells of two snapshots are known by.
struct Names<'a> {
    before: &'a [Cell],
    after: &'a [Cell],
}

impl Names<'_> {
    fn same(&self, before: &Cell, after: &Cell) -> bool {
        let mut keys = varying(self.before, before);
        keys.extend(varying(self.after, after));
        let of = |cell: &Cell, key: &str| cell.params.get(key).cloned();
        before.mode == after.mode
            && before.policy == after.policy
            && keys.iter().all(|key| of(before, key) == of(after, key))
    }
}

/// The parameters in which the cells of one world and policy differ.
fn varying<'a>(cells: &'a [Cell], cell: &Cell) -> BTreeSet<&'a str> {
    let siblings: Vec<&Cell> =
        cells.iter().filter(|other| other.mode == cell.mode && other.policy == cell.policy).collect();
    let keys = siblings.iter().flat_map(|sibling| sibling.params.keys().map(String::as_str));
    keys.filter(|key| siblings.iter().any(|s| s.params.get(*key) != siblings[0].params.get(*key))).collect()
}

/// What people call a cell: its policy, what tells it from its siblings, its world.
pub(super) fn label(cells: &[Cell], cell: &Cell) -> String {
    let mut label = cell.policy.clone();
    for key in varying(cells, cell) {
        let short = key.rsplit('.').next().unwrap_or(key);
        let value = match cell.params.get(key) {
            None => "default".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        label.push_str(&format!(" {short}={value}"));
    }
    format!("{label} ({})", cell.mode.label())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::fixture::{cell, snapshot};

    fn swept(values: &[f64]) -> Snapshot {
        let cells = values.iter().map(|value| {
            let mut cell = cell(World::Virtual, "p", "hit_rate", &[0.5]);
            cell.params.insert("router.x".into(), json!(value));
            cell
        });
        snapshot(cells.collect())
    }

    fn plain(world: World, values: &[f64]) -> Snapshot {
        snapshot(vec![cell(world, "p", "hit_rate", values)])
    }

    fn error(before: &Snapshot, after: &Snapshot) -> String {
        pairs(before, after, &Rules::default()).unwrap_err().to_string()
    }

    #[test]
    fn swept_cells_pair_by_what_differs_and_an_option_for_all_is_under_test() {
        let (before, mut after) = (swept(&[0.1, 0.3]), swept(&[0.3, 0.1]));
        for cell in &mut after.cells {
            cell.params.insert("other".into(), json!(7));
        }
        let got = pairs(&before, &after, &Rules::default()).unwrap();
        let of = |cell: &Cell| cell.params["router.x"].clone();
        assert!(got.len() == 2 && got.iter().all(|pair| of(pair.before) == of(pair.after)));
        assert_eq!(
            pairs(&plain(World::Virtual, &[0.5]), &swept(&[0.9]), &Rules::default()).unwrap().len(),
            1
        );
        assert_eq!(label(&before.cells, &before.cells[0]), "p x=0.1 (virtual)");
    }

    #[test]
    fn what_differs_is_named_with_a_remedy() {
        assert!(
            error(&swept(&[0.1, 0.3]), &swept(&[0.1, 0.5]))
                .starts_with("p x=0.3 (virtual) is in the baseline")
        );
        assert!(
            error(&swept(&[0.1, 0.3]), &swept(&[0.1])).starts_with("p x=0.3 (virtual) is in the baseline")
        );
        assert!(
            error(&swept(&[0.1, 0.3]), &swept(&[0.1, 0.3, 0.5]))
                .starts_with("p x=0.5 (virtual) is in the run")
        );
        let base = plain(World::Virtual, &[0.5]);
        let mut other = base.clone();
        other.scenario = "t".into();
        assert!(error(&base, &other).contains("of scenario `s` and the run of `t`"));
        other = base.clone();
        other.fingerprint.work = "else".into();
        other.fingerprint.asked.insert("fleet.workers".into(), json!(6));
        let text = error(&base, &other);
        assert!(text.contains("another workload") && text.contains("fleet.workers: 8 → 6; run"), "{text}");
        assert!(error(&plain(World::Live, &[0.5]), &base).contains("has live cells"));
        let two = plain(World::Virtual, &[0.5, 0.5]);
        assert!(error(&two, &base).contains("seed 2 of the baseline; run with --seeds 2"));
        assert!(pairs(&base, &two, &Rules::default()).is_ok(), "more seeds than needed");
        for text in [error(&base, &other), error(&two, &base), error(&swept(&[0.1, 0.3]), &swept(&[0.1]))] {
            assert!(text.contains("--update"), "{text}");
        }
    }

    #[test]
    fn live_figures_of_another_machine_are_refused_unless_allowed() {
        let of = |cores| {
            let mut snapshot = plain(World::Live, &[0.5]);
            let build = "release".to_owned();
            snapshot.machine = Some(Machine { cpu: None, machine: "x".into(), cores, build, commit: None });
            snapshot
        };
        assert!(error(&of(2), &of(4)).contains("--any-machine"));
        assert!(pairs(&of(2), &of(4), &Rules::with(&[], true)).is_ok());
        assert!(pairs(&of(2), &of(2), &Rules::default()).is_ok());
    }
}
