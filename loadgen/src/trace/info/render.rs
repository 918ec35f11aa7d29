//! The figures for people.

use std::fmt::{self, Display, Write};

use super::{Arrivals, FleetPoint, Lengths, LruPoint, Reuse, TraceInfo};

/// Widest bar, in characters.
const BAR: usize = 32;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Blocks of an eighth of a character.
    Unicode,
    /// Hash signs.
    Ascii,
}

impl TraceInfo {
    /// The figures as text.
    #[must_use]
    pub fn render(&self, width: Width) -> String {
        let mut text = String::new();
        // Writing to a text cannot fail.
        let _ = self.write(&mut text, width);
        text
    }

    fn write(&self, to: &mut String, width: Width) -> fmt::Result {
        writeln!(to, "{}", self.file)?;
        if let Some(other) = &self.other_file {
            writeln!(to, "{:14}{other}: both are one recording", "read with")?;
        }
        writeln!(to, "{:14}{}: {}", "format", self.format, self.looks)?;
        self.write_requests(to)?;
        if let Some(arrivals) = &self.arrivals {
            write_burstiness(to, arrivals)?;
        }
        if let Some(s) = &self.sessions {
            let (count, mean, max) = (grouped(s.count), s.turns_mean, grouped(s.turns_max));
            let multi = percent(s.multi_turn_share);
            writeln!(
                to,
                "{:14}{count}; {mean:.2} turns each, at most {max}; {multi} have more than one",
                "sessions"
            )?;
        }
        writeln!(to)?;
        let head = ["mean", "min", "p50", "p90", "p99", "max"].map(|name| format!("{name:>10}")).concat();
        writeln!(to, "{:14}{head}{:>16}", "tokens", "sum")?;
        write_lengths(to, "  input", &self.input_tokens)?;
        write_lengths(to, "  output", &self.output_tokens)?;
        writeln!(to)?;
        match &self.reuse {
            None => {
                writeln!(to, "This format does not say what prompts share: nothing is known about caches.")
            }
            Some(reuse) => {
                write_reuse(to, reuse, width)?;
                write_lru(to, &self.lru, &self.lru_fleet, reuse, width)
            }
        }
    }

    fn write_requests(&self, to: &mut String) -> fmt::Result {
        let rows = grouped(self.rows);
        match self.arrivals.as_ref().map(|arrivals| (arrivals.span_s, arrivals.rate)) {
            None => writeln!(to, "{:14}{rows}, without times", "requests")?,
            Some((_, None)) => writeln!(to, "{:14}{rows}, all at one time", "requests")?,
            Some((span_s, Some(rate))) => {
                let rate = figure(rate);
                writeln!(to, "{:14}{rows} over {}: {rate} per second", "requests", span(span_s))?;
            }
        }
        if self.left_out > 0 {
            writeln!(to, "{:14}{} {}", "left out", grouped(self.left_out), self.left_out_are)?;
        }
        if self.skipped > 0 {
            let first = self.first_skipped.as_ref().map(|first| format!(", the first: {first}"));
            writeln!(to, "{:14}{} bad rows{}", "skipped", grouped(self.skipped), first.unwrap_or_default())?;
        }
        Ok(())
    }
}

fn write_burstiness(to: &mut String, arrivals: &Arrivals) -> fmt::Result {
    let Some(cv) = arrivals.gap_cv else { return Ok(()) };
    let over = |of: fn(&super::Window) -> f64| {
        let each = arrivals.windows.iter().map(|w| format!("{} in {} s", figure(of(w)), w.seconds));
        each.collect::<Vec<_>>().join(", ")
    };
    writeln!(to, "{:14}{} (per second, in the busiest window)", "peaks", over(|w| w.peak_rate))?;
    writeln!(to, "{:14}CV of the gaps {}; Fano factor {}", "burstiness", figure(cv), over(|w| w.fano))?;
    writeln!(to, "{:14}(1 for Poisson arrivals, more for bursts)", "")?;
    if let Some(grid_ms) = arrivals.grid_ms {
        let step = figure(grid_ms as f64 / 1e3);
        writeln!(
            to,
            "{:14}{step} s: the stamps were rounded; jitter = \"grid\" spreads them again",
            "time grid"
        )?;
    }
    Ok(())
}

