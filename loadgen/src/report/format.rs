//! Numbers as people read them. Files carry full precision; these are for tables, charts and messages.

/// A figure with its unit: shares as percentages, everything else with about three significant digits.
pub(super) fn figure(value: f64, unit: &str) -> String {
    match unit {
        "share" => format!("{} %", trimmed(value * 100.0, 2)),
        "" => trimmed(value, 3),
        "×" => format!("{}×", trimmed(value, 3)),
        "ms" => duration_ms(value),
        unit => format!("{} {unit}", grouped(value)),
    }
}

/// A figure in a column or chart that names its unit.
pub(super) fn cell(value: f64, unit: &str) -> String {
    match unit {
        "share" => percent(value),
        "ms" => milliseconds(value),
        "×" => format!("{value:.2}"),
        "tok/s" | "tokens" => grouped(value),
        _ if value.abs() >= 1000.0 => grouped(value),
        _ => trimmed(value, 1),
    }
}

/// A share as a percentage with one decimal, without the sign.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// A whole number with thousands separated by commas.
pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0.0 && digits != "0" {
        out.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Milliseconds without unit: three significant digits below 100, whole numbers above.
pub(super) fn milliseconds(ms: f64) -> String {
    match ms.abs() {
        v if v >= 99.95 => grouped(ms),
        v if v >= 9.995 => format!("{ms:.1}"),
        _ => format!("{ms:.2}"),
    }
}

/// A time with its unit: milliseconds below ten seconds, seconds above.
pub(super) fn duration_ms(ms: f64) -> String {
    if ms.abs() >= 10_000.0 { format!("{:.1} s", ms / 1e3) } else { format!("{} ms", milliseconds(ms)) }
}

/// At most `decimals` decimals, without trailing zeros.
pub(super) fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        let cases = [
            (0.8613, "share", "86.13 %"),
            (1.0, "share", "100 %"),
            (1.25, "", "1.25"),
            (2.0, "×", "2×"),
            (1234.4, "ms", "1,234 ms"),
            (0.057, "ms", "0.06 ms"),
            (61_500.0, "ms", "61.5 s"),
            (1_234_567.0, "tok/s", "1,234,567 tok/s"),
            (999.6, "tok/s", "1,000 tok/s"),
            (-1500.0, "tokens", "-1,500 tokens"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(figure(value, unit), expected);
        }
        let cells = [(0.4567, "share", "45.7"), (1.1, "×", "1.10"), (12.34, "ms", "12.3"), (1.5, "", "1.5")];
        for (value, unit, expected) in cells {
            assert_eq!(cell(value, unit), expected);
        }
    }
}
