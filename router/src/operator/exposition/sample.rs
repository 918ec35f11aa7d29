//! One line of Prometheus' text format.

/// A sample: `name{label="value",…} number`. Values of labels stay escaped as they came.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    pub(super) labels: Vec<(&'a str, &'a str)>,
    pub(super) value: &'a str,
}

impl<'a> Sample<'a> {
    /// Reads a line without leading or trailing white space; `None` if it is not of the format.
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let (name, rest) = line.split_at(line.find(['{', ' ', '\t'])?);
        if !is_name(name) {
            return None;
        }
        let mut labels = Vec::new();
        let rest = match rest.trim_start().strip_prefix('{') {
            Some(inside) => read_labels(inside, &mut labels)?,
            None => rest,
        };
        let mut words = rest.split_ascii_whitespace();
        let value = words.next().filter(|value| value.parse::<f64>().is_ok())?;
        // A timestamp may follow, and in OpenMetrics an exemplar behind `#`.
        let is_over = match words.next() {
            None | Some("#") => true,
            Some(time) => time.parse::<f64>().is_ok() && matches!(words.next(), None | Some("#")),
        };
        is_over.then_some(Self { name, labels, value })
    }
}

/// Whether it can name a metric.
pub(super) fn is_name(text: &str) -> bool {
    is_word(text, |byte| byte == b':')
}

fn is_label(text: &str) -> bool {
    is_word(text, |_| false)
}

/// Letters, digits, `_` and what else is allowed, not beginning with a digit.
fn is_word(text: &str, also: impl Fn(u8) -> bool) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || also(byte);
    text.bytes().all(fits) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Reads what stands between the braces; what follows them.
fn read_labels<'a>(mut text: &'a str, labels: &mut Vec<(&'a str, &'a str)>) -> Option<&'a str> {
    loop {
        text = text.trim_start();
        if let Some(rest) = text.strip_prefix('}') {
            return Some(rest);
        }
        let (label, rest) = text.split_once('=')?;
        let label = label.trim_end();
        let inside = rest.trim_start().strip_prefix('"')?;
        let (value, rest) = inside.split_at(closing_quote(inside)?);
        if !is_label(label) || labels.iter().any(|(known, _)| *known == label) {
            return None;
        }
        labels.push((label, value));
        let rest = rest[1..].trim_start();
        text = match rest.strip_prefix(',') {
            Some(more) => more,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

/// Where a value ends whose opening quote has been read; `None` if it does not, or escapes what has no escape.
fn closing_quote(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    loop {
        match bytes.next()? {
            (at, b'"') => return Some(at),
            (_, b'\\') => match bytes.next()?.1 {
                b'\\' | b'"' | b'n' => {}
                _ => return None,
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_the_format_is_read() {
        for (line, name, labels, value) in [
            ("a 1", "a", &[][..], "1"),
            ("sglang:x{} -2.5e-3", "sglang:x", &[], "-2.5e-3"),
            ("a{b=\"c\"}1", "a", &[("b", "c")], "1"),
            ("a{b=\"c\",} +Inf", "a", &[("b", "c")], "+Inf"),
            ("a { b = \"c\" , d = \"\" } NaN 1700000000000", "a", &[("b", "c"), ("d", "")], "NaN"),
            (r#"a{b="x\"y\\z\n}, =ä"} 7"#, "a", &[("b", r#"x\"y\\z\n}, =ä"#)], "7"),
            (r#"a_bucket{le="1"} 3 # {id="q"} 0.5 1.5"#, "a_bucket", &[("le", "1")], "3"),
            (r#"a_bucket{le="1"} 3 1.5 # {id="q"} 0.5"#, "a_bucket", &[("le", "1")], "3"),
        ] {
            let sample = Sample::parse(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((sample.name, &sample.labels[..], sample.value), (name, labels, value), "{line}");
        }
    }

    #[test]
    fn what_is_not_is_none() {
        for line in [
            "a",
            "a ",
            "a b",
            "1a 1",
            " 1",
            "{a=\"b\"} 1",
            "a{b=\"c\" 1",
            "a{b=\"c} 1",
            "a{b=c} 1",
            "a{b} 1",
            "a{=\"c\"} 1",
            "a{1b=\"c\"} 1",
            "a{b:=\"c\"} 1",
            "a{b=\"c\";d=\"e\"} 1",
            "a{b=\"c\" d=\"e\"} 1",
            "a{b=\"1\",b=\"2\"} 1",
            "a{b=\"\\x\"} 1",
            "a{b=\"c\"}",
            "a 1 2 3",
            "a 1 x",
            "<html> <body>",
            "ä 1",
        ] {
            assert_eq!(Sample::parse(line), None, "{line}");
        }
    }
}
