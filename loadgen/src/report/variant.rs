//! Runs that differ only in their seed are one variant; figures are judged on the median over its seeds.

use std::collections::BTreeSet;

use router_core::{OptionValue, POLICIES};
use serde_json::Value;

use super::metric::Metric;
use super::stats::Spread;
use super::summary::RunSummary;
use crate::run::{Params, World};
use crate::statistics::{Interval, student_t};

/// One policy with one set of parameters in one world: the runs over its seeds.
#[derive(Debug)]
pub(super) struct Variant<'a> {
    pub(super) world: World,
    pub(super) policy: &'a str,
    pub(super) params: &'a Params,
    /// Places of its runs in the experiment.
    pub(super) runs: Vec<usize>,
    /// Whether it is best whatever the rule says: the runs answer another question.
    pub(super) is_chosen: bool,
    /// Whether nothing makes it better than others, for what was measured in its world cannot be relied upon.
    pub(super) is_undecided: bool,
    /// Whether its policy's own defaults hold in all options that vary: nobody who takes it changes anything.
    pub(super) keeps_defaults: bool,
    summaries: Vec<&'a RunSummary>,
}

/// The keys that say which workers have which role; a fleet's word says it better.
const ROLE_KEYS: [&str; 2] = ["fleet.prefill", "fleet.regular"];

impl Variant<'_> {
    /// What people call its fleet.
    fn fleet(&self) -> &str {
        self.summaries.first().map_or("", |summary| &summary.fleet)
    }

    /// A parameter's value as a person reads it under [`heading`].
    pub(super) fn reading(&self, key: &str) -> String {
        match key {
            "fleet.prefill" => self.fleet().to_owned(),
            _ => plain(self.params.get(key)),
        }
    }

    /// The figure over the seeds on which it was measured.
    pub(super) fn spread(&self, metric: &Metric) -> Option<Spread> {
        Spread::of(self.summaries.iter().filter_map(|s| metric.value(s)))
    }

    /// The interval of the mean over the seeds, where there are several.
    pub(super) fn interval(&self, metric: &Metric) -> Option<Interval> {
        let values: Vec<f64> = self.summaries.iter().filter_map(|s| metric.value(s)).collect();
        student_t::interval(&values)
    }

    /// The median over the seeds of the named metric.
    pub(super) fn median(&self, name: &str) -> Option<f64> {
        Some(self.spread(Metric::named(name)?)?.median)
    }

    /// How many seeds it has.
    pub(super) fn seeds(&self) -> usize {
        self.runs.len()
    }

    /// Requests and failures over all seeds.
    pub(super) fn requests_and_failed(&self) -> (u64, u64) {
        self.summaries.iter().fold((0, 0), |(r, f), s| (r + s.requests, f + s.failed))
    }

    /// Requests that their clients left, over all seeds.
    pub(super) fn left(&self) -> u64 {
        self.summaries.iter().map(|summary| summary.left).sum()
    }

    /// The place of the run that stands for the variant in charts: the lower median by throughput, the earlier one
    /// among equals.
    pub(super) fn typical_run(&self) -> usize {
        let mut order: Vec<usize> = (0..self.runs.len()).collect();
        order.sort_by(|a, b| self.summaries[*a].input_tok_s.total_cmp(&self.summaries[*b].input_tok_s));
        self.runs[order[(order.len() - 1) / 2]]
    }
}

/// The variants of an experiment in order of first appearance.
pub(super) fn variants(summaries: &[RunSummary]) -> Vec<Variant<'_>> {
    let mut variants: Vec<Variant<'_>> = Vec::new();
    for (place, summary) in summaries.iter().enumerate() {
        let same = |v: &&mut Variant<'_>| {
            v.world == summary.mode && v.policy == summary.policy && *v.params == summary.params
        };
        match variants.iter_mut().find(same) {
            Some(variant) => {
                variant.runs.push(place);
                variant.summaries.push(summary);
            }
            None => variants.push(Variant {
                world: summary.mode,
                policy: &summary.policy,
                params: &summary.params,
                runs: vec![place],
                is_chosen: false,
                is_undecided: false,
                keeps_defaults: true,
                summaries: vec![summary],
            }),
        }
    }
    let defaults: Vec<bool> =
        variants.iter().map(|variant| of_options(&variants, variant).all(|is_default| is_default)).collect();
    for (variant, keeps_defaults) in variants.iter_mut().zip(defaults) {
        variant.keeps_defaults = keeps_defaults;
    }
    variants
}

