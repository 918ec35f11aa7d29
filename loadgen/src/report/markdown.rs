//! `summary.md`: what came out, as a page that a CI run can show.

use std::fmt::Write as _;

use super::assertion::Verdict;
use super::best::is_best;
use super::experiment::{Conclusion, Experiment};
use super::metric::Metric;
use super::variant::{Variant, label, worlds};
use crate::run::World;

/// Most settings that are listed; the report has all of them.
const MOST_ROWS: usize = 40;

/// Heading and metric.
const COLUMNS: [(&str, &str); 8] = [
    ("input tok/s", "input_tok_s"),
    ("output tok/s", "output_tok_s"),
    ("hit rate %", "hit_rate"),
    ("TTFT p50 ms", "ttft_ms.p50"),
    ("TTFT p99 ms", "ttft_ms.p99"),
    ("E2E p50 ms", "e2e_ms.p50"),
    ("imbalance", "imbalance"),
    ("failed", "failed"),
];

/// The headings of figures that runs are made for.
const ASKED: [(&str, &str); 3] =
    [("TTFT p90 ms", "ttft_ms.p90"), ("within objectives %", "slo_attainment"), ("hit rate %", "hit_rate")];

/// The page.
pub(super) fn summary(experiment: &Experiment) -> String {
    let variants = experiment.variants();
    let mut out = format!("# {}\n\n", escaped(&experiment.about().name));
    out.push_str(&verdict(experiment));
    let conclusion = experiment.about().conclusion.as_ref();
    out.push_str(&conclusion.map_or_else(String::new, before_after));
    let asked = conclusion.and_then(|found| found.metric);
    for world in worlds(&variants) {
        out.push_str(&table(&variants, world, asked));
    }
    out
}

fn verdict(experiment: &Experiment) -> String {
    let outcomes = experiment.outcomes();
    let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    let (held, failed) = (count(Verdict::Held), count(Verdict::Failed));
    let mut out = match (held + failed, &experiment.about().conclusion) {
        (0, Some(found)) => format!("**{}.** {}\n", escaped(&found.headline), escaped(&found.reasons)),
        (0, None) => "No asserts were checked.\n".to_owned(),
        (checked, _) => format!("**{held} of {checked} asserts hold.**\n"),
    };
    for outcome in outcomes.iter().filter(|outcome| outcome.failed()) {
        let _ = writeln!(out, "* FAILED {}", escaped(&outcome.to_string()));
    }
    for (word, texts) in experiment.remarks() {
        for text in texts {
            let _ = writeln!(out, "* {word} {}", escaped(text));
        }
    }
    out
}

/// What an answer costs.
fn before_after(found: &Conclusion) -> String {
    if found.before_after.is_empty() {
        return String::new();
    }
    let [before, after] = found.columns;
    let mut out = format!("\n| | {before} | {after} |\n|---|--:|--:|\n");
    for row in &found.before_after {
        let _ = writeln!(out, "| {} | {} | {} |", row.name, row.before, row.after);
    }
    out
}