fn write_lengths(to: &mut String, name: &str, lengths: &Lengths) -> fmt::Result {
    let Lengths { sum, mean, min, p50, p90, p99, max } = *lengths;
    let mean = mean.round() as u64;
    let each = [mean, min.into(), p50.into(), p90.into(), p99.into(), max.into()];
    let each = each.map(|tokens| format!("{:>10}", grouped(tokens))).concat();
    writeln!(to, "{name:14}{each}{:>16}", grouped(sum))
}

fn write_reuse(to: &mut String, reuse: &Reuse, width: Width) -> fmt::Result {
    let (distinct, references) = (grouped(reuse.distinct), grouped(reuse.references));
    let blocks = format!("{distinct} distinct of {references}, {} tokens each", reuse.block_tokens);
    writeln!(to, "{:14}{blocks}", "blocks")?;
    let (block, token) = (percent(reuse.infinite_by_block), percent(reuse.infinite_by_token));
    let half = percent(reuse.infinite_last_half);
    writeln!(to, "{:14}an infinite cache serves {block} of the blocks and {token} of the tokens", "bound")?;
    writeln!(to, "{:14}({half} of the tokens of the last half of the requests)", "")?;
    writeln!(to, "\nshare of a prompt that an infinite cache serves (match ratio)")?;
    for bin in &reuse.match_ratio {
        let name = format!("{:.0} to {:.0} %", bin.from * 100.0, bin.to * 100.0);
        writeln!(to, "{}", line(&format!("{name:>12}"), bin.share, width))?;
    }
    Ok(())
}

fn write_lru(
    to: &mut String,
    lru: &[LruPoint],
    fleet: &[FleetPoint],
    reuse: &Reuse,
    width: Width,
) -> fmt::Result {
    writeln!(to, "\none LRU cache: share of the tokens that it serves, last half of the requests")?;
    writeln!(to, "{:>12}{:>14}", "blocks", "tokens")?;
    let of_fleet = |FleetPoint { workers, cache }: &FleetPoint| match workers {
        1 => ("one worker".to_owned(), *cache),
        workers => (format!("{} workers", grouped(workers)), *cache),
    };
    let mut points: Vec<(String, LruPoint)> = lru.iter().map(|p| (grouped(p.blocks), *p)).collect();
    points.extend(fleet.iter().map(of_fleet));
    points.sort_by_key(|(_, point)| point.tokens);
    for (name, point) in points {
        let size = format!("{name:>12}{:>14}", grouped(point.tokens));
        writeln!(to, "{}", line(&size, point.hit_rate, width))?;
    }
    writeln!(to, "{}", line(&format!("{:>26}", "infinite"), reuse.infinite_last_half, width))
}

/// A share as a figure and a bar.
fn line(name: &str, share: f64, width: Width) -> String {
    let line = format!("{name}{:>9}  {}", percent(share), bar(share, width));
    line.trim_end().to_owned()
}

fn bar(share: f64, width: Width) -> String {
    let eighths = (share.clamp(0.0, 1.0) * BAR as f64 * 8.0).round() as usize;
    match width {
        Width::Ascii => "#".repeat((eighths + 4) / 8),
        Width::Unicode => {
            let mut bar = "█".repeat(eighths / 8);
            bar.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1)));
            bar
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A number with the digits that tell something.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => grouped(v.round() as u64),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A span of time.
fn span(seconds: f64) -> String {
    match seconds {
        s if s < 600.0 => format!("{} s", figure(s)),
        s if s < 172_800.0 => format!("{} s ({:.1} h)", figure(s), s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// With a comma before every three digits.
fn grouped(number: impl Display) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(
            [0, 999, 1000, 97_657, 50_000_384].map(grouped),
            ["0", "999", "1,000", "97,657", "50,000,384"]
        );
        assert_eq!([0.5, 12.34, 1234.5].map(figure), ["0.50", "12.3", "1,235"]);
        assert_eq!([12.0, 3600.0, 864_000.0].map(span), ["12.0 s", "3,600 s (1.0 h)", "10.0 days"]);
    }

    #[test]
    fn bars_have_the_length_of_their_share() {
        assert_eq!(bar(0.5, Width::Ascii), "#".repeat(16));
        assert_eq!(bar(1.0, Width::Unicode).chars().count(), BAR);
        assert_eq!(
            (bar(1.0 / 256.0, Width::Unicode), bar(0.0, Width::Unicode)),
            ("▏".to_owned(), String::new())
        );
    }
}
