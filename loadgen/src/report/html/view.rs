//! The experiment as every section of the page looks at it: variants, their names and colours, and which of them the
//! charts show.

use std::collections::BTreeSet;

use serde::Serialize;

use super::super::best::leaders;
use super::super::experiment::Experiment;
use super::super::variant::{Variant, contests, distinction, is_default, label, work, worlds};
use crate::run::{Run, World};

/// Distinct in hue and lightness for readers with any colour vision (after Okabe and Ito, adjusted for contrast):
/// light theme, dark theme.
const PALETTE: [(&str, &str); 8] = [
    ("#0072b2", "#5aaee6"),
    ("#c4500a", "#ff8f57"),
    ("#00875f", "#35c49a"),
    ("#a8437f", "#e79bc5"),
    ("#8a6d00", "#f0c93a"),
    ("#5b4b9a", "#b7a8f5"),
    ("#3a8fc4", "#a6d8f5"),
    ("#4a4a4a", "#d8d8d8"),
];

/// How many settings of a swept policy have rows of their own in tables of policies.
const FEW: usize = 4;

/// Classes `s0 …` (strokes, dashed from the fifth on) and `f0 …` (fills) in both themes.
pub(super) fn palette_css() -> String {
    let variables = |pick: fn(&(&'static str, &'static str)) -> &'static str| -> String {
        PALETTE.iter().enumerate().map(|(i, pair)| format!("--c{i}:{};", pick(pair))).collect()
    };
    let mut css = format!(
        ":root{{{}}}@media (prefers-color-scheme:dark){{:root{{{}}}}}@media print{{:root{{{}}}}}",
        variables(|p| p.0),
        variables(|p| p.1),
        variables(|p| p.0)
    );
    for i in 0..PALETTE.len() {
        let dash = if i < 4 { "" } else { ";stroke-dasharray:var(--dash,9 4)" };
        css.push_str(&format!(".s{i}{{stroke:var(--c{i}){dash}}}.f{i}{{fill:var(--c{i})}}"));
    }
    css
}

/// The experiment, prepared.
pub(super) struct View<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) variants: Vec<Variant<'a>>,
}

/// One entry of a chart's key.
#[derive(Debug, Serialize)]
pub(super) struct Key {
    pub(super) colour: usize,
    pub(super) name: String,
}

impl<'a> View<'a> {
    pub(super) fn of(experiment: &'a Experiment) -> Self {
        Self { experiment, variants: experiment.variants() }
    }

    pub(super) fn worlds(&self) -> Vec<World> {
        worlds(&self.variants)
    }

    /// The variants of a world.
    pub(super) fn of_world(&self, world: World) -> impl Iterator<Item = &Variant<'a>> {
        self.variants.iter().filter(move |v| v.world == world)
    }

    /// One variant per policy, the best of its settings: more lines than that cannot be told apart. Where the work is
    /// swept too, of the first amount of work: charts of different work do not compare.
    pub(super) fn shown(&self, world: World) -> Vec<&Variant<'a>> {
        self.leaders(contests(&self.variants, world).into_iter().take(1), 1)
    }

    /// The variants of a world that have a row in tables: of every policy the few best settings, for every amount of
    /// work, and the defaults.
    pub(super) fn tabled(&self, world: World) -> Vec<&Variant<'a>> {
        self.leaders(contests(&self.variants, world).into_iter(), FEW)
    }

    /// The `count` best settings of every policy in each contest, and of more than one the defaults too; in the
    /// scenario's order, by policy.
    fn leaders(&self, contests: impl Iterator<Item = Vec<usize>>, count: usize) -> Vec<&Variant<'a>> {
        let mut kept = BTreeSet::new();
        for contest in contests {
            let policies: BTreeSet<&str> = contest.iter().map(|place| self.variants[*place].policy).collect();
            for policy in policies {
                let mine: Vec<usize> =
                    contest.iter().copied().filter(|p| self.variants[*p].policy == policy).collect();
                kept.extend(leaders(&self.variants, mine.clone(), count));
                kept.extend(mine.into_iter().filter(|p| count > 1 && self.is_default(&self.variants[*p])));
            }
        }
        kept.into_iter().map(|place| &self.variants[place]).collect()
    }

    pub(super) fn is_default(&self, variant: &Variant<'_>) -> bool {
        is_default(&self.variants, variant)
    }

    pub(super) fn label(&self, variant: &Variant<'_>) -> String {
        label(&self.variants, variant)
    }

    pub(super) fn distinction(&self, variant: &Variant<'_>) -> String {
        distinction(&self.variants, variant)
    }

    /// The colour of a policy, the same in every world and chart.
    pub(super) fn colour(&self, policy: &str) -> usize {
        let mut seen: Vec<&str> = Vec::new();
        for variant in &self.variants {
            if !seen.contains(&variant.policy) {
                seen.push(variant.policy);
            }
        }
        seen.iter().position(|p| *p == policy).unwrap_or(0) % PALETTE.len()
    }

    pub(super) fn key(&self, variant: &Variant<'_>) -> Key {
        Key { colour: self.colour(variant.policy), name: self.label(variant) }
    }

    /// The run that stands for a variant.
    pub(super) fn typical(&self, variant: &Variant<'_>) -> &'a Run {
        &self.experiment.runs()[variant.typical_run()]
    }

    /// What a chart that draws single runs must say about them; empty when there is nothing to say.
    pub(super) fn caveat(&self, world: World) -> String {
        let mut words = Vec::new();
        if self.of_world(world).any(|v| v.seeds() > 1) {
            words.push("Drawn from the run of the median seed by throughput.");
        }
        let contests = contests(&self.variants, world);
        let work = contests
            .first()
            .map_or(String::new(), |contest| work(&self.variants, &self.variants[contest[0]]));
        let drawn = format!("Of the swept workloads and fleets only the first is drawn, {work}.");
        if contests.len() > 1 {
            words.push(&drawn);
        }
        if contests.first().is_some_and(|contest| contest.len() > self.shown(world).len()) {
            words.push("Of each policy's swept settings the best is drawn.");
        }
        words.join(" ")
    }
}