/// `asked` is the figure that the runs were made for: it comes first.
fn table(variants: &[Variant<'_>], world: World, asked: Option<&'static str>) -> String {
    let mine: Vec<&Variant<'_>> = variants.iter().filter(|v| v.world == world).collect();
    let seeds = mine.iter().map(|v| v.seeds()).max().unwrap_or(0);
    let over = match seeds {
        1 => "one seed".to_owned(),
        seeds => format!("medians of {seeds} seeds (mean ± 95 % interval)"),
    };
    let asked = asked.and_then(|name| ASKED.iter().find(|(_, asked)| *asked == name));
    let others = COLUMNS.iter().filter(|(_, name)| asked.is_none_or(|(_, asked)| asked != name));
    let columns: Vec<(&str, &Metric)> = asked
        .into_iter()
        .chain(others)
        .filter_map(|(heading, name)| Some((*heading, Metric::named(name)?)))
        .collect();
    let headings: String = columns.iter().map(|(heading, _)| format!(" {heading} |")).collect();
    let mut out = format!(
        "\n## {}, {over}\n\n| policy |{headings}\n|---|{}\n",
        world.label(),
        "--:|".repeat(columns.len())
    );
    for variant in mine.iter().take(MOST_ROWS) {
        let mark = if is_best(variants, variant) { "**" } else { "" };
        let _ = write!(out, "| {mark}{}{mark} |", escaped(&label(variants, variant)));
        columns.iter().for_each(|(_, metric)| {
            let _ = write!(out, " {} |", cell(variant, metric));
        });
        out.push('\n');
    }
    if mine.len() > MOST_ROWS {
        let _ =
            writeln!(out, "\n{} more settings are in report.html and summary.csv.", mine.len() - MOST_ROWS);
    }
    out
}

fn cell(variant: &Variant<'_>, metric: &Metric) -> String {
    let Some(spread) = variant.spread(metric) else { return "–".to_owned() };
    let median = metric.cell(spread.median);
    match variant.interval(metric).filter(|_| spread.min < spread.max) {
        Some(interval) => {
            let (mean, reach) = metric.around(interval);
            format!("{median} ({mean}\u{2009}±\u{2009}{reach})")
        }
        None => median,
    }
}

/// Text that stays text in a cell of a table.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '|' | '*' | '_' | '`' | '[' | '\\' => out.extend(['\\', c]),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::fixture::{disturbed, record, run};
    use crate::report::{About, Assertion, BeforeAfter};
    use crate::run::Run;

    #[test]
    fn an_answer_comes_first_with_what_it_costs_and_the_figure_that_was_asked_for() {
        let found = Conclusion {
            headline: "Recommended: x".into(),
            reasons: "TTFT is shorter.".into(),
            metric: Some("ttft_ms.p90"),
            columns: ["present", "recommended"],
            before_after: vec![BeforeAfter { name: "hit rate %", before: "40".into(), after: "44".into() }],
            ..Conclusion::default()
        };
        let about = About { name: "a".into(), conclusion: Some(found), ..About::default() };
        let one = record(0).tokens(100, 40, 1).first_ms(5).last_ms(10).worker(0).build();
        let text = summary(&Experiment::new(about, vec![run("random", vec![one])], None, &[], Value::Null));
        assert!(text.starts_with("# a\n\n**Recommended: x.** TTFT is shorter.\n"), "{text}");
        assert!(
            text.contains("| | present | recommended |") && text.contains("| hit rate % | 40 | 44 |"),
            "{text}"
        );
        assert!(text.contains("| policy | TTFT p90 ms | input tok/s |"), "{text}");
    }

    #[test]
    fn a_disturbed_comparison_has_its_table_and_nothing_in_bold() {
        let one = |policy, last_ms| run(policy, vec![record(0).first_ms(5).last_ms(last_ms).build()]);
        let page = |of: fn(Run) -> Run| {
            let runs = [one("random", 10), one("bucket", 20)].map(of).into();
            summary(&Experiment::new(About::default(), runs, None, &[], Value::Null))
        };
        assert!(page(|run| run).contains("| **random** |"));
        let text = page(disturbed);
        assert!(text.contains("\n* DISTURBED live random seed 1: something else had"), "{text}");
        assert!(text.contains("| random |") && !text.contains("**"), "{text}");
    }

    #[test]
    fn seeds_have_an_interval_and_broken_asserts_are_named() {
        let with = |seed, cached| {
            let only = record(0).tokens(100, cached, 1).first_ms(5).last_ms(10).worker(0).build();
            let mut run = run("cache_aware", vec![only]);
            run.seed = seed;
            run
        };
        let claims = [Assertion::new("hit_rate", "cache_aware", None, ">=", 0.9, None).unwrap()];
        let about = About { name: "a|b".into(), ..About::default() };
        let experiment = Experiment::new(about, vec![with(1, 40), with(2, 60)], None, &claims, Value::Null);
        let text = summary(&experiment);
        assert!(text.starts_with("# a\\|b\n\n**0 of 1 asserts hold.**\n* FAILED cache\\_aware"), "{text}");
        // The mean is 50 %, the deviation 14.1 points, and t for one degree of freedom 12.7.
        assert!(text.contains("| 50.0 (50.0\u{2009}±\u{2009}127.1) |"), "{text}");
        assert!(text.contains("medians of 2 seeds"), "{text}");
    }
}
