//! A strict reader of Prometheus' text format 0.0.4: what it takes, Prometheus takes without a warning.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::common::Message;

type Labels = Vec<(String, String)>;
/// Bounds with their counts, and the count of all.
type Buckets = (Vec<(f64, f64)>, Option<f64>);

struct Sample {
    name: String,
    labels: Labels,
    value: f64,
}

/// Checks an answer: its content type and every line.
pub(super) fn assert_valid(page: &Message) {
    assert_eq!(page.status(), 200, "{}", page.text());
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    if let Err(problem) = check(&page.text()) {
        panic!("{problem}\n{}", page.text());
    }
}

fn check(text: &str) -> Result<(), String> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    let mut kinds: HashMap<String, String> = HashMap::new();
    let mut helped = HashSet::new();
    let mut families: Vec<(String, Vec<Sample>)> = Vec::new();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            let name = said.split(' ').next().unwrap_or_default();
            named(name)?;
            if !helped.insert(name.to_owned()) || families.iter().any(|(family, _)| family == name) {
                return Err(format!("second or late: {line}"));
            }
        } else if let Some(said) = line.strip_prefix("# TYPE ") {
            let (name, kind) = said.split_once(' ').ok_or(line)?;
            named(name)?;
            if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&kind) {
                return Err(format!("no such type: {line}"));
            }
            if kinds.insert(name.to_owned(), kind.to_owned()).is_some() {
                return Err(format!("second: {line}"));
            }
            families.push((name.to_owned(), Vec::new()));
        } else if line.starts_with('#') {
            continue;
        } else {
            let sample = sample(line).ok_or_else(|| format!("no sample: {line}"))?;
            named(&sample.name)?;
            let (family, samples) = families.last_mut().ok_or_else(|| format!("without a type: {line}"))?;
            if !belongs(&sample, family, &kinds[family.as_str()]) {
                return Err(format!("within another family, {family}: {line}"));
            }
            samples.push(sample);
        }
    }
    for (family, samples) in &families {
        let mut seen = HashSet::new();
        for one in samples {
            let mut labels = one.labels.clone();
            labels.sort();
            if !seen.insert((one.name.clone(), labels)) {
                return Err(format!("twice in {family}: {} {:?}", one.name, one.labels));
            }
        }
        if kinds[family] == "histogram" {
            histogram(family, samples)?;
        }
    }
    Ok(())
}

fn named(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = name.chars().all(fits) && name.starts_with(|c: char| !c.is_ascii_digit());
    if fits { Ok(()) } else { Err(format!("no name for a metric of an exporter: {name}")) }
}

fn belongs(sample: &Sample, family: &str, kind: &str) -> bool {
    let Some(suffix) = sample.name.strip_prefix(family) else { return false };
    match kind {
        "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
        "summary" => ["", "_sum", "_count"].contains(&suffix),
        _ => suffix.is_empty(),
    }
}

/// Buckets of each series rise, and the last is the count.
fn histogram(family: &str, samples: &[Sample]) -> Result<(), String> {
    let mut series: BTreeMap<Labels, Buckets> = BTreeMap::new();
    for one in samples {
        let mut labels = one.labels.clone();
        let bound = labels.iter().position(|(label, _)| label == "le").map(|at| labels.remove(at).1);
        let row = series.entry(labels).or_default();
        if one.name.ends_with("_bucket") {
            let bound =
                bound.and_then(|text| text.parse().ok()).ok_or(format!("a bucket of {family} without le"))?;
            row.0.push((bound, one.value));
        } else if one.name.ends_with("_count") {
            row.1 = Some(one.value);
        }
    }
    for (labels, (buckets, count)) in series {
        let rises = buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
        let last = buckets.last().copied();
        if !rises
            || last.map(|(bound, _)| bound) != Some(f64::INFINITY)
            || last.map(|(_, value)| value) != count
        {
            return Err(format!("buckets of {family} {labels:?}: {buckets:?}, count {count:?}"));
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<Sample> {
    let at = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(at);
    let mut labels = Labels::new();
    let rest = match rest.strip_prefix('{') {
        None => rest,
        Some(mut inside) => loop {
            if let Some(rest) = inside.strip_prefix('}') {
                break rest;
            }
            let (label, rest) = inside.split_once("=\"")?;
            let is_word = label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if !is_word || labels.iter().any(|(known, _)| known == label) {
                return None;
            }
            let (value, rest) = quoted(rest)?;
            labels.push((label.to_owned(), value));
            inside = rest.strip_prefix(',').unwrap_or(rest);
        },
    };
    let value = rest.strip_prefix(' ')?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            (_, c) => value.push(c),
        }
    }
}

#[test]
fn the_reader_is_strict() {
    let good = "# HELP a b\n# TYPE a gauge\na{x=\"1\\\"\"} 1\n# TYPE t histogram\nt_bucket{le=\"1\"} 1\nt_bucket{le=\"+Inf\"} 2\nt_sum 3\nt_count 2\n";
    assert_eq!(check(good), Ok(()));
    for bad in [
        "a 1\n",
        "# TYPE a gauge\na 1",
        "# TYPE a gauge\na 1\na 2\n",
        "# TYPE a gauge\nb 1\n",
        "# TYPE a gauge\n# TYPE b gauge\na 1\n",
        "# TYPE a gauge\n# TYPE a gauge\na 1\n",
        "# TYPE a:b gauge\na:b 1\n",
        "# TYPE a gauge\na{x=\"1\",x=\"2\"} 1\n",
        "# TYPE a gauge\na{x=\"1} 1\n",
        "# TYPE a gauge\na one\n",
        "# TYPE t histogram\nt_bucket{le=\"1\"} 3\nt_bucket{le=\"+Inf\"} 2\nt_count 2\n",
        "# TYPE t histogram\nt_bucket{le=\"1\"} 1\nt_count 1\n",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
