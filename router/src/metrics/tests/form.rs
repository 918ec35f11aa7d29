//! The text is in the format that scrapers read.

use std::collections::BTreeSet;

use super::*;

/// A family of the text: its kind, and its samples in order, as series and value.
pub(super) struct Family<'a> {
    pub(super) kind: &'a str,
    pub(super) samples: Vec<(&'a str, f64)>,
}

/// Reads the text as strictly as a scraper may: every family is described once, before its samples, which follow at
/// once and bear its name with the suffix of its kind. The older format's counters are described with it, too.
pub(super) fn parse(format: Format, text: &str) -> BTreeMap<&str, Family<'_>> {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    let mut series = BTreeSet::new();
    let (mut current, mut helped) = ("", "");
    let body = match format {
        Format::OpenMetrics => text.strip_suffix("# EOF\n").expect("the end is marked"),
        Format::Plain => text,
    };
    assert!(body.ends_with('\n') && !body.contains("EOF"));
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').expect("a text").0;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a kind");
            assert_eq!(helped, name, "help comes before the type");
            current = name;
            assert!(families.insert(name, Family { kind, samples: Vec::new() }).is_none(), "{name} twice");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample");
            let name = sample.split('{').next().expect("a name");
            let family = families.get_mut(current).expect("a described family");
            let suffixes: &[&str] = match family.kind {
                "counter" if format == Format::OpenMetrics => &["_total"],
                "counter" => &[""],
                "gauge" => &[""],
                "histogram" => &["_sum", "_count", "_bucket"],
                kind => panic!("{current} is a {kind}"),
            };
            let suffix = name.strip_prefix(current).expect("the family's name");
            assert!(suffixes.contains(&suffix), "{name} in a {}", family.kind);
            assert!(series.insert(sample), "{sample} twice");
            family.samples.push((sample, value.parse().expect("a number")));
        }
    }
    families
}

#[test]
fn buckets_are_cumulative_and_end_with_the_count() {
    let counters = counters();
    happen(&counters, Some("m"));
    for format in [Format::Plain, Format::OpenMetrics] {
        let text = counters.render_as(format, 0..2);
        let families = parse(format, &text);
        let histograms = families.iter().filter(|(_, family)| family.kind == "histogram");
        let checked: usize = histograms.map(|(name, family)| check_buckets(name, family)).sum();
        assert!(checked > 8, "{checked} histograms");
    }
}

/// How many histograms the family has.
fn check_buckets(name: &str, family: &Family<'_>) -> usize {
    let (mut bound, mut total) = (0.0, 0.0);
    let (mut totals, mut counts) = (Vec::new(), Vec::new());
    for (series, value) in &family.samples {
        if series.starts_with(&format!("{name}_count")) {
            counts.push(value.to_bits());
        } else if series.starts_with(&format!("{name}_bucket")) {
            let (_, rest) = series.split_once("le=\"").expect("a bound");
            let le: f64 = rest.split('"').next().expect("a value").parse().expect("a number");
            assert!(le > bound && *value >= total, "{series}");
            (bound, total) = (le, *value);
            if le.is_infinite() {
                totals.push(value.to_bits());
                (bound, total) = (0.0, 0.0);
            }
        }
    }
    // Both in the order of the histograms.
    assert_eq!(totals, counts, "{name}");
    counts.len()
}
