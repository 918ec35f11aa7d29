//! Instants as people read them.

/// A day in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// Appends a time in milliseconds since 1970 as RFC 3339 in UTC: `2026-01-31T23:59:59.999Z`.
pub(super) fn push_rfc3339(out: &mut Vec<u8>, unix_ms: u64) {
    let (year, month, day) = date(unix_ms / DAY_MS);
    let ms = unix_ms % DAY_MS;
    let parts = [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (ms / 3_600_000, 2, b':'),
        (ms / 60_000 % 60, 2, b':'),
        (ms / 1000 % 60, 2, b'.'),
        (ms % 1000, 3, b'Z'),
    ];
    for (value, width, after) in parts {
        push_padded(out, value, width);
        out.push(after);
    }
}

/// Appends the last `width` digits of a number, at most 20.
pub(super) fn push_padded(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut digits = [0; 20];
    let digits = &mut digits[..width.min(20)];
    let mut rest = value;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(digits);
}

/// Year, month and day of a day since 1970-01-01. Years are counted from March here, so that the day that is not in
/// every year is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    /// Days in 400 years, after which the calendar repeats itself.
    const ERA: u64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const EPOCH: u64 = 719_468;
    let days = days + EPOCH;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on are 31, 30, 31, 30, 31 days long, and again.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // From the calendar by counting, leap years and all.
        let is_leap =
            |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
        let mut day = 0;
        for year in 1970..2420 {
            let february = if is_leap(year) { 29 } else { 28 };
            for (month, length) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
                for date_of_month in 1..=length {
                    assert_eq!(date(day), (year, month, date_of_month));
                    day += 1;
                }
            }
        }
    }

    #[test]
    fn every_part_has_its_width() {
        let text = |unix_ms| {
            let mut out = Vec::new();
            push_rfc3339(&mut out, unix_ms);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(951_782_399_007), "2000-02-28T23:59:59.007Z");
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
    }
}
