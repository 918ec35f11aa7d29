//! The live driver: offers the plan to one URL and turns the answers into records.
//!
//! Latency counts from the moment a request was due, not from the moment it could be sent: a stalled server is not
//! excused by the requests it kept from starting. Closed loops have no such moment; there, due and sent are one.

use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::uri::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use protocol::record::RequestRecord;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;

use super::request::{self, Answer};
use super::{LiveError, pacer};
use crate::workload::{Pacing, Plan, PlannedRequest};

/// Time between the start of the clock and the first send, so that the first requests are not late by set-up.
const LEAD_IN: Duration = Duration::from_millis(50);
/// Most that one request may take, in wall time: nothing hangs.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// What a live run measured.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) records: Vec<RequestRecord>,
    pub(super) itl_ns: Histogram<u64>,
}

/// Sends every request of `plan` to the router at `url`.
pub(super) fn drive(
    url: &str,
    plan: Plan,
    speed: f64,
    progress: &mut dyn FnMut(u64),
) -> Result<Driven, LiveError> {
    let invalid = |e: http::uri::InvalidUri| LiveError::Driver(std::io::Error::other(e));
    let target = format!("{url}/generate").parse::<Uri>().map_err(invalid)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LiveError::Driver)?;
    let tasks = LocalSet::new();
    runtime.block_on(tasks.run_until(offer(target, plan, speed, progress)))
}

/// What every request task shares.
struct Shared {
    client: request::HttpClient,
    target: Uri,
    requests: Vec<PlannedRequest>,
    clock: WallClock,
}

/// Run time, in nanoseconds, out of wall time that may run faster.
#[derive(Clone, Copy)]
pub(super) struct WallClock {
    start: Instant,
    speed: f64,
}

impl WallClock {
    /// Run time now.
    pub(super) fn now_ns(&self) -> u64 {
        (self.start.elapsed().as_nanos() as f64 * self.speed) as u64
    }

    /// Wall time after the start at which run time is `ns`.
    fn wall_ns(&self, ns: u64) -> u64 {
        (ns as f64 / self.speed) as u64
    }
}

async fn offer(
    target: Uri,
    plan: Plan,
    speed: f64,
    progress: &mut dyn FnMut(u64),
) -> Result<Driven, LiveError> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(usize::MAX).build(connector);
    let clock = WallClock { start: Instant::now() + LEAD_IN, speed };
    let total = plan.requests.len();
    let shared = Rc::new(Shared { client, target, requests: plan.requests, clock });
    // Holds every answer that can ever come, so that no task waits for the collector.
    let (send, mut answers) = mpsc::channel(total.max(1));
    match plan.pacing {
        Pacing::Open => {
            let due = shared.requests.iter().map(|r| clock.wall_ns(r.at_ns)).collect();
            let mut due = pacer::start(clock.start, due).map_err(LiveError::Driver)?;
            let shared = Rc::clone(&shared);
            tokio::task::spawn_local(async move {
                while let Some(seq) = due.recv().await {
                    let due_ns = shared.requests[seq].at_ns;
                    tokio::task::spawn_local(one(Rc::clone(&shared), seq, Some(due_ns), send.clone()));
                }
            });
        }
        Pacing::Closed { concurrency } => {
            let shared = Rc::clone(&shared);
            tokio::task::spawn_local(async move {
                let permits = Arc::new(Semaphore::new(concurrency as usize));
                for seq in 0..total {
                    let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
                    let (shared, send) = (Rc::clone(&shared), send.clone());
                    tokio::task::spawn_local(async move {
                        one(shared, seq, None, send).await;
                        drop(permit);
                    });
                }
            });
        }
    }
    let mut driven = Driven { records: Vec::with_capacity(total), itl_ns: crate::run::latency_histogram() };
    while let Some(answer) = answers.recv().await {
        for (gap_ns, tokens) in answer.gaps_ns {
            driven.itl_ns.saturating_record_n(gap_ns, tokens);
        }
        driven.records.push(answer.record);
        progress(driven.records.len() as u64);
    }
    driven.records.sort_by_key(|record| record.seq);
    Ok(driven)
}

async fn one(shared: Rc<Shared>, seq: usize, due_ns: Option<u64>, send: mpsc::Sender<Answer>) {
    let planned = &shared.requests[seq];
    let mut answer = Answer::begin(planned, due_ns, shared.clock.now_ns());
    let exchange = request::exchange(&shared.client, &shared.target, planned, shared.clock, &mut answer);
    let outcome = match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no end within {REQUEST_TIMEOUT:?}")),
    };
    answer.record.last_ns = shared.clock.now_ns();
    if let Err(error) = outcome {
        answer.record.error = error;
    }
    let _ = send.send(answer).await;
}
