//! Figures by name: their order, and how they read.

use std::cmp::Ordering;

use crate::report::{Better, METRICS, Metric};

/// Where a change leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To a better figure.
    Better,
    /// To a worse one.
    Worse,
    /// Nowhere, or the figure is no merit.
    Neither,
}

/// The place of a figure in `summary.json`; unknown ones come last.
pub(super) fn place(name: &str) -> usize {
    METRICS.iter().position(|metric| metric.name == name).unwrap_or(METRICS.len())
}

/// Names in the order of `summary.json`; unknown ones last, by name.
pub(super) fn in_order<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_by_key(|name| (place(name), *name));
    names
}

/// Which direction is an improvement; of an unknown figure none is.
pub(super) fn better(name: &str) -> Better {
    Metric::named(name).map_or(Better::Neither, |metric| metric.better)
}

/// Where the change from one value of a figure to another leads.
pub(super) fn direction(name: &str, before: f64, after: f64) -> Direction {
    match (better(name), after.partial_cmp(&before)) {
        (Better::Higher, Some(Ordering::Greater)) | (Better::Lower, Some(Ordering::Less)) => {
            Direction::Better
        }
        (Better::Higher, Some(Ordering::Less)) | (Better::Lower, Some(Ordering::Greater)) => Direction::Worse,
        _ => Direction::Neither,
    }
}

/// Its unit; empty for counts and unknown figures.
pub(super) fn unit(name: &str) -> &'static str {
    Metric::named(name).map_or("", |metric| metric.unit)
}

/// Two values as they read best: rounded, unless they would look alike.
pub(super) fn pair(before: Option<f64>, after: Option<f64>, unit: &str) -> (String, String) {
    let rounded = [before, after].map(|value| rounded(value, unit));
    if before != after && rounded[0] == rounded[1] {
        return (whole(before, unit), whole(after, unit));
    }
    let [before, after] = rounded;
    (before, after)
}

/// A value in the unit it is read in, and that unit.
fn readable(value: f64, unit: &str) -> (f64, &str) {
    if unit == "share" { (value * 100.0, "%") } else { (value, unit) }
}

fn rounded(value: Option<f64>, unit: &str) -> String {
    let Some((value, unit)) = value.map(|value| readable(value, unit)) else { return "–".into() };
    let decimals = match value.abs() {
        v if v.fract() == 0.0 || v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}").trim_end().to_owned()
}

fn whole(value: Option<f64>, unit: &str) -> String {
    let Some((value, unit)) = value.map(|value| readable(value, unit)) else { return "–".into() };
    format!("{value} {unit}").trim_end().to_owned()
}

/// How far one value is from another: in points for shares, otherwise in per cent where there is something to divide by.
pub(super) fn difference(before: Option<f64>, after: Option<f64>, unit: &str) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        return if before == after { String::new() } else { "not measured in one".into() };
    };
    let change = after - before;
    if change == 0.0 {
        return "0".into();
    }
    let (value, unit) = match unit {
        "share" => (change * 100.0, "points"),
        _ if before != 0.0 => (change / before.abs() * 100.0, "%"),
        unit => (change, unit),
    };
    let value = if value.abs() >= 0.005 { format!("{value:+.2}") } else { format!("{value:+.1e}") };
    format!("{value} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_unless_that_hides_the_difference() {
        let text = |before, after, unit| {
            let (from, to) = pair(Some(before), Some(after), unit);
            format!("{from} > {to} ({})", difference(Some(before), Some(after), unit))
        };
        assert_eq!(text(0.8691, 0.518, "share"), "86.91 % > 51.80 % (-35.11 points)");
        assert_eq!(text(2048.0, 2047.0, ""), "2048 > 2047 (-0.05 %)");
        assert_eq!(text(0.0, 3.0, ""), "0 > 3 (+3.00)");
        assert_eq!(text(112_008.3, 152_581.9, "tok/s"), "112008 tok/s > 152582 tok/s (+36.22 %)");
        assert_eq!(text(20.001, 20.002, "ms"), "20.001 ms > 20.002 ms (+5.0e-3 %)");
        assert_eq!(pair(None, Some(1.0), "ms"), ("–".into(), "1 ms".into()));
        assert_eq!(difference(None, Some(1.0), "ms"), "not measured in one");
    }

    #[test]
    fn a_change_has_the_direction_of_its_figure() {
        for (name, after, expected) in [
            ("hit_rate", 2.0, Direction::Better),
            ("hit_rate", 0.5, Direction::Worse),
            ("ttft_ms.p50", 2.0, Direction::Worse),
            ("ttft_ms.p50", 0.5, Direction::Better),
            ("ttft_ms.p50", 1.0, Direction::Neither),
            ("requests", 2.0, Direction::Neither),
        ] {
            assert_eq!(direction(name, 1.0, after), expected, "{name} {after}");
        }
    }

    #[test]
    fn order_is_that_of_the_summary() {
        let names = ["zeta", "ttft_ms.p50", "alpha", "requests"].map(str::to_owned);
        assert_eq!(in_order(names.iter()), ["requests", "ttft_ms.p50", "alpha", "zeta"]);
    }
}
