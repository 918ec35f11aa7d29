//! The comparison on the terminal.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};

use super::assertion::{AssertOutcome, Verdict};
use super::best::{RULE, baseline_policy, best, best_text, is_best, leaders, speedup};
use super::experiment::Experiment;
use super::format::grouped;
use super::metric::Metric;
use super::variant::{self, Variant, contests, is_default, plain, short, varying, worlds};
use crate::run::{World, has_failed};

/// Columns of the widest table, however wide the terminal is.
pub const WIDEST: u16 = 100;
/// Most settings of a sweep that are listed; the report has all of them.
const MOST_SETTINGS: usize = 12;
/// Most kinds of failure that are named.
const MOST_FAILURES: usize = 3;

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
        out.push_str(&failures(experiment, &variants, world, width));
        out.push_str(&left(&variants, world));
        out.push('\n');
    }
    out.push_str(&legend(&variants, glyphs, width));
    for run in experiment.invalid() {
        out.push_str(&wrapped(&format!("INVALID {run}"), width));
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

/// `text` in lines of at most `width` columns; all but the first are indented.
fn wrapped(text: &str, width: u16) -> String {
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
fn legend(variants: &[Variant<'_>], glyphs: Glyphs, width: u16) -> String {
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

/// One table: what is in it and how it is drawn.
struct Layout<'t, 'a> {
    variants: &'t [Variant<'a>],
    world: World,
    rows: &'t [&'t Variant<'a>],
    columns: &'t [(&'static str, &'static Metric)],
    glyphs: Glyphs,
}

impl Layout<'_, '_> {
    /// The table at its natural width, or squeezed into `width`.
    fn draw(&self, width: Option<u16>) -> String {
        let keys = self.keys();
        let mut table = Table::new();
        table.load_style(lines(self.glyphs)).set_header(self.header(&keys));
        match width {
            None => table.set_content_arrangement(ContentArrangement::Disabled),
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        };
        for variant in self.rows {
            let mut cells = vec![Cell::new(self.name(variant))];
            cells.extend(keys.iter().map(|key| right(setting(variant, key))));
            cells.extend(self.figures(variant).into_iter().map(right));
            table.add_row(cells);
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 0));
            if place > keys.len() && width.is_some() {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        table.trim_fmt()
    }

    /// The swept keys that differ between the variants of a policy.
    fn keys(&self) -> Vec<&str> {
        let policies: BTreeSet<&str> = self.rows.iter().map(|variant| variant.policy).collect();
        let keys: BTreeSet<&str> =
            policies.into_iter().flat_map(|policy| varying(self.variants, self.world, policy)).collect();
        keys.into_iter().collect()
    }

    fn header(&self, keys: &[&str]) -> Vec<Cell> {
        let mut cells = vec![Cell::new("policy")];
        // The marks of best figures stand right of the digits, so headings end one column earlier.
        let padded =
            |text: &str| right(text.lines().map(|line| format!("{line} ")).collect::<Vec<_>>().join("\n"));
        cells.extend(keys.iter().map(|key| padded(&variant::heading(key).replace('_', "_\n"))));
        let baseline = baseline_policy(self.variants, self.world);
        for (place, (heading, _)) in self.columns.iter().enumerate() {
            cells.push(padded(heading));
            if let Some(policy) = baseline.filter(|_| place == 0) {
                cells.push(padded(&format!("vs. {}", policy.replace('_', "_\n"))));
            }
        }
        cells
    }

    fn name(&self, variant: &Variant<'_>) -> String {
        let best = match (is_best(self.variants, variant), self.glyphs) {
            (true, Glyphs::Unicode) => '▸',
            (true, Glyphs::Ascii) => '>',
            _ => ' ',
        };
        match (best, is_default(self.variants, variant)) {
            (' ', true) => format!("= {}", variant.policy),
            (best, true) => format!("{best}={}", variant.policy),
            (best, false) => format!("{best} {}", variant.policy),
        }
    }

    fn figures(&self, variant: &Variant<'_>) -> Vec<String> {
        let mut cells = Vec::new();
        for (place, (_, metric)) in self.columns.iter().enumerate() {
            let median = variant.spread(metric).map(|spread| spread.median);
            let text = median.map_or("-".to_owned(), |median| metric.cell(median));
            let is_best = best_text(self.rows, variant, metric).is_some_and(|best| best == text);
            cells.push(format!("{text}{}", if is_best { "*" } else { " " }));
            if place == 0 && baseline_policy(self.variants, self.world).is_some() {
                let ratio = speedup(self.variants, variant);
                cells.push(ratio.map_or("- ".to_owned(), |r| format!("{r:.2} ")));
            }
        }
        cells
    }
}

/// A swept value; nothing where the key does not concern the policy.
fn setting(variant: &Variant<'_>, key: &str) -> String {
    variant.params.get(key).map_or(String::new(), |_| format!("{} ", variant.reading(key)))
}

/// Three lines: above, below the heading, at the end.
fn lines(glyphs: Glyphs) -> TableStyle {
    let line = |c| LineStyle::none().fill(c).junction(c);
    let (thin, thick) = if glyphs == Glyphs::Unicode { ('─', '━') } else { ('-', '=') };
    TableStyle::new().top_border(line(thin)).header_separator(line(thick)).bottom_border(line(thin))
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// The most frequent ways in which requests of a world failed.
fn failures(experiment: &Experiment, variants: &[Variant<'_>], world: World, width: u16) -> String {
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
fn left(variants: &[Variant<'_>], world: World) -> String {
    match variants.iter().filter(|v| v.world == world).map(Variant::left).sum::<u64>() {
        0 => String::new(),
        1 => "1 request was left by its client\n".to_owned(),
        left => format!("{} requests were left by their clients\n", grouped(left as f64)),
    }
}

fn verdicts(outcomes: &[AssertOutcome], ran: &[World]) -> String {
    if outcomes.is_empty() {
        return String::new();
    }
    let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    let (held, skipped) = (count(Verdict::Held), count(Verdict::NotChecked));
    let checked = outcomes.len() - skipped;
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
    out.push('\n');
    for outcome in outcomes {
        match outcome.verdict {
            Verdict::Held => {}
            Verdict::Failed => out.push_str(&format!("  FAILED  {outcome}\n")),
            Verdict::NotChecked => out.push_str(&format!("  skipped {outcome}\n")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::report::fixture::{failed, record, run};
    use crate::report::{About, Assertion};
    use crate::run::Run;

    fn one(policy: &str, cached: u64, last_ms: u64) -> Run {
        let only =
            record(0).tokens(12_345_678, cached, 20).first_ms(last_ms / 2).last_ms(last_ms).worker(0).build();
        run(policy, vec![only])
    }

    fn experiment(runs: Vec<Run>, assertions: &[Assertion]) -> Experiment {
        let about = About { name: "wide".into(), ..About::default() };
        Experiment::new(about, runs, None, assertions, Value::Null)
    }

    fn two() -> Vec<Run> {
        vec![one("round_robin", 0, 20_000), one("cache_aware", 10_000_000, 10_000)]
    }

    #[test]
    fn the_best_is_marked_and_compared() {
        let text = table(&experiment(two(), &[]), Glyphs::Ascii, 100);
        let line =
            |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = line("> cache_aware").split_whitespace().collect();
        assert_eq!(words[..5], [">", "cache_aware", "1,234,568*", "2.00", "81.0*"]);
        assert!(line("  round_robin").contains(" 1.00 "));
        assert!(line("policy").contains("vs. round_"), "{text}");
        assert!(text.is_ascii(), "{text}");
    }

    #[test]
    fn a_lone_policy_is_compared_with_nothing() {
        let mut runs = vec![one("cache_aware", 0, 20_000), one("cache_aware", 0, 10_000)];
        runs[1].params.insert("max_tree_size".into(), json!(16));
        let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
        assert!(text.contains("> best") && !text.contains("vs."), "{text}");
    }

    #[test]
    fn failed_asserts_are_listed_with_what_was_measured() {
        let claims = [
            Assertion::new("hit_rate", "cache_aware", None, ">=", 0.9, None).unwrap(),
            Assertion::new("hit_rate", "cache_aware", None, ">=", 0.8, None).unwrap(),
        ];
        let text = table(&experiment(two(), &claims), Glyphs::Unicode, 100);
        assert!(text.contains("asserts: 1 of 2 hold"), "{text}");
        assert!(
            text.contains("FAILED  cache_aware (virtual): hit_rate at least 90 %; measured 81 %"),
            "{text}"
        );
    }

    /// Two policies and a sweep of one of them.
    fn swept(settings: u64) -> Vec<Run> {
        let mut runs = two();
        for setting in 0..settings {
            let mut swept = one("cache_aware", setting, 20_000 - 100 * setting);
            swept.params.insert("balance_abs_threshold".into(), json!(8 * (setting + 1)));
            swept.params.insert("max_tree_size".into(), json!(67_108_864));
            runs.push(swept);
        }
        runs.remove(1);
        runs
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|l| l.chars().count()).max().unwrap()
    }

    #[test]
    fn swept_keys_are_columns_and_what_is_constant_is_said_once() {
        let text = table(&experiment(swept(3), &[]), Glyphs::Ascii, 100);
        assert!(text.contains("with cache_aware max_tree_size=67108864\n"), "{text}");
        assert!(!text.contains("threshold="), "{text}");
        let row = text.lines().find(|line| line.starts_with("> cache_aware")).unwrap();
        assert_eq!(row.split_whitespace().nth(2), Some("24"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains("cache_aware  ")).count(), 3, "{text}");
    }

    #[test]
    fn a_long_sweep_lists_its_best_its_defaults_and_the_first_policy() {
        let text = table(&experiment(swept(30), &[]), Glyphs::Ascii, 100);
        let rows =
            text.lines().filter(|l| l.get(2..).is_some_and(|rest| rest.starts_with("cache_aware"))).count();
        assert_eq!(rows, 13, "{text}");
        assert!(text.contains("...17 more settings in the report"), "{text}");
        assert!(text.contains("\n= cache_aware "), "8 x 8 is the default\n{text}");
        assert!(text.contains("  round_robin"), "{text}");
    }

    #[test]
    fn tables_fit_narrow_terminals() {
        for glyphs in [Glyphs::Ascii, Glyphs::Unicode] {
            let wide = table(&experiment(two(), &[]), glyphs, 200);
            assert!(widest(&wide) <= 100 && wide.contains("E2E") && wide.contains("pred."), "{wide}");
            let narrow = table(&experiment(two(), &[]), glyphs, 80);
            assert!(widest(&narrow) <= 80 && !narrow.contains("E2E"), "{narrow}");
            let swept = table(&experiment(swept(20), &[]), glyphs, 80);
            assert!(widest(&swept) <= 80, "{swept}");
        }
    }

    #[test]
    fn failures_are_named_by_number() {
        let mut runs = two();
        runs[0].records = (0..9).map(|seq| failed(seq, 0, 5, 503, "no worker")).collect();
        runs[1].records.extend((1..4).map(|seq| failed(seq, 0, 5, 0, "connection refused")));
        let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
        let (first, second) = ("  9 x 503 no worker\n", "  3 x connection refused\n");
        assert!(text.contains(&format!("12 requests failed:\n{first}{second}")), "{text}");
    }

    #[test]
    fn clients_that_left_are_no_failures() {
        let mut runs = two();
        runs[0].records.extend((1..4).map(|seq| failed(seq, 0, 5, 0, crate::run::CLIENT_LEFT)));
        let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
        assert!(
            text.contains("3 requests were left by their clients\n") && !text.contains("failed:"),
            "{text}"
        );
    }

    #[test]
    fn void_runs_are_told() {
        let mut runs = two();
        runs[1].world = World::Live;
        runs[1].records[0].sent_ns = 1_000_000_000;
        let text = table(&experiment(runs, &[]), Glyphs::Ascii, 100);
        assert!(text.contains("\nINVALID live cache_aware seed 1: "), "{text}");
        assert!(!table(&experiment(two(), &[]), Glyphs::Ascii, 100).contains("INVALID"));
    }

    #[test]
    fn skipped_asserts_do_not_count_as_broken() {
        let live = Some(World::Live);
        let claims = [Assertion::new("hit_rate", "cache_aware", live, ">=", 0.9, None).unwrap()];
        let text = table(&experiment(two(), &claims), Glyphs::Ascii, 100);
        assert!(text.contains("asserts: none checked, 1 skipped (live only)\n"), "{text}");
    }

    #[test]
    fn a_hundred_columns_are_enough() {
        let mut runs = two();
        for threshold in [0.1, 0.5] {
            let mut swept = one("consistent_hashing", 1, 99_999);
            swept.params.insert(
                "router.options.consistent_hashing.quite_a_long_option_name".into(),
                json!(threshold),
            );
            swept.params.insert("fleet.kv_tokens".into(), json!((threshold * 1e7) as u64));
            runs.push(swept);
        }
        for glyphs in [Glyphs::Ascii, Glyphs::Unicode] {
            let text = table(&experiment(runs.clone(), &[]), glyphs, 100);
            let widest = text.lines().map(|l| l.chars().count()).max().unwrap();
            assert!(widest <= 100, "{widest}\n{text}");
            assert!(text.contains("5000000"), "{text}");
        }
    }
}
