//! What is said under the tables: what the marks mean, what failed, and what became of the asserts.

use std::collections::BTreeMap;

use super::super::assertion::{AssertOutcome, Verdict};
use super::super::best::{RULE, baseline_policy, best, is_level};
use super::super::experiment::Experiment;
use super::super::format::grouped;
use super::super::variant::{Variant, contests, is_default, worlds};
use super::Glyphs;
use crate::run::{World, has_failed};

/// Most kinds of failure that are named.
const MOST_FAILURES: usize = 3;

/// `text` in lines of at most `width` columns; all but the first are indented.
pub(super) fn wrapped(text: &str, width: u16) -> String {
    let mut out = String::new();
    let mut column = 0;
    for (place, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if place > 0 && column + 1 + length > usize::from(width) {
            out.push_str("\n  ");
            column = 2;
        } else if place > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

/// What the marks mean; empty where nothing is marked.
pub(super) fn legend(variants: &[Variant<'_>], glyphs: Glyphs, width: u16) -> String {
    if !variants.iter().any(|variant| best(variants, variant).is_some()) {
        return String::new();
    }
    let mark = if glyphs == Glyphs::Unicode { "▸" } else { ">" };
    let compared = worlds(variants).iter().any(|world| baseline_policy(variants, *world).is_some());
    let ratio = if compared { "; vs.: throughput relative to the first policy's" } else { "" };
    let work = if worlds(variants).iter().any(|world| contests(variants, *world).len() > 1) {
        ", among rows with the same workload and fleet"
    } else {
        ""
    };
    let defaults = if variants.iter().any(|variant| is_default(variants, variant)) {
        "= the policy's own defaults\n"
    } else {
        ""
    };
    wrapped(&format!("{mark} best: {RULE}"), width)
        + defaults
        + &wrapped(&format!("* best of its column{work}{ratio}"), width)
}

/// Where it makes no difference which setting is taken.
pub(super) fn no_difference(variants: &[Variant<'_>], world: World, width: u16) -> String {
    let contests = contests(variants, world);
    match contests.iter().filter(|contest| is_level(variants, contest)).count() {
        0 => String::new(),
        1 if contests.len() == 1 => {
            let all = contests[0].len();
            wrapped(
                &format!("no difference: all {all} settings have the same throughput, hit rate and TTFT"),
                width,
            )
        }
        level => {
            let all = contests.len();
            wrapped(
                &format!("no difference between the settings for {level} of {all} workloads and fleets"),
                width,
            )
        }
    }
}

/// The most frequent ways in which requests of a world failed.
pub(super) fn failures(
    experiment: &Experiment,
    variants: &[Variant<'_>],
    world: World,
    width: u16,
) -> String {
    let mut counts: BTreeMap<(u16, &str), u64> = BTreeMap::new();
    let runs = variants.iter().filter(|v| v.world == world).flat_map(|v| &v.runs);
    let records = runs.flat_map(|place| &experiment.runs()[*place].records);
    for record in records.filter(|record| has_failed(record)) {
        *counts.entry((record.status, record.error.as_str())).or_insert(0) += 1;
    }
    let total: u64 = counts.values().sum();
    if total == 0 {
        return String::new();
    }
    let kinds = counts.len();
    let mut kind: Vec<_> = counts.into_iter().collect();
    kind.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut out = format!("{} requests failed:\n", grouped(total as f64));
    for ((status, error), count) in kind.into_iter().take(MOST_FAILURES) {
        let status = if status == 0 { String::new() } else { format!("{status} ") };
        out.push_str(&wrapped(&format!("  {} x {status}{error}", grouped(count as f64)), width));
    }
    if kinds > MOST_FAILURES {
        out.push_str(&format!("  ...{} more kinds in the report\n", kinds - MOST_FAILURES));
    }
    out
}

/// How many requests of a world nobody failed, for their clients left.
pub(super) fn left(variants: &[Variant<'_>], world: World) -> String {
    match variants.iter().filter(|v| v.world == world).map(Variant::left).sum::<u64>() {
        0 => String::new(),
        1 => "1 request was left by its client\n".to_owned(),
        left => format!("{} requests were left by their clients\n", grouped(left as f64)),
    }
}

pub(super) fn verdicts(outcomes: &[AssertOutcome], ran: &[World]) -> String {
    if outcomes.is_empty() {
        return String::new();
    }
    let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    let (held, skipped, unjudged) =
        (count(Verdict::Held), count(Verdict::NotChecked), count(Verdict::NotJudged));
    let checked = outcomes.len() - skipped - unjudged;
    let mut out = if checked == 0 {
        "asserts: none checked".to_owned()
    } else {
        format!("asserts: {held} of {checked} hold")
    };
    if skipped > 0 {
        // A claim is skipped when it is about the world that did not run.
        let only = if ran.contains(&World::Virtual) { World::Live } else { World::Virtual };
        out.push_str(&format!(", {skipped} skipped ({} only)", only.label()));
    }
    if unjudged > 0 {
        out.push_str(&format!(", {unjudged} not judged (about the scenario's own trace)"));
    }
    out.push('\n');
    for outcome in outcomes {
        match outcome.verdict {
            Verdict::Held => {}
            Verdict::Failed => out.push_str(&format!("  FAILED  {outcome}\n")),
            Verdict::NotChecked => out.push_str(&format!("  skipped {outcome}\n")),
            Verdict::NotJudged => out.push_str(&format!("  not judged {outcome}\n")),
        }
    }
    out
}
