//! Small runs for tests, built field by field so that a test shows what it is about.

use hdrhistogram::Histogram;
use protocol::record::RequestRecord;
use router_core::PolicyConfig;
use simworker_core::EngineRole;

use crate::run::{Beside, EngineTimeline, LoadTimeline, Machine, Params, Run, World};
use crate::scenario::Pool;

const MS: u64 = 1_000_000;

/// A record under construction: a success of one prompt token and one output token, at time 0.
pub(crate) struct Draft(RequestRecord);

pub(crate) fn record(seq: u64) -> Draft {
    Draft(RequestRecord {
        seq,
        group: None,
        session: None,
        turn: None,
        intended_ns: 0,
        sent_ns: 0,
        first_ns: Some(0),
        last_ns: 0,
        worker: None,
        prefill_worker: None,
        rank: None,
        reason: "hit".into(),
        prompt_tokens: 1,
        cached_tokens: 0,
        predicted_cached_tokens: None,
        output_tokens: 1,
        status: 200,
        error: String::new(),
    })
}

impl Draft {
    pub(crate) fn group(mut self, group: u32) -> Self {
        self.0.group = Some(group);
        self
    }
    pub(crate) fn turn(mut self, session: u64, turn: u32) -> Self {
        (self.0.session, self.0.turn) = (Some(session), Some(turn));
        self
    }
    pub(crate) fn sent_ms(mut self, intended: u64, sent: u64) -> Self {
        (self.0.intended_ns, self.0.sent_ns) = (intended * MS, sent * MS);
        self
    }
    pub(crate) fn first_ms(mut self, at: u64) -> Self {
        self.0.first_ns = Some(at * MS);
        self
    }
    pub(crate) fn last_ms(mut self, at: u64) -> Self {
        self.0.last_ns = at * MS;
        self
    }
    pub(crate) fn worker(mut self, worker: u32) -> Self {
        self.0.worker = Some(worker);
        self
    }
    pub(crate) fn prefill_worker(mut self, worker: u32) -> Self {
        self.0.prefill_worker = Some(worker);
        self
    }
    pub(crate) fn rank(mut self, rank: u32) -> Self {
        self.0.rank = Some(rank);
        self
    }
    pub(crate) fn reason(mut self, reason: &str) -> Self {
        self.0.reason = reason.into();
        self
    }
    pub(crate) fn tokens(mut self, prompt: u64, cached: u64, output: u64) -> Self {
        (self.0.prompt_tokens, self.0.cached_tokens, self.0.output_tokens) = (prompt, cached, output);
        self
    }
    pub(crate) fn predicted(mut self, tokens: u64) -> Self {
        self.0.predicted_cached_tokens = Some(tokens);
        self
    }
    pub(crate) fn build(self) -> RequestRecord {
        self.0
    }
}

/// A request that failed.
pub(crate) fn failed(seq: u64, intended_ms: u64, last_ms: u64, status: u16, error: &str) -> RequestRecord {
    let mut record = record(seq).sent_ms(intended_ms, intended_ms).last_ms(last_ms).tokens(0, 0, 0).build();
    (record.first_ns, record.status, record.error) = (None, status, error.into());
    record.reason.clear();
    record
}

/// A histogram of gaps in nanoseconds.
pub(crate) fn gaps(values_ns: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap();
    values_ns.iter().for_each(|ns| histogram.record(*ns).unwrap());
    histogram
}

/// So many workers that do everything.
pub(crate) fn regular(workers: u32) -> Vec<Pool> {
    vec![Pool { role: EngineRole::Whole, places: 0..workers }]
}

/// Workers that prefill, and behind them workers that decode.
pub(crate) fn apart(prefill: u32, decode: u32) -> Vec<Pool> {
    vec![
        Pool { role: EngineRole::Prefill, places: 0..prefill },
        Pool { role: EngineRole::Decode, places: prefill..prefill + decode },
    ]
}

/// A virtual run of two workers with seed 1 and no parameters.
pub(crate) fn run(policy: &str, records: Vec<RequestRecord>) -> Run {
    Run {
        world: World::Virtual,
        policy: PolicyConfig::new(policy).unwrap(),
        target: None,
        settings: Vec::new(),
        params: Params::new(),
        seed: 1,
        workers: 2,
        pools: regular(2),
        ranks: 1,
        speed: 1.0,
        load: LoadTimeline::from_records(&records, 2, 60),
        records,
        itl_ns: gaps(&[]),
        engines: EngineTimeline::default(),
        reach: None,
        router_cpu_us_per_request: None,
        beside: None,
    }
}

/// The run as a live one from which the hypervisor took half of the machine.
pub(crate) fn disturbed(run: Run) -> Run {
    let machine = Machine { stolen: Some(0.5), ..Machine::default() };
    let beside = Beside { router_ns: gaps(&[]), router_peak_bytes: None, machine };
    Run { world: World::Live, beside: Some(beside), ..run }
}
