//! The live driver: offers the plan to one URL and turns the answers into records.
//!
//! Latency counts from the moment a request was due, not from the moment it could be sent: a stalled server is not
//! excused by the requests it kept from starting. Closed loops have no such moment; there, due and sent are one.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::uri::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use protocol::record::RequestRecord;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;

use super::faults::Deed;
use super::pacer::Due;
use super::places::Places;
use super::request::{self, Answer};
use super::{LiveError, pacer};
use crate::run::CLIENT_LEFT;
use crate::scenario::Faults;
use crate::workload::mishaps::Mishaps;
use crate::workload::{Pacing, Plan, PlannedRequest};

/// Time between the start of the clock and the first send, so that the first requests are not late by set-up.
const LEAD_IN: Duration = Duration::from_millis(50);
/// Most that one request may take, in wall time, at real-time speed or faster: nothing hangs.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
/// How often it is looked whether the cluster still lives.
const PULSE: Duration = Duration::from_millis(200);
/// How long requests in flight may take to fail when it does not.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a live run measured.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) records: Vec<RequestRecord>,
    pub(super) itl_ns: Histogram<u64>,
    /// A fault that could not be brought about, in words.
    pub(super) undone: Option<String>,
}

/// What goes wrong in the course of a run by this side's doing.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) deeds: Vec<Deed>,
    pub(super) faults: Faults,
    pub(super) mishaps: Mishaps,
}

/// Sends every request of `plan` to the router at `url`, for as long as the cluster `is_alive`.
pub(super) fn drive(
    url: &str,
    places: Places,
    plan: Plan,
    speed: f64,
    trouble: Trouble,
    is_alive: &mut dyn FnMut() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Driven, LiveError> {
    let invalid = |e: http::uri::InvalidUri| LiveError::Driver(std::io::Error::other(e));
    let target = format!("{url}/generate").parse::<Uri>().map_err(invalid)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LiveError::Driver)?;
    let driver = Driver::new(target, places, plan.requests, speed, trouble);
    LocalSet::new().block_on(&runtime, async {
        driver.make_trouble();
        let answers = driver.offer(plan.pacing).map_err(LiveError::Driver)?;
        Ok(driver.collect(answers, is_alive, progress).await)
    })
}

/// Run time, in nanoseconds, out of wall time that may run faster.
#[derive(Debug, Clone, Copy)]
pub(super) struct WallClock {
    start: Instant,
    speed: f64,
}

impl WallClock {
    /// A clock that starts after the lead-in.
    pub(super) fn new(speed: f64) -> Self {
        Self { start: Instant::now() + LEAD_IN, speed }
    }

    /// Run time now.
    pub(super) fn now_ns(&self) -> u64 {
        (self.start.elapsed().as_nanos() as f64 * self.speed) as u64
    }

    /// Wall time after the start at which run time is `ns`.
    fn wall_ns(&self, ns: u64) -> u64 {
        (ns as f64 / self.speed) as u64
    }
}

/// What every request task shares.
struct Driver {
    client: request::HttpClient,
    target: Uri,
    places: Places,
    requests: Arc<[PlannedRequest]>,
    clock: WallClock,
    timeout: Duration,
    trouble: Trouble,
    undone: RefCell<Option<String>>,
}

