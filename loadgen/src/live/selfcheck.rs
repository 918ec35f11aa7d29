//! What this client can measure on this machine: the same driver as in live runs, against a server that answers at once.
//!
//! The server shares the machine with the client, as routers and workers do in live runs, so the limits are on the safe
//! side.

use std::path::Path;
use std::time::{Duration, Instant};

use protocol::record::RequestRecord;
use serde::Serialize;

use super::LiveError;
use super::drive::{Driven, Trouble, drive};
use super::machine::{Parts, Watch};
use super::null_server::NullServer;
use super::places::Places;
use crate::report::quantile;
use crate::run::Machine;
use crate::scenario::{Faults, Scenario, Template};
use crate::workload::{self, mishaps::Mishaps};

/// Requests in flight where the most is wanted.
const CONCURRENCY: u32 = 32;
/// Frames of a long reply.
const LONG_REPLY: u32 = 256;
/// Requests per second at which the pacer is looked at.
const RATES: [u32; 2] = [500, 2000];
/// How far from the schedule's rate the achieved one may be.
pub const RATE_TOLERANCE: f64 = 0.005;
/// Most lateness, 99th percentile, in milliseconds.
pub const MOST_LAG_MS: f64 = 2.0;
/// The share of what it can do at most that a client may be asked to do: above it, its own queue is in the figures.
pub const USABLE: f64 = 0.7;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Requests for the most requests and frames per second; a long reply counts as sixteen.
    pub requests: u32,
    /// Requests one after the other.
    pub singles: u32,
    /// How long each rate is kept, in seconds.
    pub paced_s: u32,
    /// Sleeps.
    pub sleeps: u32,
}

impl Effort {
    /// A few seconds in all.
    pub const USUAL: Self = Self { requests: 8000, singles: 500, paced_s: 2, sleeps: 300 };
}

/// A distribution by two of its points.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Points {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// How a rate was kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Paced {
    /// Requests per second that were asked for.
    pub rate: u32,
    /// How many were sent.
    pub requests: u64,
    /// The achieved rate over that of the drawn schedule.
    pub achieved: f64,
    /// How late requests left, in milliseconds.
    pub send_lag_ms: Points,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Most short requests per second.
    pub requests_per_s: f64,
    /// Most frames of streams per second.
    pub frames_per_s: f64,
    /// Time to first token of a server that needs none, in milliseconds.
    pub ttft_floor_ms: Points,
    /// How rates were kept.
    pub paced: Vec<Paced>,
    /// How much longer a sleep of 1 ms takes, of a thread and of the runtime, in microseconds.
    pub thread_sleep_late_us: Points,
    /// The runtime's.
    pub runtime_sleep_late_us: Points,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Who else had them meanwhile; not in files where the kernel does not tell.
    pub others_ran: Option<f64>,
    /// The share of the time that this client was kept waiting for a CPU.
    pub client_waited: Option<f64>,
}

impl Paced {
    /// Whether the rate was kept, and in time.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        (self.achieved - 1.0).abs() <= RATE_TOLERANCE && self.send_lag_ms.p99 < MOST_LAG_MS
    }
}

impl Found {
    /// The highest of the rates that were kept.
    #[must_use]
    pub fn kept_rate(&self) -> Option<u32> {
        self.paced.iter().filter(|paced| paced.is_kept()).map(|paced| paced.rate).max()
    }

    /// Requests per second that may be asked of this client.
    #[must_use]
    pub fn usable_requests_per_s(&self) -> f64 {
        self.requests_per_s * USABLE
    }

    /// Frames per second that may be asked of it.
    #[must_use]
    pub fn usable_frames_per_s(&self) -> f64 {
        self.frames_per_s * USABLE
    }
}

/// Measures, telling `progress` what is being done.
///
/// # Errors
/// The client or the server cannot be set up.
pub fn measure(effort: Effort, progress: &mut dyn FnMut(&str)) -> Result<Found, LiveError> {
    let watch = Watch::begin(Parts::default());
    progress("most requests per second");
    let closed = |requests: u32, concurrency: u32| {
        work(requests, &format!("kind = \"closed\"\nconcurrency = {concurrency}"))
    };
    let short = against_nothing(1, &closed(effort.requests, CONCURRENCY))?;
    progress("most frames per second");
    let long = against_nothing(LONG_REPLY, &closed((effort.requests / 16).max(1), CONCURRENCY))?;
    progress("shortest time to first token");
    let single = against_nothing(1, &closed(effort.singles, 1))?;
    let mut paced = Vec::new();
    for rate in RATES {
        progress(&format!("{rate} requests per second"));
        let poisson = work(rate * effort.paced_s, &format!("kind = \"poisson\"\nrate = {rate}"));
        paced.push(kept(rate, &against_nothing(1, &poisson)?.records));
    }
    progress("sleeps");
    let (thread, runtime) = (thread_sleeps(effort.sleeps), runtime_sleeps(effort.sleeps)?);
    let Machine { others_ran, client_waited, .. } = watch.end(Parts::default());
    Ok(Found {
        requests_per_s: per_second(|_| 1, &short.records),
        frames_per_s: per_second(|record| record.output_tokens, &long.records),
        ttft_floor_ms: points(
            single.records.iter().filter_map(|r| Some((r.first_ns? - r.sent_ns) as f64 / 1e6)),
        ),
        paced,
        thread_sleep_late_us: thread,
        runtime_sleep_late_us: runtime,
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        others_ran,
        client_waited: client_waited.map(|waited| waited.share),
    })
}

