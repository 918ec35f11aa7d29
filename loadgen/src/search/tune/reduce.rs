//! Options that the best setting changes and that its gain does not come from are put back: whoever takes over a setting has to
//! answer for every value in it.

use router_core::PolicyConfig;

use super::confirm::LEAST_GAIN;
use super::stage::Stage;
use super::{Search, cell, sample, space};
use crate::scenario::Cell;
use crate::search::SearchError;
use crate::statistics::{bootstrap, mean};

/// Without an option at most this share of the gain may be lost, however noisy the search was. It is chosen.
const MOST_LOST: f64 = 0.25;

/// A setting without what it does not need.
#[derive(Debug)]
pub(super) struct Reduced {
    pub(super) cell: Cell,
    /// The options that were put back.
    pub(super) put_back: Vec<String>,
}

/// Puts options of `best` back to those of `base`, its policy as it was before the search, while what the search has looked at
/// shows no loss beyond noise. Something that tells it from `present` stays.
pub(super) fn run(
    search: &Search<'_>,
    present: &Cell,
    base: &Cell,
    best: &Cell,
    stage: &Stage,
) -> Result<Reduced, SearchError> {
    let mut reduced =
        Reduced { cell: with(base, best, &changed(&base.policy, &best.policy)), put_back: Vec::new() };
    let mut known: Option<Bar> = None;
    loop {
        let tries = simpler(present, base, &reduced.cell);
        if tries.is_empty() {
            return Ok(reduced);
        }
        let mut cells: Vec<&Cell> = tries.iter().map(|(_, cell)| cell).collect();
        if known.is_none() {
            cells.extend([best, present]);
        }
        let mut seen = sample::of_search(search, &cells, stage, "simpler settings")?;
        let bar = known.get_or_insert_with(|| {
            let present = seen.pop().unwrap_or_default();
            Bar { best: seen.pop().unwrap_or_default(), present }
        });
        let losses = seen.iter().map(|values| bar.loss(search, values));
        let bearable = losses.enumerate().filter_map(|(place, loss)| Some((place, loss?)));
        let Some((place, _)) = bearable.min_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(reduced) };
        let (key, cell) = tries[place].clone();
        reduced.put_back.push(key.to_owned());
        reduced.cell = cell;
    }
}

/// What simpler settings are measured by.
struct Bar {
    best: Vec<f64>,
    present: Vec<f64>,
}

impl Bar {
    /// The share of the figure that is lost with these observations; `None` where that is more than noise, or too much.
    fn loss(&self, search: &Search<'_>, values: &[f64]) -> Option<f64> {
        let objective = search.objective;
        let gain = mean(&objective.gains(&self.best, &self.present))?;
        // In shares of the present figure as well, so that both can be compared.
        let scale = mean(&self.present).filter(|mean| *mean != 0.0).map_or(1.0, f64::abs);
        let losses: Vec<f64> =
            self.best.iter().zip(values).map(|(best, value)| objective.gain(*best, *value) / scale).collect();
        let interval = bootstrap::mean_of_differences(&losses, search.scenario.seed);
        let loss = mean(&losses)?;
        bearable(loss, interval.map(|interval| interval.low), gain).then_some(loss)
    }
}

/// Whether a loss is none, or may be chance and leaves most of the gain.
fn bearable(loss: f64, low: Option<f64>, gain: f64) -> bool {
    let is_noise = low.is_none_or(|low| low <= 0.0) || loss < LEAST_GAIN;
    loss <= 0.0 || (is_noise && loss <= MOST_LOST * gain)
}

/// The settings with one changed option less, each with the option, but for the present one.
fn simpler(present: &Cell, base: &Cell, cell: &Cell) -> Vec<(&'static str, Cell)> {
    let changed = changed(&base.policy, &cell.policy);
    let without = |key: &&'static str| {
        let kept: Vec<&'static str> = changed.iter().copied().filter(|other| other != key).collect();
        (*key, with(base, cell, &kept))
    };
    let simpler = changed.iter().map(without);
    simpler.filter(|(_, cell)| !space::same(&cell.policy, &present.policy)).collect()
}

/// The options that have other values.
fn changed(base: &PolicyConfig, policy: &PolicyConfig) -> Vec<&'static str> {
    base.options().zip(policy.options()).filter(|(a, b)| a.1 != b.1).map(|(a, _)| a.0.key).collect()
}

/// `base` with some options as `of` has them.
fn with(base: &Cell, of: &Cell, keys: &[&'static str]) -> Cell {
    let mut policy = base.policy.clone();
    for (spec, value) in of.policy.options().filter(|(spec, _)| keys.contains(&spec.key)) {
        // Both are of one policy: what one holds, the other takes.
        let _ = policy.set(spec.key, value.clone());
    }
    cell(base, policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::testing::{load_text, small};

    #[test]
    fn a_loss_that_may_be_chance_is_borne_if_most_of_the_gain_stays() {
        assert!(bearable(-0.01, Some(-0.03), 0.2) && bearable(0.0, Some(0.0), 0.0));
        assert!(bearable(0.02, Some(-0.01), 0.2), "noise");
        assert!(bearable(0.005, Some(0.004), 0.2), "sure, and too small to matter");
        assert!(!bearable(0.02, Some(0.01), 0.2), "sure");
        assert!(!bearable(0.06, Some(-0.01), 0.2), "noise that may hide the gain");
    }

    #[test]
    fn every_changed_option_is_left_out_once_and_the_last_stays() {
        let tables = "[arrival]\nkind = \"burst\"\nover = \"1s\"\n[fleet]\nworkers = 1\n[router]\n\
                      policies = [\"cache_aware\"]\n[router.options.cache_aware]\nbalance_abs_threshold = 5\n";
        let present = load_text(&small("", tables), &[]).unwrap().cells()[0].clone();
        let mut policy = present.policy.clone();
        policy.set("cache_threshold", 0.7).unwrap();
        policy.set("balance_abs_threshold", 9).unwrap();
        policy.set("balance_rel_threshold", 1.5).unwrap();
        let best = cell(&present, policy);
        let found = simpler(&present, &present, &best);
        let told: Vec<(&str, String)> =
            found.iter().map(|(key, cell)| (*key, crate::report::setting(&cell.policy))).collect();
        let left = [
            ("cache_threshold", "cache_aware balance_abs_threshold=9".to_owned()),
            ("balance_abs_threshold", "cache_aware cache_threshold=0.7 balance_abs_threshold=5".to_owned()),
        ];
        assert_eq!(told, left, "the ratio is at its default, and back where it was");
        assert!(simpler(&present, &present, &found[1].1).is_empty(), "or nothing would be recommended");
    }
}
