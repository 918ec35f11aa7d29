//! Times as text: dates with a time of day, and counts of a unit with its decimals.

use super::error::Mistake;

/// A second, the unit of some time stamps.
pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// A millisecond, the unit of others.
pub(super) const MS_NS: u64 = 1_000_000;
const DAY_S: u64 = 86_400;

/// Nanoseconds since 1970 of `2023-11-16 18:17:03.9799600` or `2024-05-12 00:00:00.001163+00:00`. The fraction, with at
/// most nine digits, and the offset from UTC may be missing.
pub(super) fn parse(text: &str) -> Result<u64, Mistake> {
    let wrong = || {
        let problem = format!("\"{}\" is not a time stamp", shortened(text));
        (problem, "write 2024-05-12 00:00:00.001163+00:00; fraction and offset may be missing")
    };
    parsed(text).ok_or_else(wrong)
}

fn parsed(text: &str) -> Option<u64> {
    let (date, time) = text.split_at_checked(10)?;
    let time = time.strip_prefix([' ', 'T'])?;
    let (time, offset_s) = offset(time)?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let in_range = (1970..=2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=month_days(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !in_range {
        return None;
    }
    let local_s = days(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second;
    local_s.checked_add_signed(-offset_s)?.checked_mul(SECOND_NS)?.checked_add(fraction_ns(fraction)?)
}

/// The time without its offset from UTC, and that in seconds.
fn offset(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix('Z') {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let [hours, minutes] = numbers(&time[at + 1..], ':', [2, 2])?;
    let seconds = i64::try_from(hours * 3600 + minutes * 60).ok().filter(|s| *s < 86_400)?;
    Some((&time[..at], if time[at..].starts_with('-') { -seconds } else { seconds }))
}

/// The numbers of `text`, of so many digits each.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u64; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && all_digits(part))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn fraction_ns(digits: &str) -> Option<u64> {
    if digits.len() > 9 || !all_digits(digits) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to the date.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let leap_days = |year: u64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let months: u64 = (1..month).map(|month| month_days(year, month)).sum();
    (year - 1970) * 365 + leap_days(year) - leap_days(1970) + months + day - 1
}

/// A time as the Azure traces of 2023 have it; inverts [`parse`] down to 100 ns.
pub(super) fn show(at_ns: u64) -> String {
    let (mut left, second_of_day) = (at_ns / SECOND_NS / DAY_S, at_ns / SECOND_NS % DAY_S);
    let mut year = 1970;
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    while left >= month_days(year, month) {
        left -= month_days(year, month);
        month += 1;
    }
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let fraction = at_ns % SECOND_NS / 100;
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}.{fraction:07}", left + 1)
}

/// `ns` in units of `unit_ns`, a power of ten, with no more decimals than it takes.
pub(super) fn decimal(ns: u64, unit_ns: u64) -> String {
    let (whole, part) = (ns / unit_ns, ns % unit_ns);
    if part == 0 {
        return whole.to_string();
    }
    let width = unit_ns.ilog10() as usize;
    format!("{whole}.{part:0width$}").trim_end_matches('0').to_owned()
}

/// What a message shows of a value that may be anything.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_with_and_without_a_fraction() {
        // From `date --utc +%s`.
        let noon_ns = 1_700_158_623 * SECOND_NS;
        for (text, expected) in [
            ("1970-01-01 00:00:00", 0),
            ("2023-11-16 18:17:03.9799600", noon_ns + 979_960_000),
            ("2023-11-16 18:17:03", noon_ns),
            ("2023-11-16 18:17:03+00:00", noon_ns),
            ("2023-11-16T18:17:03Z", noon_ns),
            ("2023-11-16 20:17:03.000001+02:00", noon_ns + 1_000),
            ("2023-11-16 13:47:03-04:30", noon_ns),
            ("2024-05-12 00:00:00.001163+00:00", 1_715_472_000_001_163_000),
            ("2024-02-29 00:00:00", 1_709_164_800 * SECOND_NS),
            ("2100-03-01 00:00:00", 4_107_542_400 * SECOND_NS),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2023-11-16",
            "2023-11-16 18:17",
            "2023-13-16 18:17:03",
            "2023-02-29 00:00:00",
            "2023-11-16 24:17:03",
            "2023-11-16 18:17:03.1234567890",
            "2023-11-16 18:17:03.12x",
            "1969-12-31 23:59:59",
            "1970-01-01 00:00:00+01:00",
            "20231-1-16 18:17:03",
            "2023-11-16 18:17:03+1",
            "2023-11-1é 18:17:03",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn showing_inverts_reading() {
        for day in 0..60_000 {
            let at_ns = (day * DAY_S + day % DAY_S) * SECOND_NS + day * 100;
            assert_eq!(parse(&show(at_ns)).unwrap(), at_ns, "{}", show(at_ns));
        }
    }

    #[test]
    fn decimals() {
        assert_eq!(decimal(3_000_000, 1_000_000), "3");
        assert_eq!(decimal(27_500_000, 1_000_000), "27.5");
        assert_eq!(decimal(61_114_000_001, 1_000_000_000), "61.114000001");
    }
}