/// So many short prompts that share nothing.
fn work(requests: u32, arrival: &str) -> String {
    format!(
        "schema = 1\nname = \"selfcheck\"\n[workload]\nkind = \"independent\"\nrequests = {requests}\nprompt_tokens = 8\n\
         output_tokens = 1\n[arrival]\n{arrival}\n[fleet]\nworkers = 1\n[router]\npolicies = [\"round_robin\"]\n"
    )
}

/// Sends the requests of a scenario to a server that answers at once, by so many frames.
fn against_nothing(frames: u32, scenario: &str) -> Result<Driven, LiveError> {
    let scenario = read(scenario).map_err(|error| LiveError::Driver(std::io::Error::other(error)))?;
    let server = NullServer::start(frames).map_err(LiveError::Driver)?;
    let trouble = Trouble { deeds: Vec::new(), faults: Faults::default(), mishaps: Mishaps::new(1) };
    let plan = workload::plan(&scenario, 1);
    drive(&server.url, Places::default(), plan, 1.0, trouble, &mut || true, &mut |_| {})
}

fn read(text: &str) -> Result<Scenario, crate::scenario::ScenarioError> {
    Template::of(Path::new("selfcheck"), text.to_owned(), &[], None, None)?.scenario()
}

/// What the requests that succeeded count together, over the time from the first send to their last byte.
fn per_second(count: fn(&RequestRecord) -> u64, records: &[RequestRecord]) -> f64 {
    let begin = records.iter().map(|r| r.sent_ns).min().unwrap_or(0);
    let good = || records.iter().filter(|record| record.succeeded());
    let end = good().map(|record| record.last_ns).max().unwrap_or(begin);
    good().map(count).sum::<u64>() as f64 * 1e9 / end.saturating_sub(begin).max(1) as f64
}

fn kept(rate: u32, records: &[RequestRecord]) -> Paced {
    let span = |of: fn(&RequestRecord) -> u64| {
        let (first, last) = (records.iter().map(of).min(), records.iter().map(of).max());
        last.unwrap_or(0).saturating_sub(first.unwrap_or(0)).max(1) as f64
    };
    Paced {
        rate,
        requests: records.iter().filter(|r| r.succeeded()).count() as u64,
        achieved: span(|r| r.intended_ns) / span(|r| r.sent_ns),
        send_lag_ms: points(records.iter().map(|r| r.sent_ns.saturating_sub(r.intended_ns) as f64 / 1e6)),
    }
}

fn points(values: impl Iterator<Item = f64>) -> Points {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |q| quantile(&values, q).unwrap_or(0.0);
    Points { p50: at(0.5), p99: at(0.99) }
}

const SLEEP: Duration = Duration::from_millis(1);

fn late_us(begin: Instant) -> f64 {
    begin.elapsed().saturating_sub(SLEEP).as_nanos() as f64 / 1e3
}

fn thread_sleeps(count: u32) -> Points {
    points((0..count).map(|_| {
        let begin = Instant::now();
        std::thread::sleep(SLEEP);
        late_us(begin)
    }))
}

fn runtime_sleeps(count: u32) -> Result<Points, LiveError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LiveError::Driver)?;
    Ok(runtime.block_on(async {
        let mut late = Vec::new();
        for _ in 0..count {
            let begin = Instant::now();
            tokio::time::sleep(SLEEP).await;
            late.push(late_us(begin));
        }
        points(late.into_iter())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_measured_by_what_it_does_in_live_runs() {
        let effort = Effort { requests: 64, singles: 5, paced_s: 1, sleeps: 3 };
        let mut told = Vec::new();
        let found = measure(effort, &mut |what| told.push(what.to_owned())).unwrap();
        assert!(found.requests_per_s > 0.0 && found.frames_per_s > 0.0, "{found:?}");
        assert!(found.ttft_floor_ms.p50 > 0.0 && found.ttft_floor_ms.p50 <= found.ttft_floor_ms.p99);
        assert_eq!(told.len(), 6, "{told:?}");
        // Every request was answered, whatever the machine had to do meanwhile.
        let sent: Vec<(u32, u64)> = found.paced.iter().map(|paced| (paced.rate, paced.requests)).collect();
        assert_eq!(sent, [(500, 500), (2000, 2000)]);
        assert!(found.thread_sleep_late_us.p99 >= found.thread_sleep_late_us.p50);
    }

    #[test]
    fn rate_and_lag_are_those_of_the_records() {
        let record = |seq: u64, due_ms: u64, sent_ms: u64| {
            let mut record = RequestRecord::sent(seq, None, due_ms * 1_000_000, sent_ms * 1_000_000);
            record.status = 200;
            record
        };
        let on_time: Vec<_> = (0..=100).map(|seq| record(seq, seq * 10, seq * 10 + 1)).collect();
        let paced = kept(100, &on_time);
        assert_eq!((paced.achieved, paced.requests), (1.0, 101));
        assert_eq!(paced.send_lag_ms, Points { p50: 1.0, p99: 1.0 });
        assert!(paced.is_kept());
        // The last one comes at 1,010 instead of 1,000 ms.
        let slow: Vec<_> = (0..=100).map(|seq| record(seq, seq * 10, seq * 10 + seq / 10)).collect();
        let paced = kept(100, &slow);
        assert!((paced.achieved - 1000.0 / 1010.0).abs() < 1e-12 && !paced.is_kept(), "{paced:?}");
    }
}
