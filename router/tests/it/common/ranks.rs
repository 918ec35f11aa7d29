//! An engine with data-parallel ranks: it says how many it has, reports the load of each, and serves only those.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::{Conn, Latch, Message, Worker};

/// A prompt with this word is answered when the latch lets it.
pub(crate) const HOLD: &str = "hold";

/// A worker that takes requests for its own ranks, and without a rank; others get 400.
pub(crate) struct RankedEngine {
    pub(crate) worker: Worker,
    pub(crate) go: Latch,
    state: Arc<Mutex<State>>,
}

struct State {
    /// What `/server_info` says.
    info: Value,
    /// Number and tokens of each rank, as `/v1/loads` reports them.
    tokens: BTreeMap<u32, u64>,
    /// The status of `/v1/loads` in place of a report.
    loads: Option<&'static str>,
    /// How often each path was asked for.
    asked: HashMap<String, usize>,
    /// The ranks of the requests, in the order in which they came; `None` without one.
    sent: Vec<Option<u64>>,
    /// Requests that were turned away.
    refused: usize,
    /// The rank whose requests fail.
    failing: Option<u64>,
}

impl RankedEngine {
    /// One with these ranks, that says that it has as many.
    pub(crate) fn start(ranks: std::ops::Range<u32>) -> Self {
        Self::start_at("127.0.0.1:0", ranks)
    }

    /// The same at this address.
    pub(crate) fn start_at(address: &str, ranks: std::ops::Range<u32>) -> Self {
        let state = State {
            info: Self::info(ranks.len() as u64),
            tokens: ranks.map(|rank| (rank, 100 + u64::from(rank))).collect(),
            loads: None,
            asked: HashMap::new(),
            sent: Vec::new(),
            refused: 0,
            failing: None,
        };
        let (state, go) = (Arc::new(Mutex::new(state)), Latch::default());
        let (own, when) = (Arc::clone(&state), go.clone());
        let worker = Worker::probed_at(address, move |conn, request| serve(conn, request, &own, &when));
        Self { worker, go, state }
    }

    /// What an engine with so many ranks says of itself.
    pub(crate) fn info(dp_size: u64) -> Value {
        json!({"served_model_name": "m", "dp_size": dp_size, "startup_time": dp_size})
    }

    /// It says this of itself from now on.
    pub(crate) fn say(&self, info: Value) {
        self.lock().info = info;
    }

    /// It has these ranks from now on, and says so, as after a restart.
    pub(crate) fn become_ranks(&self, ranks: std::ops::Range<u32>) {
        let mut state = self.lock();
        state.info = Self::info(ranks.len() as u64);
        state.tokens = ranks.map(|rank| (rank, 0)).collect();
    }

    /// It reports these ranks with so many tokens, whatever it says otherwise.
    pub(crate) fn report(&self, tokens: impl IntoIterator<Item = (u32, u64)>) {
        self.lock().tokens = tokens.into_iter().collect();
    }

    /// The status of its load report from now on; `None`: a report.
    pub(crate) fn report_as(&self, status: Option<&'static str>) {
        self.lock().loads = status;
    }

    /// Requests for this rank fail from now on.
    pub(crate) fn fail(&self, rank: u32) {
        self.lock().failing = Some(rank.into());
    }

    pub(crate) fn url(&self) -> String {
        self.worker.url()
    }

    pub(crate) fn rank_url(&self, rank: u32) -> String {
        format!("{}@{rank}", self.url())
    }

    /// How often it was asked for this path, whatever the query.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.lock().asked.get(path).copied().unwrap_or(0)
    }

    /// The ranks of the requests so far; `None` of those without one.
    pub(crate) fn sent(&self) -> Vec<Option<u64>> {
        self.lock().sent.clone()
    }

    /// How many requests it turned away.
    pub(crate) fn refused(&self) -> usize {
        self.lock().refused
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }
}

fn serve(conn: &mut Conn, request: &Message, state: &Mutex<State>, go: &Latch) -> bool {
    let target = request.first.split(' ').nth(1).expect("a path");
    let path = target.split('?').next().unwrap_or(target);
    let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let mut state = state.lock().expect("not poisoned");
    *state.asked.entry(path.to_owned()).or_default() += 1;
    let (status, body) = match path {
        "/health" | "/flush_cache" | "/abort_request" => ("200 OK", json!({})),
        "/server_info" => ("200 OK", state.info.clone()),
        "/v1/loads" => {
            state.loads.map_or_else(|| ("200 OK", report(&state.tokens)), |status| (status, json!({})))
        }
        _ if request.first.starts_with("POST ") => state.take(&body),
        _ => ("404 Not Found", json!({})),
    };
    drop(state);
    if request.text().contains(HOLD) {
        go.wait();
    }
    conn.answer(status, "Content-Type: application/json\r\n", body.to_string().as_bytes());
    true
}

impl State {
    fn take(&mut self, body: &Value) -> (&'static str, Value) {
        if !body.is_object() {
            self.refused += 1;
            return ("400 Bad Request", json!({"error": {"message": "the body is not a JSON object"}}));
        }
        let rank = body["data_parallel_rank"].as_u64();
        let is_own = rank.is_none_or(|rank| self.tokens.keys().any(|own| u64::from(*own) == rank));
        self.sent.push(rank);
        self.refused += usize::from(!is_own);
        match is_own {
            true if rank.is_some() && rank == self.failing => ("500 Internal Server Error", json!({})),
            true => ("200 OK", json!({"text": "ok"})),
            false => ("400 Bad Request", json!({"error": {"message": "data_parallel_rank is out of range"}})),
        }
    }
}

fn report(tokens: &BTreeMap<u32, u64>) -> Value {
    let rank = |(rank, tokens): (&u32, &u64)| {
        json!({"dp_rank": rank, "num_running_reqs": 0, "num_waiting_reqs": 0, "num_used_tokens": tokens,
            "num_total_tokens": tokens, "token_usage": 0.1})
    };
    json!({"version": "0.5", "loads": tokens.iter().map(rank).collect::<Vec<_>>()})
}
