//! `loadgen selfcheck`: what this client can measure on this machine.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::Failure;
use super::shared::write_json;
use crate::app::Exit;
use crate::live::selfcheck::{self, Effort, Found, MOST_LAG_MS, Points, RATE_TOLERANCE, USABLE};
use crate::say::{note, say};

/// `loadgen selfcheck …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    /// Write the figures to a file, too
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
}

/// Measures, prints a table and a verdict, and writes the figures.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let found = selfcheck::measure(Effort::USUAL, &mut |what| note(format_args!("measuring: {what}")))
        .map_err(|error| Failure::new(Exit::Target, error))?;
    for line in table(&found).into_iter().chain(verdict(&found)) {
        say(line + "\n");
    }
    if let Some(path) = &options.json {
        write_json(path, &json!({"selfcheck": 1, "found": &found, "fit": found.kept_rate().is_some()}))?;
    }
    Ok(if found.kept_rate().is_some() { Exit::Done } else { Exit::Invalid })
}

fn table(found: &Found) -> Vec<String> {
    let row = |what: &str, figure: String| format!("  {what:<44}{figure}");
    let points = |points: Points, unit: &str| format!("{:.3} / {:.3} {unit}", points.p50, points.p99);
    let mut lines = vec![
        format!("selfcheck, {} CPUs, against a server that answers at once", found.cpus),
        row("most requests per second", format!("{:.0}", found.requests_per_s)),
        row("most frames per second", format!("{:.0}", found.frames_per_s)),
        row("time to first token, p50 / p99", points(found.ttft_floor_ms, "ms")),
    ];
    for paced in &found.paced {
        let rate = format!("at {} requests per second: achieved", paced.rate);
        let kept = if paced.is_kept() { "" } else { "  NOT KEPT" };
        lines.push(row(&rate, format!("{:.2} % of the schedule{kept}", paced.achieved * 100.0)));
        lines.push(row("  send lag, p50 / p99", points(paced.send_lag_ms, "ms")));
    }
    lines.push(row("a sleep of 1 ms, late by, thread, p50 / p99", points(found.thread_sleep_late_us, "us")));
    lines.push(row("the same in the runtime", points(found.runtime_sleep_late_us, "us")));
    let share = |what: &str, share: Option<f64>| Some(row(what, format!("{:.1} %", share? * 100.0)));
    lines.extend(share("other programs had, of the CPUs' time", found.others_ran));
    lines.extend(share("this client was kept waiting for a CPU", found.client_waited));
    lines
}

/// What scenarios this machine can measure.
fn verdict(found: &Found) -> Vec<String> {
    let pace = match found.kept_rate() {
        Some(rate) => format!("schedules are kept up to {rate} requests per second"),
        None => format!(
            "schedules are NOT kept: more than {} % of the rate is missing, or requests leave more than {MOST_LAG_MS} ms late \
             (p99); end what else runs here",
            RATE_TOLERANCE * 100.0
        ),
    };
    let frames = found.usable_frames_per_s();
    // At 20 ms a token, one frame for each.
    let streams = frames / 50.0;
    vec![
        format!("verdict: {pace}"),
        format!(
            "  live scenarios should stay below {:.0} requests and {frames:.0} frames per second ({:.0} % of the most): for \
             example {streams:.0} streams of a token every 20 ms; more with live.stream_interval",
            found.usable_requests_per_s(),
            USABLE * 100.0
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::selfcheck::Paced;

    fn found(lag_ms: f64) -> Found {
        let points = Points { p50: 0.1, p99: lag_ms };
        let paced = |rate| Paced { rate, requests: 9, achieved: 1.0, send_lag_ms: points };
        Found {
            requests_per_s: 10_000.0,
            frames_per_s: 100_000.0,
            ttft_floor_ms: points,
            paced: vec![paced(500), paced(2000)],
            thread_sleep_late_us: points,
            runtime_sleep_late_us: points,
            cpus: 2,
            others_ran: None,
            client_waited: None,
        }
    }

    #[test]
    fn the_verdict_says_what_can_be_measured() {
        let good = verdict(&found(0.5)).join("\n");
        assert!(good.contains("up to 2000 requests per second"), "{good}");
        assert!(good.contains("70000 frames") && good.contains("1400 streams"), "{good}");
        let bad = verdict(&found(2.5)).join("\n");
        assert!(bad.contains("NOT kept"), "{bad}");
        assert!(table(&found(2.5)).iter().any(|line| line.contains("NOT KEPT")));
        assert!(table(&found(0.5)).iter().all(|line| line.len() <= 100));
    }
}
