//! The comparison on the terminal.

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};

use super::assertion::{AssertOutcome, Verdict};
use super::best::{RULE, baseline_policy, best, best_text, speedup};
use super::experiment::Experiment;
use super::metric::Metric;
use super::variant::{Variant, distinction, worlds};
use crate::run::World;

const WIDTH: u16 = 100;

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

/// The comparison of all variants, world by world, and what became of the asserts; at most 100 columns wide.
#[must_use]
pub fn table(experiment: &Experiment, glyphs: Glyphs) -> String {
    let variants = experiment.variants();
    let mut out = String::new();
    for world in worlds(&variants) {
        out.push_str(&heading(experiment, &variants, world));
        out.push_str(&world_table(&variants, world, glyphs));
        out.push_str("\n\n");
    }
    out.push_str(&legend(&variants, glyphs));
    out.push_str(&verdicts(experiment.outcomes()));
    out
}

fn heading(experiment: &Experiment, variants: &[Variant<'_>], world: World) -> String {
    let seeds = variants.iter().filter(|v| v.world == world).map(Variant::seeds).max().unwrap_or(0);
    let over = if seeds == 1 { "one seed".to_owned() } else { format!("median of {seeds} seeds") };
    format!("{}, {}, {over}\n", experiment.about().name, world.label())
}

/// What the marks mean; empty where nothing is marked.
fn legend(variants: &[Variant<'_>], glyphs: Glyphs) -> String {
    let worlds = worlds(variants);
    if !worlds.iter().any(|world| best(variants, *world).is_some()) {
        return String::new();
    }
    let mark = if glyphs == Glyphs::Unicode { "▸" } else { ">" };
    let compared = worlds.iter().any(|world| baseline_policy(variants, *world).is_some());
    let ratio = if compared { "; vs.: throughput relative to the first policy's" } else { "" };
    format!("{mark} best: {RULE}\n* best of its column{ratio}\n")
}

fn world_table(variants: &[Variant<'_>], world: World, glyphs: Glyphs) -> String {
    let mine: Vec<&Variant<'_>> = variants.iter().filter(|v| v.world == world).collect();
    let baseline = baseline_policy(variants, world);
    let champion = best(variants, world).map(|place| &variants[place]);
    let mut table = Table::new();
    table
        .load_style(lines(glyphs))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(header(baseline));
    for variant in mine {
        let first = champion.is_some_and(|c| std::ptr::eq(c, variant));
        let mut cells = vec![Cell::new(name(variants, variant, first, glyphs))];
        cells.extend(figures(variants, variant, baseline.is_some()).into_iter().map(right));
        table.add_row(cells);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 0));
        if place > 0 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.trim_fmt()
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

fn header(baseline: Option<&str>) -> Vec<Cell> {
    let mut cells = vec![Cell::new("policy")];
    // The marks of best figures stand right of the digits, so headings end one column earlier.
    let padded =
        |text: &str| right(text.lines().map(|line| format!("{line} ")).collect::<Vec<_>>().join("\n"));
    for (place, (heading, ..)) in COLUMNS.iter().enumerate() {
        cells.push(padded(heading));
        if let Some(policy) = baseline.filter(|_| place == 0) {
            cells.push(padded(&format!("vs. {}", policy.replace('_', "_\n"))));
        }
    }
    cells
}

fn name(variants: &[Variant<'_>], variant: &Variant<'_>, champion: bool, glyphs: Glyphs) -> String {
    let mark = match (champion, glyphs) {
        (true, Glyphs::Unicode) => "▸ ",
        (true, Glyphs::Ascii) => "> ",
        _ => "  ",
    };
    let params = distinction(variants, variant);
    let lines = params.split_whitespace().map(|word| format!("\n   {word}"));
    format!("{mark}{}{}", variant.policy, lines.collect::<String>())
}

fn figures(variants: &[Variant<'_>], variant: &Variant<'_>, compared: bool) -> Vec<String> {
    let mut cells = Vec::new();
    for (place, (_, metric)) in COLUMNS.iter().enumerate() {
        let Some(metric) = Metric::named(metric) else { continue };
        let median = variant.spread(metric).map(|spread| spread.median);
        let text = median.map_or("-".to_owned(), |median| metric.cell(median));
        let is_best = best_text(variants, variant.world, metric).is_some_and(|best| best == text);
        cells.push(format!("{text}{}", if is_best { "*" } else { " " }));
        if place == 0 && compared {
            let ratio = speedup(variants, variant);
            cells.push(ratio.map_or("- ".to_owned(), |r| format!("{r:.2} ")));
        }
    }
    cells
}

fn verdicts(outcomes: &[AssertOutcome]) -> String {
    if outcomes.is_empty() {
        return String::new();
    }
    let held = outcomes.iter().filter(|o| o.verdict == Verdict::Held).count();
    let mut out = format!("asserts: {held} of {} hold\n", outcomes.len());
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
    use crate::report::fixture::{record, run};
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
        let text = table(&experiment(two(), &[]), Glyphs::Ascii);
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
        runs[1].params.insert("fleet.page".into(), json!(16));
        let text = table(&experiment(runs, &[]), Glyphs::Ascii);
        assert!(text.contains("> best") && !text.contains("vs."), "{text}");
    }

    #[test]
    fn failed_asserts_are_listed_with_what_was_measured() {
        let claims = [
            Assertion::new("hit_rate", "cache_aware", None, ">=", 0.9, None).unwrap(),
            Assertion::new("hit_rate", "cache_aware", None, ">=", 0.8, None).unwrap(),
        ];
        let text = table(&experiment(two(), &claims), Glyphs::Unicode);
        assert!(text.contains("asserts: 1 of 2 hold"), "{text}");
        assert!(
            text.contains("FAILED  cache_aware (virtual): hit_rate at least 90 %; measured 81 %"),
            "{text}"
        );
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
            let text = table(&experiment(runs.clone(), &[]), glyphs);
            let widest = text.lines().map(|l| l.chars().count()).max().unwrap();
            assert!(widest <= 100, "{widest}\n{text}");
            assert!(text.contains("kv_tokens=5000000"), "{text}");
        }
    }
}
