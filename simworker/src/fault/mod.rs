//! Faults on demand: what can go wrong between a client and a worker, set at the start or while the worker runs.
//!
//! A worker has a list of faults. For each request the list is read from the top; every fault that covers the request
//! adds what it does to the request's plan, but for what a fault above it does already. So faults combine
//! (a delay and a reset), and of two with the same effect the first one that still applies counts.

mod form;
mod kind;
mod plan;
mod table;

use std::time::Duration;

use hyper::Method;
use parking_lot::Mutex;
use protocol::tokenizer::mix;

pub use form::{Assigned, FaultError};
pub(crate) use form::{from_json, merge, to_json};
pub use kind::{Garbage, Kind, Lie, Mangle, Refuse, Skew};
pub use plan::Point;
pub(crate) use plan::{Cut, HandoffPlan, How, Plan, StatusAnswer};
pub use table::help;
use table::{Row, Scope};
pub(crate) use table::{is_of_engines, is_of_handoffs};

/// A fault with all that was said about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    row: &'static Row,
    /// As it was given.
    value: String,
    kind: Kind,
    options: Options,
}

impl Fault {
    /// Its name.
    pub(crate) fn key(&self) -> &'static str {
        self.row.key
    }

    /// Whether it is about an engine.
    pub(crate) fn is_of_engines(&self) -> bool {
        is_of_engines(self.row.key)
    }

    /// Whether it is about the KV that a prefill worker sends.
    pub(crate) fn is_of_handoffs(&self) -> bool {
        is_of_handoffs(self.row.key)
    }

    /// Whether it is about published KV events.
    pub(crate) fn is_of_kv_events(&self) -> bool {
        self.row.scope == Scope::KvEvents
    }
}

/// When a fault applies, and details of its effect.
#[derive(Debug, Clone, PartialEq)]
struct Options {
    /// Only to the next so many requests.
    times: Option<u64>,
    /// Only to this share of the requests, drawn for each.
    probability: f64,
    /// Only to requests whose path begins like this, whatever their method.
    path: Option<String>,
    /// The body of a made-up answer.
    body: Option<String>,
    /// Its header `Retry-After`.
    retry_after: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { times: None, probability: 1.0, path: None, body: None, retry_after: None }
    }
}

/// A fault in force.
#[derive(Debug)]
pub(crate) struct Active {
    fault: Fault,
    /// Requests it has been applied to.
    hits: u64,
}

impl Active {
    /// These faults, none of which has been applied yet.
    pub(crate) fn all(faults: Vec<Fault>) -> Vec<Self> {
        faults.into_iter().map(|fault| Self { fault, hits: 0 }).collect()
    }
}

/// The faults of one worker.
#[derive(Debug)]
pub(crate) struct Faults {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    active: Vec<Active>,
    seed: u64,
    draws: u64,
}

impl Faults {
    /// These faults; `seed` decides what is drawn.
    pub(crate) fn new(faults: Vec<Fault>, seed: u64) -> Self {
        Self { inner: Mutex::new(Inner { active: Active::all(faults), seed, draws: 0 }) }
    }

    /// Changes the list.
    pub(crate) fn edit<T>(&self, act: impl FnOnce(&mut Vec<Active>) -> T) -> T {
        act(&mut self.inner.lock().active)
    }

    /// What is to happen to this request. Counts it where that matters. `queued` tells the length of the worker's queue.
    pub(crate) fn plan(&self, method: &Method, path: &str, queued: &dyn Fn() -> u64) -> Plan {
        let mut plan = Plan::default();
        self.apply(
            |row, options| row.scope.covers(method, path, options.path.as_deref()),
            |Fault { kind, options, .. }, hits| kind.plan(options, hits, queued, &mut plan),
        );
        plan
    }

    /// What is to happen to this hand-off of KV. Counts it where that matters.
    pub(crate) fn plan_handoff(&self) -> HandoffPlan {
        let mut plan = HandoffPlan::default();
        self.apply(|row, _| row.scope == Scope::Handoffs, |fault, _| fault.kind.plan_handoff(&mut plan));
        plan
    }

    /// What is to happen to this batch of KV events. Counts it where that matters.
    pub(crate) fn plan_kv_batch(&self) -> Option<Mangle> {
        let mut plan = None;
        self.apply(|row, _| row.scope == Scope::KvEvents, |fault, _| fault.kind.plan_kv_batch(&mut plan));
        plan
    }

