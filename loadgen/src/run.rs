//! What one run of one cell gives: the records of its requests, and what was measured beside them.

mod engines;
mod reach;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use protocol::record::RequestRecord;
use router_core::PolicyConfig;
use serde::{Deserialize, Serialize};

pub(crate) use engines::Recorder;
pub use engines::{EngineSample, EngineTimeline};
pub use reach::Reach;

use crate::scenario::{Cell, Pool};

/// The world a cell runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// An event heap; time is a number.
    Virtual,
    /// Real processes, real HTTP.
    Live,
}

impl World {
    /// The word used in files and on the command line.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            World::Virtual => "virtual",
            World::Live => "live",
        }
    }
}

/// A named value that distinguishes cells of one scenario (policy options and swept keys), ordered by name.
pub type Params = BTreeMap<String, serde_json::Value>;

/// One execution of one cell with one seed.
#[derive(Debug, Clone)]
pub struct Run {
    /// The world it ran in.
    pub world: World,
    /// The policy and its options. Of a target, which has a policy of its own, nothing.
    pub policy: PolicyConfig,
    /// The name of the router under test where it is not ours.
    pub target: Option<String>,
    /// What else the router was told: section and line of its own file.
    pub settings: Vec<(&'static str, String)>,
    /// The options that were set, and the swept keys.
    pub params: Params,
    /// The seed.
    pub seed: u64,
    /// How many workers the fleet had.
    pub workers: u32,
    /// The workers of each role.
    pub pools: Vec<Pool>,
    /// Data-parallel ranks of each worker.
    pub ranks: u32,
    /// Live: how much faster than real time the workers ran; times in the records are wall time multiplied by it.
    pub speed: f64,
    /// One record per request, in order of `seq`.
    pub records: Vec<RequestRecord>,
    /// Gaps between consecutive output tokens at the client, in nanoseconds, over all requests.
    pub itl_ns: Histogram<u64>,
    /// In-flight requests per worker over time, sampled evenly over the run.
    pub load: LoadTimeline,
    /// What the workers held over time; virtual only.
    pub engines: EngineTimeline,
    /// How much of the prompts could have come from a cache; absent where the prompts were not kept.
    pub reach: Option<Reach>,
    /// CPU time (user + system) of the router's processes per request, in microseconds; live only.
    pub router_cpu_us_per_request: Option<f64>,
    /// What else was measured beside the requests; live only.
    pub beside: Option<Beside>,
}

/// What is measured beside the requests of a live run.
#[derive(Debug, Clone)]
pub struct Beside {
    /// Of every request that succeeded and whose engine told its own time to first token: how much longer it took at the
    /// client, from the actual send, in nanoseconds of the run.
    pub router_ns: Histogram<u64>,
    /// The most memory that the router's processes had at once, in bytes; of several, the sum of each one's most.
    pub router_peak_bytes: Option<u64>,
    /// How busy the machine was.
    pub machine: Machine,
}

/// Who had the CPU during a live run. Every figure is a share from 0 to 1, and absent where the kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Machine {
    /// How long it was watched, in nanoseconds of wall time.
    pub span_ns: u64,
    /// The share of that time in which the thread that sends and receives had a CPU.
    pub client_ran: Option<f64>,
    /// How it waited for one: the share is of the whole time.
    pub client_waited: Option<Waited>,
    /// How the threads of the workers waited: the share is of the time in which they wanted a CPU.
    pub workers_waited: Option<Waited>,
    /// The same of the router's.
    pub router_waited: Option<Waited>,
    /// The share of all CPUs' time that went to the run itself.
    pub run_ran: Option<f64>,
    /// The share that went to programs which have no part in it; absent, too, where the run may not use all CPUs.
    pub others_ran: Option<f64>,
    /// The share that the hypervisor took away.
    pub stolen: Option<f64>,
}

/// How threads were ready to run and had no CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Waited {
    /// The share of some time, from 0 to 1.
    pub share: f64,
    /// How long one wait was on average, over all the times that a thread got a CPU, in nanoseconds.
    pub mean_ns: f64,
}

