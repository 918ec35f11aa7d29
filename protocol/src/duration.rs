//! Spans of time as they are typed: a number and a unit, `1.5s`. One grammar for command lines and scenario files.

use thiserror::Error;

/// Longest span that can be written: about 31 years, so that sums stay far from overflow.
const LONGEST_NS: f64 = 1e18;

/// The units and their nanoseconds. Both characters that look like a micro sign are taken.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// What a duration looks like, for messages.
pub const SYNTAX: &str = "write a number and a unit, such as 1.5s (ns, us, ms, s, m, h)";

/// Why a text is no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Not a number with a unit, or below zero.
    #[error("{SYNTAX}")]
    Syntax,
    /// A span of more than 31 years.
    #[error("the duration is too long; the longest is 277777h")]
    TooLong,
}

/// The nanoseconds of `text`, rounded. White space is allowed around the number and around the unit.
///
/// # Errors
/// [`DurationError`], whose text says what to write instead.
pub fn parse_ns(text: &str) -> Result<u64, DurationError> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(DurationError::Syntax)?;
    let (digits, unit) = text.split_at(split);
    let (_, scale) =
        UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or(DurationError::Syntax)?;
    let number: f64 = digits.parse().map_err(|_| DurationError::Syntax)?;
    let ns = (number * scale).round();
    if ns <= LONGEST_NS { Ok(ns as u64) } else { Err(DurationError::TooLong) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit() {
        for (text, ns) in [
            ("1.5s", 1_500_000_000),
            ("0.2ms", 200_000),
            ("3 ms", 3_000_000),
            (" 3ms ", 3_000_000),
            ("7us", 7_000),
            ("7\u{b5}s", 7_000),
            ("7\u{3bc}s", 7_000),
            ("0s", 0),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("277777h", 999_997_200_000_000_000),
        ] {
            assert_eq!(parse_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_none_says_why() {
        for text in ["1.5", "s", "-1s", "1e3s", "1..5s", ".s", "1 day", "1 5s", ""] {
            assert_eq!(parse_ns(text), Err(DurationError::Syntax), "{text}");
        }
        assert_eq!(parse_ns("999999999999h"), Err(DurationError::TooLong));
    }
}
