//! As much of PromQL as tells which metrics an expression reads, and by which labels.

/// A metric of an expression, with the labels that it is selected by: name, operator, value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) matchers: Vec<(String, String, String)>,
}

/// What an expression reads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) selectors: Vec<Selector>,
    /// Labels of `by (…)` and `on (…)`.
    pub(super) grouping: Vec<String>,
}

const GROUPING: [&str; 4] = ["by", "without", "on", "ignoring"];
const OPERATORS: [&str; 7] = ["or", "and", "unless", "bool", "offset", "group_left", "group_right"];

/// Reads an expression. A word before a bracket is a function, and every other one a metric.
pub(super) fn read(expr: &str) -> Read {
    let mut read = Read::default();
    let mut rest = expr;
    while let Some(start) =
        rest.find(|char: char| char.is_ascii_alphabetic() || matches!(char, '[' | '"' | '_'))
    {
        rest = &rest[start..];
        if rest.starts_with('[') {
            rest = rest.split_once(']').expect("an end of the range").1;
            continue;
        }
        assert!(!rest.starts_with('"'), "a string outside a selector: {expr}");
        let end = rest.find(|char: char| !is_word(char)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after.trim_start();
        if GROUPING.contains(&word) {
            let (labels, after) = rest[1..].split_once(')').expect("an end of the labels");
            read.grouping.extend(labels.split(',').map(|label| label.trim().to_owned()));
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('{') {
            let (matchers, after) = inner.split_once('}').expect("an end of the selector");
            read.selectors.push(Selector { name: word.to_owned(), matchers: matchers_of(matchers) });
            rest = after;
        } else if !is_function(rest) && !OPERATORS.contains(&word) && !is_duration(expr, word, after) {
            read.selectors.push(Selector { name: word.to_owned(), matchers: Vec::new() });
        }
    }
    read
}

fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | ':')
}

/// By what follows: arguments, or the labels that it groups by.
fn is_function(rest: &str) -> bool {
    let next = rest.find(|char| !is_word(char)).map_or(rest, |end| &rest[..end]);
    rest.starts_with('(') || ["by", "without"].contains(&next)
}

/// The unit of `offset 10m` begins after digits.
fn is_duration(expr: &str, word: &str, after: &str) -> bool {
    let start = expr.len() - after.len() - word.len();
    expr[..start].ends_with(|char: char| char.is_ascii_digit())
}

fn matchers_of(text: &str) -> Vec<(String, String, String)> {
    let parts: Vec<&str> = text.split('"').collect();
    let matcher = |pair: &[&str]| {
        let left = pair[0].trim_start_matches(',').trim();
        let (label, operator) = left.split_at(left.find(|char| !is_word(char)).expect("an operator"));
        (label.to_owned(), operator.to_owned(), pair[1].to_owned())
    };
    parts.chunks_exact(2).map(matcher).collect()
}

#[test]
fn metrics_labels_and_grouping_are_found() {
    let expr = r#"histogram_quantile(0.9, sum by (le, x) (rate(a_b{job="$job",c=~"d|e"}[$__rate_interval]))) > bool 1
        or up * 0 and rate(n:m[6h] offset 10m) > 2"#;
    let found = read(expr);
    let names: Vec<&str> = found.selectors.iter().map(|selector| selector.name.as_str()).collect();
    assert_eq!(names, ["a_b", "up", "n:m"]);
    let matcher = |label: &str, operator: &str, value: &str| (label.into(), operator.into(), value.into());
    assert_eq!(found.selectors[0].matchers, [matcher("job", "=", "$job"), matcher("c", "=~", "d|e")]);
    assert_eq!(found.grouping, ["le", "x"]);
}