/// The worlds that were run, virtual first.
pub(super) fn worlds(variants: &[Variant<'_>]) -> Vec<World> {
    variants.iter().map(|v| v.world).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The parameters in which the variants of one policy and world differ.
pub(super) fn varying<'a>(variants: &'a [Variant<'_>], world: World, policy: &str) -> Vec<&'a str> {
    let mine: Vec<&Variant<'_>> =
        variants.iter().filter(|v| v.world == world && v.policy == policy).collect();
    let keys: BTreeSet<&str> = mine.iter().flat_map(|v| v.params.keys().map(String::as_str)).collect();
    let differs = |key: &&str| mine.iter().any(|v| v.params.get(*key) != mine[0].params.get(*key));
    keys.into_iter().filter(differs).collect()
}

/// Whether two variants of one world differ in nothing that both of them set.
pub(super) fn comparable(a: &Variant<'_>, b: &Variant<'_>) -> bool {
    a.world == b.world && agree(a, b)
}

/// Whether two variants differ in no parameter that both of them set.
pub(super) fn agree(a: &Variant<'_>, b: &Variant<'_>) -> bool {
    a.params.iter().all(|(key, value)| b.params.get(key).is_none_or(|other| other == value))
}

/// The tables of a scenario that decide what work a run is given, and to whom.
const WORK_TABLES: [&str; 4] = ["workload.", "arrival.", "fleet.", "faults."];

/// Whether a parameter changes the work, and not the policy that routes it.
fn is_work(key: &str) -> bool {
    WORK_TABLES.iter().any(|table| key.starts_with(table))
}

/// Whether two variants were given the same work in the same world. Only then can one be better than the other.
pub(super) fn same_work(a: &Variant<'_>, b: &Variant<'_>) -> bool {
    let work = |v: &Variant<'_>| -> Vec<(String, Value)> {
        v.params.iter().filter(|(key, _)| is_work(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    a.world == b.world && work(a) == work(b)
}

/// The places of the variants of a world, together with those that were given the same work, in order of appearance.
pub(super) fn contests(variants: &[Variant<'_>], world: World) -> Vec<Vec<usize>> {
    let mut contests: Vec<Vec<usize>> = Vec::new();
    for (place, variant) in variants.iter().enumerate().filter(|(_, v)| v.world == world) {
        match contests.iter_mut().find(|contest| same_work(&variants[contest[0]], variant)) {
            Some(contest) => contest.push(place),
            None => contests.push(vec![place]),
        }
    }
    contests
}

/// Whether a parameter says what is asked of the cluster, and not what the cluster is.
pub(super) fn is_demand(key: &str) -> bool {
    is_work(key) && !key.starts_with("fleet.")
}

/// Whether the same was asked of two variants in the same world.
pub(super) fn same_demand(a: &Variant<'_>, b: &Variant<'_>) -> bool {
    let demand = |v: &Variant<'_>| -> Vec<(String, Value)> {
        v.params.iter().filter(|(key, _)| is_demand(key)).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    a.world == b.world && demand(a) == demand(b)
}

/// What was asked of a variant that others were not: the swept keys of the work, in words.
pub(super) fn work(variants: &[Variant<'_>], variant: &Variant<'_>) -> String {
    phrase(words(variants, variant, is_work))
}

/// The same as `key=value` words, as names of files have it.
pub(super) fn work_keys(variants: &[Variant<'_>], variant: &Variant<'_>) -> String {
    let keys = varying(variants, variant.world, variant.policy).into_iter().filter(|key| is_work(key));
    let words = keys.map(|key| format!("{}={}", short(key), plain(variant.params.get(key))));
    words.collect::<Vec<_>>().join(" ")
}

/// What was asked, in words, without the fleet.
pub(super) fn demand(variants: &[Variant<'_>], variant: &Variant<'_>) -> String {
    phrase(words(variants, variant, is_demand))
}

/// What tells a variant from those of which the same was asked. The policy is named where several run.
pub(super) fn side(variants: &[Variant<'_>], variant: &Variant<'_>) -> String {
    let mut side = words(variants, variant, |key| !is_demand(key));
    let alone = variants.iter().all(|v| v.world != variant.world || v.policy == variant.policy);
    if side.is_empty() || !alone {
        side.insert(0, variant.policy.to_owned());
    }
    phrase(side)
}

/// Whether a swept variant of a policy has the policy's own defaults in all that varies.
pub(super) fn is_default(variants: &[Variant<'_>], variant: &Variant<'_>) -> bool {
    variant.keeps_defaults && of_options(variants, variant).next().is_some()
}

/// For each option that varies among a policy's variants, whether this one has its default.
fn of_options<'a>(variants: &'a [Variant<'_>], variant: &'a Variant<'_>) -> impl Iterator<Item = bool> + 'a {
    let row = POLICIES.iter().find(|row| row.name == variant.policy);
    let default = move |key: &str| {
        let given = variant.params.get(key)?;
        let spec = row?.options.iter().find(|option| option.key == key)?;
        Some(match &spec.default {
            OptionValue::Bool(value) => given.as_bool() == Some(*value),
            OptionValue::Integer(value) => given.as_f64() == Some(*value as f64),
            OptionValue::Float(value) => given.as_f64() == Some(*value),
            OptionValue::Text(value) => given.as_str() == Some(value),
        })
    };
    let keys = varying(variants, variant.world, variant.policy).into_iter().filter(|key| !is_work(key));
    keys.map(move |key| default(key).unwrap_or(!variant.params.contains_key(key)))
}

/// A short name for a parameter: the last part of its path.
pub(super) fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// What a column of a parameter's values is called.
pub(super) fn heading(key: &str) -> &str {
    match key {
        "fleet.prefill" => "fleet",
        "arrival.rate" => "requests/s",
        _ => short(key),
    }
}

/// A parameter's value as a person writes it; `default` where it was not set.
pub(super) fn plain(value: Option<&Value>) -> String {
    match value {
        None => "default".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.is_f64() => format!("{}", number.as_f64().unwrap_or(f64::NAN)),
        Some(other) => other.to_string(),
    }
}

/// The parameters that tell a variant from its siblings, in words; empty when it has none.
pub(super) fn distinction(variants: &[Variant<'_>], variant: &Variant<'_>) -> String {
    phrase(words(variants, variant, |_| true))
}

/// The policy's name, and what tells the variant from its siblings.
pub(super) fn label(variants: &[Variant<'_>], variant: &Variant<'_>) -> String {
    let mut label = words(variants, variant, |_| true);
    label.insert(0, variant.policy.to_owned());
    phrase(label)
}

/// The swept parameters of some kind: `key=value`, or what people say of it.
fn words(variants: &[Variant<'_>], variant: &Variant<'_>, of_kind: impl Fn(&str) -> bool) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for key in varying(variants, variant.world, variant.policy).into_iter().filter(|key| of_kind(key)) {
        let value = plain(variant.params.get(key));
        let word = match key {
            key if ROLE_KEYS.contains(&key) => variant.fleet().to_owned(),
            "arrival.rate" => format!("{value} requests/s"),
            "router.dp_aware" if value == "true" => "rank-aware".to_owned(),
            "router.dp_aware" => "native ranks".to_owned(),
            "arrival.concurrency" => format!("{value} in flight"),
            _ => format!("{}={value}", short(key)),
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// Words in a row, with commas around those that are not `key=value`.
fn phrase(words: Vec<String>) -> String {
    let mut phrase = String::new();
    for (place, word) in words.iter().enumerate() {
        let pair = |at: usize| words[at].contains('=') || at == 0 && !words[at].contains(' ');
        if place > 0 {
            phrase.push_str(if pair(place) && pair(place - 1) { " " } else { ", " });
        }
        phrase.push_str(word);
    }
    phrase
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::fixture::{record, run};

    fn summary(policy: &str, threshold: Option<f64>, seed: u64, last_ms: u64) -> RunSummary {
        let mut run = run(policy, vec![record(0).tokens(100, 0, 1).last_ms(last_ms).build()]);
        run.seed = seed;
        if let Some(t) = threshold {
            run.params.insert("router.options.cache_aware.cache_threshold".into(), json!(t));
        }
        RunSummary::of(&run, None)
    }

    #[test]
    fn seeds_are_pooled_and_parameters_are_not() {
        let summaries = [
            summary("cache_aware", Some(0.1), 1, 10),
            summary("cache_aware", Some(0.5), 1, 10),
            summary("cache_aware", Some(0.1), 2, 30),
            summary("random", None, 1, 10),
            summary("cache_aware", Some(0.1), 3, 20),
        ];
        let variants = variants(&summaries);
        let names: Vec<String> = variants.iter().map(|v| label(&variants, v)).collect();
        assert_eq!(names, ["cache_aware cache_threshold=0.1", "cache_aware cache_threshold=0.5", "random"]);
        assert_eq!(variants[0].runs, [0, 2, 4]);
        assert_eq!(variants[0].median("makespan_s"), Some(0.02));
        assert_eq!(variants[0].typical_run(), 4, "the seed in the middle by throughput");
    }

    #[test]
    fn a_parameter_all_share_is_not_in_the_name() {
        let summaries = [summary("cache_aware", Some(0.1), 1, 10), summary("random", Some(0.1), 1, 10)];
        let variants = variants(&summaries);
        assert_eq!(label(&variants, &variants[0]), "cache_aware");
    }
}
