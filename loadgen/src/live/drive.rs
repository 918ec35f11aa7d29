//! The live driver: offers the plan to one URL and turns the answers into records.
//!
//! Latency counts from the moment a request was due, not from the moment it could be sent: a stalled server is not
//! excused by the requests it kept from starting. Closed loops have no such moment; there, due and sent are one.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use http::uri::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use protocol::record::RequestRecord;
use protocol::tokenizer::Token;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::LocalSet;

use super::faults::Deed;
use super::pacer::{Due, Pacer};
use super::places::Places;
use super::request::{self, Answer};
use super::{LiveError, pacer};
use crate::run::CLIENT_LEFT;
use crate::scenario::Faults;
use crate::workload::chain::{self, Chain, Followers};
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
    /// What of the times to first tokens the engines did not take.
    pub(super) router_ns: Histogram<u64>,
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
    sessions: RefCell<Sessions>,
    pacer: OnceCell<Pacer>,
}

/// What links requests with one another.
struct Sessions {
    chain: Chain,
    /// Replies that other prompts hold.
    replies: HashMap<u32, Vec<Token>>,
    /// When requests are due that wait for others, in run time.
    due_ns: HashMap<usize, u64>,
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
        let (replies, due_ns) = (HashMap::new(), HashMap::new());
        let sessions = RefCell::new(Sessions { chain: Chain::new(&requests), replies, due_ns });
        let (requests, undone, pacer) = (requests.into(), RefCell::new(None), OnceCell::new());
        Rc::new(Self { client, target, places, requests, clock, timeout, trouble, undone, sessions, pacer })
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
        let starts = || self.requests.iter().enumerate().filter(|(_, request)| request.after.is_none());
        let deadlines_ns = match pacing {
            Pacing::Open => starts().map(|(seq, r)| (seq, self.clock.wall_ns(r.at_ns))).collect(),
            Pacing::Closed { .. } => Vec::new(),
        };
        let (pacer, due) = pacer::start(self.clock.start, Arc::clone(&self.requests), deadlines_ns)?;
        let _ = self.pacer.set(pacer);
        let slots = match pacing {
            Pacing::Open => None,
            Pacing::Closed { concurrency } => Some(Arc::new(Semaphore::new(concurrency as usize))),
        };
        let offer = Offer { driver: Rc::clone(self), answers: send, slots };
        if offer.slots.is_some() {
            let starts: Vec<usize> = starts().map(|(seq, _)| seq).collect();
            tokio::task::spawn_local(offer.clone().one_for_one(starts));
        }
        tokio::task::spawn_local(offer.when_due(due));
        Ok(answers)
    }

    async fn one(&self, mut answer: Answer, seq: usize, body: Bytes) -> Answer {
        let key = self.requests[seq].routing_key();
        let context = (self.clock, &self.places);
        let exchange = request::exchange(&self.client, &self.target, key, body, context, &mut answer);
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
                    Some(answer) => {
                        let count = got.take(answer);
                        progress(count);
                        if count == self.requests.len() as u64 {
                            break;
                        }
                    }
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

/// How requests become answers.
#[derive(Clone)]
struct Offer {
    driver: Rc<Driver>,
    answers: mpsc::Sender<Answer>,
    /// Under closed pacing, the sessions that may be under way; a request of its own is a session.
    slots: Option<Arc<Semaphore>>,
}

impl Offer {
    /// Sends what the pacer releases.
    async fn when_due(self, mut due: mpsc::Receiver<Due>) {
        while let Some(Due { seq, body }) = due.recv().await {
            let planned = &self.driver.requests[seq];
            let due_ns = self.driver.sessions.borrow_mut().due_ns.remove(&seq);
            self.send(seq, body, Some(due_ns.unwrap_or(planned.at_ns)));
        }
    }

    /// Sends these, each when a slot is free.
    async fn one_for_one(self, starts: Vec<usize>) {
        let Some(slots) = self.slots.clone() else { return };
        // Before its start the clock stands still.
        tokio::time::sleep_until(self.driver.clock.start.into()).await;
        for seq in starts {
            let body = request::body(&self.driver.requests[seq], |_, _| {});
            let Ok(slot) = slots.acquire().await else { return };
            // It comes back when the session has ended.
            slot.forget();
            self.send(seq, body, None);
        }
    }

    /// Sends one request in a task of its own.
    fn send(&self, seq: usize, body: Bytes, due_ns: Option<u64>) {
        let offer = self.clone();
        let keeps_reply = self.driver.sessions.borrow().chain.keeps_reply(seq);
        let planned = &self.driver.requests[seq];
        let answer = Answer::begin(planned, due_ns, self.driver.clock.now_ns(), keeps_reply);
        tokio::task::spawn_local(async move {
            let mut answer = offer.driver.one(answer, seq, body).await;
            offer.go_on(seq, &mut answer);
            let _ = offer.answers.send(answer).await;
        });
    }

    /// Lets those go on that waited for a request, or tells them that they never will.
    fn go_on(&self, seq: usize, answer: &mut Answer) {
        let whole = answer.record.succeeded();
        let Followers { freed, lost, session_ended } = {
            let mut sessions = self.driver.sessions.borrow_mut();
            if let Some(reply) = answer.take_reply().filter(|_| whole) {
                sessions.replies.insert(seq as u32, reply);
            }
            sessions.chain.ended(seq, whole)
        };
        for follower in freed {
            self.driver.release(follower, answer.record.last_ns);
        }
        for follower in lost {
            let planned = &self.driver.requests[follower];
            let now_ns = answer.record.last_ns;
            let mut never_sent = Answer::begin(planned, Some(now_ns), now_ns, false);
            never_sent.record.error = chain::never_sent(&answer.record).to_owned();
            // The queue holds every answer that can come.
            let _ = self.answers.try_send(never_sent);
        }
        if session_ended && let Some(slots) = &self.slots {
            slots.add_permits(1);
        }
    }
}

impl Driver {
    /// Hands a request to the pacer whose last predecessor ended at `ended_ns`.
    fn release(&self, seq: usize, ended_ns: u64) {
        let planned = &self.requests[seq];
        let think_ns = planned.after.as_ref().map_or(0, |after| after.think_ns);
        let due_ns = ended_ns.saturating_add(think_ns);
        let mut sessions = self.sessions.borrow_mut();
        let body = request::body(planned, |before, tokens| {
            tokens.extend(sessions.replies.get(&before).map_or(&[][..], Vec::as_slice));
        });
        sessions.due_ns.insert(seq, due_ns);
        if let Some(pacer) = self.pacer.get() {
            pacer.release(seq, body, self.clock.start + Duration::from_nanos(self.clock.wall_ns(due_ns)));
        }
    }
}

/// The answers so far, by place.
struct Collected {
    records: Vec<Option<RequestRecord>>,
    count: u64,
    itl_ns: Histogram<u64>,
    router_ns: Histogram<u64>,
}

impl Collected {
    fn new(requests: usize) -> Self {
        let empty = crate::run::latency_histogram;
        Self { records: vec![None; requests], count: 0, itl_ns: empty(), router_ns: empty() }
    }

    /// Takes in an answer and says how many there are.
    fn take(&mut self, answer: Answer) -> u64 {
        if answer.record.succeeded() {
            if let Some(router_ns) = answer.router_ns() {
                self.router_ns.saturating_record(router_ns);
            }
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
            let mut record = planned.record(at_ns, at_ns);
            record.error = "given up: the cluster had died".to_owned();
            record
        };
        let records = self.records.into_iter().zip(requests);
        let records = records.map(|(record, planned)| record.unwrap_or_else(|| given_up(planned))).collect();
        Driven { records, itl_ns: self.itl_ns, router_ns: self.router_ns, undone: None }
    }
}