    fn apply(&self, covers: impl Fn(&Row, &Options) -> bool, mut add: impl FnMut(&Fault, u64) -> bool) {
        let Inner { active, seed, draws } = &mut *self.inner.lock();
        for Active { fault, hits } in active {
            let Fault { row, options, .. } = &*fault;
            let covered = covers(row, options) && options.times.is_none_or(|times| *hits < times);
            if covered && drawn(*seed, draws, options.probability) && add(fault, *hits) {
                *hits += 1;
            }
        }
    }

    /// Who is refused, if anybody is.
    pub(crate) fn refuse(&self) -> Option<Refuse> {
        self.find(|kind| if let Kind::Refuse(who) = kind { Some(*who) } else { None })
    }

    /// How long a connection may be idle.
    pub(crate) fn idle_close(&self) -> Option<Duration> {
        self.find(|kind| if let Kind::IdleClose(span) = kind { Some(*span) } else { None })
    }

    /// Whether the process is gone.
    pub(crate) fn dead(&self) -> bool {
        self.find(|kind| (*kind == Kind::Die).then_some(())).is_some()
    }

    /// How many times as long as it should a step takes.
    pub(crate) fn slowness(&self) -> f64 {
        self.find(|kind| if let Kind::Slow(factor) = kind { Some(*factor) } else { None }).unwrap_or(1.0)
    }

    /// Whether loads keep their values.
    pub(crate) fn frozen(&self) -> bool {
        self.find(|kind| (*kind == Kind::Loads(Lie::Frozen)).then_some(())).is_some()
    }

    fn find<T>(&self, what: impl FnMut(&Kind) -> Option<T>) -> Option<T> {
        self.inner.lock().active.iter().map(|active| &active.fault.kind).find_map(what)
    }
}

/// Draws with this probability; certainty draws nothing.
fn drawn(seed: u64, draws: &mut u64, probability: f64) -> bool {
    if probability >= 1.0 {
        return true;
    }
    *draws += 1;
    (mix(seed ^ mix(*draws)) >> 11) as f64 / (1u64 << 53) as f64 <= probability && probability > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(list: &[&str]) -> Faults {
        let list = list.iter().map(|text| Assigned::parse(text).unwrap().fault).collect();
        Faults::new(list, 1)
    }

    #[test]
    fn times_are_counted_and_then_the_next_fault_applies() {
        let faults = faults(&["status=503,times=2", "status=500"]);
        let status = || faults.plan(&Method::POST, "/generate", &|| 0).status.unwrap().status;
        assert_eq!([status(), status(), status()], [503, 503, 500]);
    }

    #[test]
    fn a_fault_covers_bodies_or_its_path() {
        let faults = faults(&["status=503", "delay-head=1s,path=/v1/models"]);
        let plan = |method, path| faults.plan(&method, path, &|| 0);
        assert!(plan(Method::POST, "/generate").status.is_some());
        assert_eq!(plan(Method::GET, "/server_info"), Plan::default());
        assert_eq!(plan(Method::GET, "/v1/models").delay_head, Some(Duration::from_secs(1)));
    }

    #[test]
    fn effects_combine() {
        let plan = faults(&["delay-chunk=1ms", "reset=3chunks", "close-after-answer=on"]).plan(
            &Method::POST,
            "/v1/completions",
            &|| 0,
        );
        assert_eq!(plan.delay_chunk, Some(Duration::from_millis(1)));
        assert_eq!(plan.cut, Some(Cut { point: Point::Chunks(3), how: How::Reset }));
        assert!(plan.close_after);
    }

    #[test]
    fn probability_is_a_share() {
        let faults = faults(&["status=503,probability=0.25"]);
        let hits = (0..4000).filter(|_| faults.plan(&Method::POST, "/", &|| 0).status.is_some()).count();
        assert!((900..1100).contains(&hits), "{hits}");
        let never = self::faults(&["status=503,probability=0"]);
        assert_eq!(never.plan(&Method::POST, "/", &|| 0), Plan::default());
    }

    #[test]
    fn rejections_go_by_the_queue_and_only_they_count() {
        let faults = faults(&["reject-above=2,times=2,retry-after=1"]);
        let rejected = |queued: u64| faults.plan(&Method::POST, "/generate", &|| queued).status.is_some();
        assert_eq!([0, 1, 2, 1, 7, 9].map(rejected), [false, false, true, false, true, false]);
    }

    #[test]
    fn loads_can_be_frozen_and_connections_refused() {
        let faults = faults(&["loads=frozen", "refuse=all", "idle-close=2s"]);
        assert!(faults.frozen());
        assert_eq!((faults.refuse(), faults.idle_close()), (Some(Refuse::All), Some(Duration::from_secs(2))));
    }
}
