//! The experiment as every section of the page looks at it: variants, their names and colours, and which of them the
//! charts show.

use std::collections::BTreeSet;

use serde::Serialize;

use super::super::best::leaders;
use super::super::experiment::Experiment;
use super::super::variant::{
    Variant, contests, demand, distinction, is_default, label, same_demand, side, worlds,
};
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

/// How many settings of a swept policy have rows of their own in tables of policies; and how many settings in all are
/// drawn one by one.
const FEW: usize = 4;
/// Where there are more amounts of work, tables have the best setting of each policy only.
const MANY_CONTESTS: usize = 8;

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
    /// What has a colour of its own: policies, or settings of them where several of one policy are drawn.
    series: Vec<(&'a str, String)>,
}

/// One entry of a chart's key.
#[derive(Debug, Serialize)]
pub(super) struct Key {
    pub(super) colour: usize,
    pub(super) name: String,
}

impl<'a> View<'a> {
    pub(super) fn of(experiment: &'a Experiment) -> Self {
        let mut view = Self { experiment, variants: experiment.variants(), series: Vec::new() };
        view.series = view.find_series();
        view
    }

    fn find_series(&self) -> Vec<(&'a str, String)> {
        let policies = |world| self.shown(world).into_iter().map(|v| v.policy).collect::<Vec<_>>();
        let by_policy = self.worlds().into_iter().map(policies).all(|drawn| {
            let distinct: BTreeSet<&str> = drawn.iter().copied().collect();
            distinct.len() == drawn.len()
        });
        let drawn = self.worlds().into_iter().flat_map(|world| self.shown(world));
        let all: Vec<&Variant<'a>> = if by_policy { self.variants.iter().collect() } else { drawn.collect() };
        let mut series = Vec::new();
        for variant in all {
            let one = (variant.policy, if by_policy { String::new() } else { self.name(variant) });
            if !series.contains(&one) {
                series.push(one);
            }
        }
        series
    }

    pub(super) fn worlds(&self) -> Vec<World> {
        worlds(&self.variants)
    }

    /// The variants of a world.
    pub(super) fn of_world(&self, world: World) -> impl Iterator<Item = &Variant<'a>> {
        self.variants.iter().filter(move |v| v.world == world)
    }

    /// What charts draw: every fleet that met the demand which is drawn, and of a fleet with many settings one variant per
    /// policy, the best: more lines cannot be told apart.
    pub(super) fn shown(&self, world: World) -> Vec<&Variant<'a>> {
        let mut drawn = contests(&self.variants, world);
        let demand = self.drawn_demand(world);
        drawn.retain(|contest| demand.is_some_and(|of| same_demand(&self.variants[contest[0]], of)));
        let all: BTreeSet<usize> = drawn.iter().flatten().copied().collect();
        if all.len() <= FEW {
            return all.into_iter().map(|place| &self.variants[place]).collect();
        }
        self.leaders(drawn.into_iter(), 1)
    }

    /// A variant of the demand that charts draw, for charts of different demands do not compare: the middle one, which is
    /// neither idle nor beyond what the cluster can do.
    fn drawn_demand(&self, world: World) -> Option<&Variant<'a>> {
        let demands = self.demands(world);
        demands.get(demands.len().saturating_sub(1) / 2).copied()
    }

    /// A variant of each demand.
    fn demands(&self, world: World) -> Vec<&Variant<'a>> {
        let mut demands: Vec<&Variant<'a>> = Vec::new();
        for variant in self.of_world(world) {
            if !demands.iter().any(|known| same_demand(known, variant)) {
                demands.push(variant);
            }
        }
        demands
    }

    /// The variants of a world that have a row in tables: of every policy the few best settings, for every amount of
    /// work, and the defaults.
    pub(super) fn tabled(&self, world: World) -> Vec<&Variant<'a>> {
        let contests = contests(&self.variants, world);
        let count = if contests.len() > MANY_CONTESTS { 1 } else { FEW };
        self.leaders(contests.into_iter(), count)
    }

    /// Whether [`Self::tabled`] has a few settings of each policy, and not only the best.
    pub(super) fn tables_few(&self, world: World) -> bool {
        contests(&self.variants, world).len() <= MANY_CONTESTS
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

    /// The name of a variant among those that are drawn beside it, which met the same demand.
    pub(super) fn name(&self, variant: &Variant<'_>) -> String {
        side(&self.variants, variant)
    }

    /// The colour of a variant, the same in every world and chart.
    pub(super) fn colour(&self, variant: &Variant<'_>) -> usize {
        let name = self.name(variant);
        let exact = self.series.iter().position(|(policy, of)| *policy == variant.policy && *of == name);
        let same_policy = || self.series.iter().position(|(policy, _)| *policy == variant.policy);
        exact.or_else(same_policy).unwrap_or(0) % PALETTE.len()
    }

    pub(super) fn key(&self, variant: &Variant<'_>) -> Key {
        Key { colour: self.colour(variant), name: self.name(variant) }
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
        let demands = self.demands(world).len();
        let drawn = self.drawn_demand(world);
        let demand = drawn.map_or(String::new(), |drawn| demand(&self.variants, drawn));
        let at = format!("Drawn at {demand}, the middle one of {demands} swept loads.");
        if demands > 1 {
            words.push(&at);
        }
        let met = drawn.map_or(0, |drawn| self.of_world(world).filter(|v| same_demand(v, drawn)).count());
        if met > self.shown(world).len() {
            words.push("Of each policy's swept settings the best is drawn.");
        }
        words.join(" ")
    }
}