/// The error of a request whose client left. Nobody has failed it.
pub const CLIENT_LEFT: &str = "the client left";

/// Whether a request was left by its client before it had its answer.
#[must_use]
pub fn was_left(record: &RequestRecord) -> bool {
    record.error == CLIENT_LEFT
}

/// Whether a request was not answered in full, though its client had stayed.
#[must_use]
pub fn has_failed(record: &RequestRecord) -> bool {
    !record.succeeded() && !was_left(record)
}

/// How many samples a load timeline has.
const TIMELINE_SAMPLES: usize = 240;

impl Run {
    /// The run of `cell` with `seed` that left these records and gaps.
    pub(crate) fn of(cell: &Cell, seed: u64, records: Vec<RequestRecord>, itl_ns: Histogram<u64>) -> Self {
        let fleet = &cell.scenario.fleet;
        let workers = fleet.workers;
        Self {
            world: cell.world,
            policy: cell.policy.clone(),
            target: cell.target.as_ref().map(|target| target.name.clone()),
            settings: cell.scenario.routing.settings(fleet.roles.disaggregated()),
            params: cell.params.clone(),
            seed,
            workers,
            pools: fleet.roles.pools(workers),
            ranks: fleet.ranks.size,
            speed: fleet.speed,
            load: LoadTimeline::from_records(&records, workers, TIMELINE_SAMPLES),
            records,
            itl_ns,
            engines: EngineTimeline::default(),
            reach: None,
            router_cpu_us_per_request: None,
            beside: None,
        }
    }

    /// What is compared in it: a policy of our router, or another router.
    #[must_use]
    pub fn router(&self) -> &str {
        self.target.as_deref().unwrap_or(self.policy.name())
    }
}

impl Run {
    /// The run of `cell` with `seed` when nothing was kept of its requests but figures. It is small, whatever was sent.
    #[must_use]
    pub fn without_records(cell: &Cell, seed: u64) -> Self {
        #[expect(clippy::expect_used, reason = "one significant digit is allowed")]
        let no_gaps = Histogram::new(1).expect("a valid precision");
        Self { load: LoadTimeline::default(), ..Self::of(cell, seed, Vec::new(), no_gaps) }
    }
}

/// In-flight requests of every worker at evenly spaced moments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadTimeline {
    /// Distance between samples, in nanoseconds.
    pub interval_ns: u64,
    /// `samples[i][w]`: requests in flight on worker `w` at `i * interval_ns`.
    pub samples: Vec<Vec<u32>>,
}

impl LoadTimeline {
    /// The timeline of `workers` workers in `count` samples, derived from the records: a request is in flight on its
    /// worker from its send to its last byte, and where another one computed its prompt, there until its first token.
    #[must_use]
    pub fn from_records(records: &[RequestRecord], workers: u32, count: usize) -> Self {
        let end_ns = records.iter().map(|r| r.last_ns).max().unwrap_or(0);
        let interval_ns = (end_ns / count.max(1) as u64).max(1);
        let mut deltas = vec![vec![0i64; workers as usize]; count + 2];
        for record in records {
            let slot = |ns: u64| (ns.div_ceil(interval_ns) as usize).min(count + 1);
            let computed_ns = record.first_ns.unwrap_or(record.last_ns);
            let stays = [(record.worker, record.last_ns), (record.prefill_worker, computed_ns)];
            for (worker, until_ns) in stays {
                let Some(worker) = worker.filter(|w| *w < workers) else { continue };
                deltas[slot(record.sent_ns)][worker as usize] += 1;
                deltas[slot(until_ns)][worker as usize] -= 1;
            }
        }
        let mut level = vec![0i64; workers as usize];
        let mut samples = Vec::with_capacity(count + 1);
        for row in deltas.iter().take(count + 1) {
            for (l, d) in level.iter_mut().zip(row) {
                *l += d;
            }
            samples.push(level.iter().map(|l| u32::try_from(*l).unwrap_or(0)).collect());
        }
        Self { interval_ns, samples }
    }
}

/// An empty histogram for latencies: 1 ns to 1 hour, three significant digits.
#[must_use]
pub fn latency_histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the constructor accepts")]
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds")
}
