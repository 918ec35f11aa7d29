//! What single values may be: readers that say what is allowed.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Longest time in seconds that may be asked for, about three years: far from any overflow.
pub(super) const MAX_SECONDS: u64 = 100_000_000;

/// The same in milliseconds.
pub(super) const MAX_MS: u64 = MAX_SECONDS * 1_000;

pub(super) const NS_PER_MS: u64 = 1_000_000;
pub(super) const NS_PER_SECOND: u64 = 1_000_000_000;

/// Shortest time limit in seconds where fractions are allowed: what timers can keep.
const MIN_SECONDS: f64 = 0.001;

/// Reads a whole number; both ends of the range belong to it.
pub(crate) fn whole<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("not a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Reads a finite number; both ends of the range belong to it, an infinite end is none.
pub(super) fn number(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && range.contains(number));
        number.ok_or_else(|| {
            if range.end().is_finite() {
                format!("not a number from {} to {}", range.start(), range.end())
            } else {
                format!("not a number of {} or more", range.start())
            }
        })
    }
}

/// Reads seconds, with fractions.
pub(super) fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    let number = number(range.clone());
    move |text| match number(text) {
        Ok(seconds) => Ok(Duration::from_secs_f64(seconds)),
        Err(_) => Err(format!("not a number of seconds from {} to {}", range.start(), range.end())),
    }
}

/// Reads a time limit in seconds, with fractions.
pub(super) fn limit(text: &str) -> Result<Duration, String> {
    seconds(MIN_SECONDS..=MAX_SECONDS as f64)(text)
}

/// Reads a time limit that 0 switches off.
pub(super) fn limit_or_off(text: &str) -> Result<Option<Duration>, String> {
    if text.parse() == Ok(0.0) {
        return Ok(None);
    }
    limit(text).map(Some).map_err(|problem| format!("neither 0 nor {}", problem.trim_start_matches("not ")))
}

/// Reads the path of a URL.
pub(super) fn path(text: &str) -> Result<http::Uri, String> {
    match text.parse::<http::Uri>() {
        Ok(uri) if text.starts_with('/') && uri.authority().is_none() => Ok(uri),
        _ => Err("not a path that begins with /".to_owned()),
    }
}

/// The words of a flag that takes several: after one flag, after repeated flags, or in one argument.
pub(super) fn words(given: &[String]) -> impl Iterator<Item = &str> {
    given.iter().flat_map(|argument| argument.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_end_where_their_range_does() {
        assert_eq!((whole(1..=9)("1"), whole(1..=9)("9"), whole(-2..=9)("-2")), (Ok(1), Ok(9), Ok(-2)));
        for text in ["0", "10", "-1", "1.5", "", "much"] {
            assert_eq!(whole(1..=9)(text), Err("not a whole number from 1 to 9".to_owned()), "{text}");
        }
    }

    #[test]
    fn numbers_end_where_their_range_does() {
        for text in ["0", "0.2", "1", "1e-3", "-0"] {
            assert!(number(0.0..=1.0)(text).is_ok(), "{text}");
        }
        for text in ["-0.1", "1.1", "nan", "inf", "", "much", "1,5"] {
            assert_eq!(number(0.0..=1.0)(text), Err("not a number from 0 to 1".to_owned()), "{text}");
        }
        for text in ["0.9", "inf", "NaN"] {
            let refusal = Err("not a number of 1 or more".to_owned());
            assert_eq!(number(1.0..=f64::INFINITY)(text), refusal, "{text}");
        }
    }

    #[test]
    fn only_limits_that_can_be_off_take_zero() {
        assert_eq!(limit("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(limit("0"), Err("not a number of seconds from 0.001 to 100000000".to_owned()));
        assert_eq!(limit_or_off("0.25"), Ok(Some(Duration::from_millis(250))));
        assert_eq!(limit_or_off("0.0"), Ok(None));
        for text in ["0.0001", "-1", "1e300", "inf", "soon"] {
            let refusal = "neither 0 nor a number of seconds from 0.001 to 100000000";
            assert_eq!(limit_or_off(text), Err(refusal.to_owned()), "{text}");
        }
    }

    #[test]
    fn words_come_in_any_number_of_arguments() {
        let given = ["a b".to_owned(), " ".to_owned(), "c\n d".to_owned()];
        assert_eq!(words(&given).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }
}
