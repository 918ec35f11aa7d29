//! The comparison on the terminal.

mod layout;
mod notes;

use std::collections::BTreeSet;

use super::best::leaders;
use super::experiment::Experiment;
use super::metric::Metric;
use super::variant::{Variant, contests, is_default, plain, short, varying, worlds};
use crate::run::World;
use layout::Layout;
use notes::{failures, left, legend, no_difference, verdicts, wrapped};

/// Columns of the widest table, however wide the terminal is.
pub const WIDEST: u16 = 100;
/// Most settings of a sweep that are listed; the report has all of them.
const MOST_SETTINGS: usize = 12;
/// Most remarks of a kind that are printed.
const MOST_REMARKS: usize = 8;

/// Which characters a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glyphs {
    /// ASCII only: pipes, files, old terminals.
    Ascii,
    /// Lines and marks from Unicode.
    Unicode,
}

/// The columns: two lines of heading, and the metric.
const COLUMNS: [(&str, &str); 9] = [
    ("input\ntok/s", "input_tok_s"),
    ("hit\n%", "hit_rate"),
    ("pred.\n%", "predicted_hit_rate"),
    ("TTFT\np50 ms", "ttft_ms.p50"),
    ("TTFT\np99 ms", "ttft_ms.p99"),
    ("TPOT\np50 ms", "tpot_ms.p50"),
    ("E2E\np50 ms", "e2e_ms.p50"),
    ("imba-\nlance", "imbalance"),
    ("fail-\ned", "failed"),
];
/// What is left out, one after the other, where the terminal is too narrow.
const DISPENSABLE: [&str; 4] = ["e2e_ms.p50", "predicted_hit_rate", "imbalance", "tpot_ms.p50"];

/// The comparison of all variants, world by world, which runs are void, what failed, and what became of the asserts; for
/// a terminal of `width` columns, of which at most [`WIDEST`] are used.
#[must_use]
pub fn table(experiment: &Experiment, glyphs: Glyphs, width: u16) -> String {
    let width = width.min(WIDEST);
    let variants = experiment.variants();
    let mut out = String::new();
    for world in worlds(&variants) {
        out.push_str(&heading(experiment, &variants, world, width));
        out.push_str(&world_table(&variants, world, glyphs, width));
        out.push('\n');
        out.push_str(&left_out(&variants, world));
        out.push_str(&no_difference(&variants, world, width));
        out.push_str(&failures(experiment, &variants, world, width));
        out.push_str(&left(&variants, world));
        out.push('\n');
    }
    out.push_str(&legend(&variants, glyphs, width));
    for (word, texts) in experiment.remarks() {
        for text in texts.iter().take(MOST_REMARKS) {
            out.push_str(&wrapped(&format!("{word} {text}"), width));
        }
        if let Some(more) = texts.len().checked_sub(MOST_REMARKS).filter(|more| *more > 0) {
            out.push_str(&format!("...{more} more {word} in summary.json\n"));
        }
    }
    out.push_str(&verdicts(experiment.outcomes(), &worlds(&variants)));
    out
}

fn heading(experiment: &Experiment, variants: &[Variant<'_>], world: World, width: u16) -> String {
    let seeds = variants.iter().filter(|v| v.world == world).map(Variant::seeds).max().unwrap_or(0);
    let over = if seeds == 1 { "one seed".to_owned() } else { format!("median of {seeds} seeds") };
    let first = format!("{}, {}, {over}\n", experiment.about().name, world.label());
    let constant: BTreeSet<String> = variants
        .iter()
        .filter(|v| v.world == world)
        .flat_map(|v| {
            let varies = varying(variants, world, v.policy);
            let same = v.params.iter().filter(move |(key, _)| !varies.contains(&key.as_str()));
            same.map(|(key, value)| format!("{} {}={}", v.policy, short(key), plain(Some(value))))
        })
        .collect();
    if constant.is_empty() {
        return first;
    }
    let constant: Vec<String> = constant.into_iter().collect();
    first + &wrapped(&format!("with {}", constant.join(", ")), width)
}

/// The variants of a world that are listed, in the scenario's order: all, or of a sweep the leaders, each policy's best
/// and the defaults.
fn listed<'v, 'a>(variants: &'v [Variant<'a>], world: World) -> Vec<&'v Variant<'a>> {
    let mine: Vec<usize> = (0..variants.len()).filter(|p| variants[*p].world == world).collect();
    let swept = mine.iter().any(|p| !varying(variants, world, variants[*p].policy).is_empty());
    if !swept || mine.len() <= MOST_SETTINGS {
        return mine.into_iter().map(|place| &variants[place]).collect();
    }
    let mut kept = BTreeSet::new();
    let contests = contests(variants, world);
    let most = (MOST_SETTINGS / contests.len()).max(1);
    for contest in contests {
        let policies: BTreeSet<&str> = contest.iter().map(|place| variants[*place].policy).collect();
        for policy in policies {
            let of_policy = contest.iter().copied().filter(|p| variants[*p].policy == policy).collect();
            kept.extend(leaders(variants, of_policy, 1));
        }
        kept.extend(leaders(variants, contest, most));
    }
    kept.extend(mine.into_iter().filter(|place| is_default(variants, &variants[*place])));
    kept.into_iter().map(|place| &variants[place]).collect()
}

fn left_out(variants: &[Variant<'_>], world: World) -> String {
    let all = variants.iter().filter(|v| v.world == world).count();
    match all - listed(variants, world).len() {
        0 => String::new(),
        more => format!("...{more} more settings in the report; listed are the best and the defaults\n"),
    }
}

fn world_table(variants: &[Variant<'_>], world: World, glyphs: Glyphs, width: u16) -> String {
    let rows = listed(variants, world);
    let mut text = String::new();
    for dropped in 0..=DISPENSABLE.len() {
        let columns: Vec<(&str, &Metric)> = COLUMNS
            .iter()
            .filter(|(_, metric)| !DISPENSABLE[..dropped].contains(metric))
            .filter_map(|(heading, metric)| Some((*heading, Metric::named(metric)?)))
            .collect();
        let table = Layout { variants, world, rows: &rows, columns: &columns, glyphs };
        text = table.draw(None);
        if text.lines().all(|line| line.chars().count() <= usize::from(width)) {
            return text;
        }
        text = table.draw(Some(width));
    }
    text
}

#[cfg(test)]
mod tests;
