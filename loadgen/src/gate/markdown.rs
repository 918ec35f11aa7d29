//! A comparison as Markdown, for a terminal and for the summary of a CI job.

use std::fmt::Write as _;

use super::comparison::{Comparison, Outcome, Row, Verdict};
use super::figures;
use crate::run::World;

/// Most rows of the table; the JSON file has all of them.
const MOST_ROWS: usize = 40;

/// The table of what is to be told, and a count of the rest. `remedy` is the command that records the run as the baseline;
/// none where that was done.
#[must_use]
pub(crate) fn markdown(comparison: &Comparison, remedy: Option<&str>) -> String {
    let mut to = match remedy {
        Some(_) => format!("### Gate {}: {}\n\n", comparison.scenario, comparison.outcome().word()),
        None => format!("### Baseline {}: recorded anew\n\n", comparison.scenario),
    };
    let told: Vec<&Row> = comparison.rows.iter().filter(|row| !row.verdict.is_quiet()).collect();
    if !told.is_empty() {
        to.push_str("| cell | figure | before | after | difference | 95 % of after / before | verdict |\n");
        to.push_str("|---|---|---:|---:|---:|---:|---|\n");
    }
    for row in told.iter().take(MOST_ROWS) {
        let _ = writeln!(to, "{}", line(row));
    }
    if !told.is_empty() {
        to.push('\n');
    }
    if told.len() > MOST_ROWS {
        let _ = writeln!(to, "{} more rows are in the JSON file (`--json PATH`).\n", told.len() - MOST_ROWS);
    }
    let _ = writeln!(to, "{}", counts(comparison));
    let changed = comparison.rows.iter().any(|row| row.mode == World::Virtual && row.fails());
    if let Some(remedy) = remedy.filter(|_| changed) {
        let _ = writeln!(
            to,
            "\nIn virtual time every change fails, a better figure too. If it is meant, record it: `{remedy}`"
        );
    }
    if comparison.count(Verdict::TooFew) > 0 {
        let least = super::LEAST_REPEATS;
        let _ = writeln!(to, "\nLive figures need {least} repeats on both sides: `--seeds {least}`");
    }
    for note in &comparison.notes {
        let _ = writeln!(to, "\nNote: {note}.");
    }
    to
}

fn line(row: &Row) -> String {
    let unit = figures::unit(&row.metric);
    let (before, after) = figures::pair(row.before, row.after, unit);
    let interval = match (row.mode, row.interval) {
        (World::Virtual, _) => "exact".to_owned(),
        (World::Live, None) => "–".to_owned(),
        (World::Live, Some(interval)) => format!("{:.3} to {:.3}", interval.low, interval.high),
    };
    let difference = figures::difference(row.before, row.after, unit);
    let cells = [&row.cell, &row.metric, &before, &after, &difference, &interval];
    let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
    format!("| {} | {} |", cells.join(" | "), row.verdict.words())
}

/// A text that cannot end its cell or begin a tag.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

/// How many figures have each verdict.
fn counts(comparison: &Comparison) -> String {
    let counts = Verdict::ALL.map(|verdict| (comparison.count(verdict), verdict.words()));
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    format!("{} figures: {}.", comparison.rows.len(), counts.join(", "))
}

/// In one line what failed, or what cannot be told.
#[must_use]
pub(crate) fn brief(comparison: &Comparison) -> String {
    let told = |row: &&Row| match comparison.outcome() {
        Outcome::Failed => row.fails(),
        _ => !row.verdict.is_quiet(),
    };
    let rows: Vec<&Row> = comparison.rows.iter().filter(told).collect();
    let more = match rows.len().saturating_sub(1) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let first = rows.first().map_or(String::new(), ToString::to_string);
    format!("gate {} {}: {first}{more}", comparison.scenario, comparison.outcome().word())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fixture::{cell, snapshot};
    use crate::gate::{Rules, compare};

    fn of(world: World, policy: &str, before: &[f64], after: &[f64]) -> Comparison {
        let [before, after] = [before, after].map(|values| {
            let mut cell = cell(world, policy, "hit_rate", values);
            cell.figures.insert("failed".into(), vec![Some(0.0); values.len()]);
            snapshot(vec![cell])
        });
        compare(&before, &after, &Rules::default()).unwrap()
    }

    #[test]
    fn changes_are_rows_and_the_rest_is_a_count() {
        let text = markdown(&of(World::Virtual, "a|b<", &[0.5], &[0.25]), Some("record it"));
        let row = "| a\\|b&lt; (virtual) | hit_rate | 50 % | 25 % | -25.00 points | exact | worse |";
        assert!(text.starts_with("### Gate s: failed\n\n| cell |") && text.contains(row), "{text}");
        assert!(text.contains("2 figures: 1 worse, 1 unchanged.") && text.contains("`record it`"), "{text}");
        let text = markdown(&of(World::Virtual, "p", &[0.5], &[0.5]), Some("record it"));
        assert_eq!(text, "### Gate s: passed\n\n2 figures: 2 unchanged.\n");
    }

    #[test]
    fn live_rows_have_intervals_and_say_when_repeats_are_missing() {
        let text = markdown(&of(World::Live, "p", &[0.5; 5], &[0.25; 5]), Some("record"));
        assert!(text.contains("| 0.500 to 0.500 | worse |") && !text.contains("record"), "{text}");
        let text = markdown(&of(World::Live, "p", &[0.5; 5], &[0.25; 4]), Some("record"));
        assert!(text.contains("too few repeats") && text.contains("--seeds 5"), "{text}");
    }

    #[test]
    fn long_tables_are_cut_and_the_brief_names_the_worst() {
        let cells = |value: f64| {
            snapshot((0..60).map(|i| cell(World::Virtual, &format!("p{i}"), "hit_rate", &[value])).collect())
        };
        let comparison = compare(&cells(0.5), &cells(0.4), &Rules::default()).unwrap();
        let text = markdown(&comparison, None);
        assert!(text.starts_with("### Baseline s: recorded anew"), "{text}");
        assert!(text.contains("20 more rows") && text.lines().filter(|l| l.starts_with("| p")).count() == 40);
        assert_eq!(
            brief(&comparison),
            "gate s failed: p0 (virtual) hit_rate: 50 % → 40 % (-10.00 points), worse; and 59 more"
        );
    }
}
