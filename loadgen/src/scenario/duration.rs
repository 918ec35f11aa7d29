//! Spans of time as they are typed: a number and a unit, `"1.5s"`.

/// Longest span that a scenario may name: about 31 years, so that sums stay far from overflow.
const LONGEST_NS: f64 = 1e18;

/// The units and their nanoseconds. Longer names stand before the names they end with.
const UNITS: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

/// What a duration looks like, for messages.
pub(super) const SYNTAX: &str = "write a number and a unit, such as \"1.5s\" (ns, us, ms, s, m, h)";

/// The nanoseconds of `text`, rounded; `None` when it is not a number with a unit or is out of range.
pub(super) fn parse_ns(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (digits, unit) = text.split_at(split);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    let number: f64 = digits.parse().ok()?;
    let ns = (number * scale).round();
    (ns <= LONGEST_NS).then_some(ns as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ns) in [
            ("1.5s", Some(1_500_000_000)),
            ("0.2ms", Some(200_000)),
            ("3 ms", Some(3_000_000)),
            ("7us", Some(7_000)),
            ("7µs", Some(7_000)),
            ("0s", Some(0)),
            ("2m", Some(120_000_000_000)),
            ("1h", Some(3_600_000_000_000)),
            ("1.5", None),
            ("s", None),
            ("-1s", None),
            ("1e3s", None),
            ("1..5s", None),
            ("1 day", None),
            ("999999999999h", None),
            ("", None),
        ] {
            assert_eq!(parse_ns(text), ns, "{text}");
        }
    }
}