impl Driver {
    fn new(
        target: Uri,
        places: Places,
        requests: Vec<PlannedRequest>,
        speed: f64,
        trouble: Trouble,
    ) -> Rc<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(usize::MAX).build(connector);
        let timeout = REQUEST_TIMEOUT.div_f64(speed.min(1.0));
        let clock = WallClock::new(speed);
        let (requests, undone) = (requests.into(), RefCell::new(None));
        Rc::new(Self { client, target, places, requests, clock, timeout, trouble, undone })
    }

    /// Does every deed at its time. What cannot be done is kept: a run without its faults proves nothing.
    fn make_trouble(self: &Rc<Self>) {
        for deed in self.trouble.deeds.clone() {
            let driver = Rc::clone(self);
            tokio::task::spawn_local(async move {
                let due = driver.clock.start + Duration::from_nanos(driver.clock.wall_ns(deed.at_ns));
                tokio::time::sleep_until(due.into()).await;
                if let Err(why) = deed.done(&driver.client).await {
                    driver.undone.borrow_mut().get_or_insert(why);
                }
            });
        }
    }

    /// Starts to send; the returned queue holds every answer that can ever come, so that no task waits for the
    /// collector.
    fn offer(self: &Rc<Self>, pacing: Pacing) -> std::io::Result<mpsc::Receiver<Answer>> {
        let (send, answers) = mpsc::channel(self.requests.len().max(1));
        let driver = Rc::clone(self);
        match pacing {
            Pacing::Open => {
                let deadlines_ns = self.requests.iter().map(|r| self.clock.wall_ns(r.at_ns)).collect();
                let due = pacer::start(self.clock.start, Arc::clone(&self.requests), deadlines_ns)?;
                tokio::task::spawn_local(driver.offer_when_due(due, send));
            }
            Pacing::Closed { concurrency } => {
                tokio::task::spawn_local(driver.offer_one_for_one(concurrency, send));
            }
        }
        Ok(answers)
    }

    async fn offer_when_due(self: Rc<Self>, mut due: mpsc::Receiver<Due>, send: mpsc::Sender<Answer>) {
        while let Some(Due { seq, body }) = due.recv().await {
            let answer =
                Answer::begin(&self.requests[seq], Some(self.requests[seq].at_ns), self.clock.now_ns());
            let (driver, send) = (Rc::clone(&self), send.clone());
            tokio::task::spawn_local(async move {
                let _ = send.send(driver.one(answer, seq, body).await).await;
            });
        }
    }

    async fn offer_one_for_one(self: Rc<Self>, concurrency: u32, send: mpsc::Sender<Answer>) {
        let permits = Arc::new(Semaphore::new(concurrency as usize));
        for seq in 0..self.requests.len() {
            let body = request::body(&self.requests[seq]);
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
            let answer = Answer::begin(&self.requests[seq], None, self.clock.now_ns());
            let (driver, send) = (Rc::clone(&self), send.clone());
            tokio::task::spawn_local(async move {
                let _ = send.send(driver.one(answer, seq, body).await).await;
                drop(permit);
            });
        }
    }

    async fn one(&self, mut answer: Answer, seq: usize, body: bytes::Bytes) -> Answer {
        let group = self.requests[seq].group;
        let context = (self.clock, &self.places);
        let exchange = request::exchange(&self.client, &self.target, group, body, context, &mut answer);
        let left = self.trouble.mishaps.client_leaves(&self.trouble.faults, seq as u64);
        let left = left.map(|after_ns| Duration::from_nanos(self.clock.wall_ns(after_ns)));
        let patience = left.unwrap_or(self.timeout).min(self.timeout);
        let outcome = match tokio::time::timeout(patience, exchange).await {
            Ok(outcome) => outcome,
            Err(_) if left == Some(patience) => Err(CLIENT_LEFT.to_owned()),
            Err(_) => Err(format!("no end within {:?}", self.timeout)),
        };
        answer.record.last_ns = self.clock.now_ns();
        if let Err(error) = outcome {
            answer.record.error = error;
        }
        answer
    }

    /// Takes in the answers until all are there or the cluster is dead.
    async fn collect(
        &self,
        mut answers: mpsc::Receiver<Answer>,
        is_alive: &mut dyn FnMut() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Driven {
        let mut got = Collected::new(self.requests.len());
        let mut pulse = tokio::time::interval(PULSE);
        loop {
            tokio::select! {
                answer = answers.recv() => match answer {
                    Some(answer) => progress(got.take(answer)),
                    None => break,
                },
                _ = pulse.tick() => if is_alive() {
                    progress(got.count);
                } else {
                    let last_words = async {
                        while let Some(answer) = answers.recv().await {
                            got.take(answer);
                        }
                    };
                    let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
                    break;
                },
            }
        }
        Driven { undone: self.undone.take(), ..got.finish(&self.requests, self.clock.now_ns()) }
    }
}

/// The answers so far, by place.
struct Collected {
    records: Vec<Option<RequestRecord>>,
    count: u64,
    itl_ns: Histogram<u64>,
}

impl Collected {
    fn new(requests: usize) -> Self {
        Self { records: vec![None; requests], count: 0, itl_ns: crate::run::latency_histogram() }
    }

    /// Takes in an answer and says how many there are.
    fn take(&mut self, answer: Answer) -> u64 {
        if answer.record.succeeded() {
            for (gap_ns, tokens) in answer.gaps_ns {
                self.itl_ns.saturating_record_n(gap_ns, tokens);
            }
        }
        let place = answer.record.seq as usize;
        self.records[place] = Some(answer.record);
        self.count += 1;
        self.count
    }

    /// All records; a request without an answer was given up when the cluster died.
    fn finish(self, requests: &[PlannedRequest], now_ns: u64) -> Driven {
        let given_up = |planned: &PlannedRequest| {
            let at_ns = planned.at_ns.min(now_ns);
            let mut record = RequestRecord::sent(planned.seq, planned.group, at_ns, at_ns);
            record.error = "given up: the cluster had died".to_owned();
            record
        };
        let records = self.records.into_iter().zip(requests);
        let records = records.map(|(record, planned)| record.unwrap_or_else(|| given_up(planned))).collect();
        Driven { records, itl_ns: self.itl_ns, undone: None }
    }
}
