//! How often each policy decided for which reason.

use std::collections::BTreeMap;

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::format::{grouped, trimmed};
use super::super::variant::Variant;
use super::template::fill;
use super::view::View;
use crate::run::Run;

#[derive(Serialize)]
struct Facts {
    worlds: Vec<WorldFacts>,
}

#[derive(Serialize)]
struct WorldFacts {
    world: &'static str,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    colour: usize,
    parts: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    reason: String,
    count: String,
    share: String,
    /// Per mille of the bar.
    start: u32,
    width: u32,
    /// From 0, the most frequent reason of the policy, on: fainter and fainter.
    rank: usize,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let world = |world| WorldFacts {
        world: crate::run::World::label(world),
        rows: view.tabled(world).into_iter().map(|v| row(view, v)).filter(|r| !r.parts.is_empty()).collect(),
    };
    let worlds: Vec<WorldFacts> =
        view.worlds().into_iter().map(world).filter(|world| !world.rows.is_empty()).collect();
    if worlds.is_empty() {
        return Ok(None);
    }
    fill("reasons.html", include_str!("../templates/reasons.html"), Facts { worlds }).map(Some)
}

fn row(view: &View<'_>, variant: &Variant<'_>) -> Row {
    let counts = reasons(runs(view, variant));
    let total: u64 = counts.values().sum();
    let mut before = 0;
    let mut parts = Vec::new();
    for (rank, reason) in ranking(view, variant.policy).into_iter().enumerate() {
        let Some(count) = counts.get(reason) else { continue };
        let start = (before * 1000 / total.max(1)) as u32;
        before += count;
        let end = (before * 1000 / total.max(1)) as u32;
        let share = format!("{} %", trimmed(*count as f64 / total.max(1) as f64 * 100.0, 1));
        let count = grouped(*count as f64);
        parts.push(Part {
            reason: reason.to_owned(),
            count,
            share,
            start,
            width: end - start,
            rank: rank.min(5),
        });
    }
    Row { name: view.label(variant), colour: view.colour(variant), parts }
}

/// The reasons of a policy over all its settings and worlds, most frequent first: one order, and so one shade for each
/// reason wherever it stands.
fn ranking<'v>(view: &'v View<'_>, policy: &str) -> Vec<&'v str> {
    let mine = view.experiment.runs().iter().filter(|run| run.router() == policy);
    by_count(reasons(mine)).into_iter().map(|(reason, _)| reason).collect()
}

/// How often each reason was given.
fn reasons<'v>(runs: impl Iterator<Item = &'v Run>) -> BTreeMap<&'v str, u64> {
    let mut counts = BTreeMap::new();
    for record in runs.flat_map(|run| &run.records).filter(|r| !r.reason.is_empty()) {
        *counts.entry(record.reason.as_str()).or_insert(0) += 1;
    }
    counts
}

/// Most frequent first, then by key.
fn by_count<K: Ord>(counts: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut rows: Vec<(K, u64)> = counts.into_iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    rows
}

fn runs<'v>(view: &'v View<'_>, variant: &'v Variant<'_>) -> impl Iterator<Item = &'v Run> {
    variant.runs.iter().map(|place| &view.experiment.runs()[*place])
}
