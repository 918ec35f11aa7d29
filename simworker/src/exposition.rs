//! Lines of Prometheus' text format.

use std::fmt::Write;

use crate::latency::Histogram;

// Writing to a string cannot fail.

/// What comes before the samples of a name. `kind` is the format's word for its type.
pub(crate) fn describe(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// One sample.
pub(crate) fn sample(text: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(text, "{name}{{{labels}}} {value}");
}

/// One series of a histogram.
pub(crate) fn histogram(text: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    for (bound, count) in histogram.cumulative() {
        let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
    }
    sums(text, name, labels, histogram.sum(), histogram.count());
}

/// What a histogram and a summary have in common.
pub(crate) fn sums(text: &mut String, name: &str, labels: &str, sum: f64, count: u64) {
    let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
}

/// A label's value.
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let mut all = Histogram::new(&[0.5, 1.0]);
        all.observe_value(0.5, 1);
        all.observe_value(3.0, 2);
        let mut text = String::new();
        describe(&mut text, "x", "histogram", "Help.");
        histogram(&mut text, "x", &format!("a=\"{}\"", escape("q\"")), &all);
        let expected = r#"# HELP x Help.
# TYPE x histogram
x_bucket{a="q\"",le="0.5"} 1
x_bucket{a="q\"",le="1.0"} 1
x_bucket{a="q\"",le="+Inf"} 3
x_sum{a="q\""} 6.5
x_count{a="q\""} 3
"#;
        assert_eq!(text, expected);
    }
}
