//! A comparison as JUnit XML: a test case per figure of a cell, so that CI systems show which of them failed.

use std::fmt::Write as _;

use super::comparison::{Comparison, Row, Verdict};

/// The text of the file.
#[must_use]
pub(crate) fn junit(comparison: &Comparison) -> String {
    let errors = comparison.count(Verdict::TooFew) + comparison.count(Verdict::Invalid);
    let failures = comparison.rows.iter().filter(|row| row.fails()).count();
    let totals = format!("tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\"", comparison.rows.len());
    let scenario = escaped(&comparison.scenario);
    let mut to = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {totals}>\n  <testsuite name=\"{scenario}\" {totals}>\n"
    );
    for row in &comparison.rows {
        let _ = write!(
            to,
            "    <testcase classname=\"{scenario}.{}\" name=\"{}\"",
            escaped(&row.cell),
            escaped(&row.metric)
        );
        to.push_str(&result(row));
    }
    to.push_str("  </testsuite>\n</testsuites>\n");
    to
}

/// The rest of a test case.
fn result(row: &Row) -> String {
    let tag = match row.verdict {
        _ if row.fails() => "failure",
        Verdict::TooFew | Verdict::Invalid => "error",
        _ => return "/>\n".to_owned(),
    };
    let (kind, message) = (escaped(row.verdict.words()), escaped(&row.to_string()));
    format!(">\n      <{tag} type=\"{kind}\" message=\"{message}\"/>\n    </testcase>\n")
}

/// A text as the value of an attribute. What XML 1.0 cannot hold at all becomes a question mark.
fn escaped(text: &str) -> String {
    let mut to = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => to.push_str("&amp;"),
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '"' => to.push_str("&quot;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(to, "&#{};", u32::from(c));
            }
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => to.push('?'),
            c => to.push(c),
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fixture::{cell, snapshot};
    use crate::gate::{Rules, compare};
    use crate::run::World;

    #[test]
    fn every_figure_is_a_case_and_what_fails_says_why() {
        let of = |hit: f64, live: &[f64]| {
            let cells = [
                ("a&\"b\"", World::Virtual, &[hit][..]),
                ("q", World::Virtual, &[0.5]),
                ("l", World::Live, live),
            ];
            snapshot(cells.map(|(policy, world, values)| cell(world, policy, "hit_rate", values)).into())
        };
        let comparison = compare(&of(0.5, &[0.5]), &of(0.25, &[0.5]), &Rules::default()).unwrap();
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" errors="1">
  <testsuite name="s" tests="3" failures="1" errors="1">
    <testcase classname="s.a&amp;&quot;b&quot; (virtual)" name="hit_rate">
      <failure type="worse" message="a&amp;&quot;b&quot; (virtual) hit_rate: 50 % → 25 % (-25.00 points), worse"/>
    </testcase>
    <testcase classname="s.l (live)" name="hit_rate">
      <error type="too few repeats" message="l (live) hit_rate: 50 % → 50 % (0), too few repeats"/>
    </testcase>
    <testcase classname="s.q (virtual)" name="hit_rate"/>
  </testsuite>
</testsuites>
"#;
        assert_eq!(junit(&comparison), expected);
        let better = compare(&of(0.25, &[0.5; 5]), &of(0.5, &[0.5; 5]), &Rules::default()).unwrap();
        let text = junit(&better);
        assert!(text.contains("failures=\"1\" errors=\"0\""), "{text}");
        assert!(text.contains("<failure type=\"better\""), "in virtual time every change fails: {text}");
    }

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(escaped("a\u{1}<\n>\u{fffe}é"), "a?&lt;&#10;&gt;?é");
    }
}
