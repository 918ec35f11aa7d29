//! What is noted of a request: counted in the metrics as it happens, and written to the access log when it is over.
//!
//! A note is opened when the request's head is there and closed exactly once: when the last byte of the answer has
//! gone, or when the note is dropped before that, because the client has left.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderValue, StatusCode};
use router_core::{Assignment, Cause, Leg, Outcome, Role};

use super::flow::{Flow, Seen};
use super::meter::Counts;
use super::prepare::{Booked, BookedLeg};
use crate::access_log::{self, Decision, Matched, Record};
use crate::error::Refusal;
use crate::fleet::Rank;
use crate::metrics::{self, Backend, End, RequestError, Slot, WorkerError};
use crate::record::line::{Line, Request};
use crate::server::Context;
use crate::shared::Shared;
use crate::stop::Stop;

/// The note of one request. It is moved often, so what it holds is elsewhere.
pub(crate) struct Note(Box<Facts>);

struct Facts {
    shared: Arc<Shared>,
    /// Taken when the note is closed.
    slot: Option<Slot>,
    /// In the endpoint table.
    endpoint: usize,
    /// Where what is counted by the endpoint's label is counted.
    group: usize,
    request_id: HeaderValue,
    arrived_ns: u64,
    model: Arc<metrics::Model>,
    /// The beginning of the name of a model that nobody stated.
    asked: Option<Box<str>>,
    streaming: bool,
    estimated_prompt_tokens: Option<u64>,
    queue_ns: Option<u64>,
    /// The wait is over, and nothing has shown yet whether it was let in.
    queue_open: bool,
    tries: u32,
    /// Of the leg that answers.
    last_try: Option<Try>,
    /// Of the prefill leg, if there was one.
    last_prefill: Option<Box<Try>>,
    /// By what kind of plan it is served, by the last try.
    backend: Backend,
    /// The leg by which the last try failed.
    failed_leg: Leg,
    /// The leg of a pair that failed last, and its worker.
    failed: Option<(&'static str, Arc<Rank>)>,
    /// The leg whose answer came last.
    answering: Leg,
    head: Option<Head>,
    flow: Flow,
    timed_out: bool,
    /// The number of its last look in the recording; 0 for none.
    look: u64,
}

/// The last assignment.
struct Try {
    worker: Arc<Rank>,
    assignment: Assignment,
    /// Neither a response head nor a failure of it is known.
    open: bool,
}

/// The response head that went to the client.
#[derive(Clone, Copy)]
struct Head {
    status: StatusCode,
    /// Absent if the answer is a worker's.
    refusal: Option<Refusal>,
}

impl Note {
    /// A request came to this row of the endpoint table.
    pub(crate) fn begin(context: &Context, endpoint: usize, request_id: HeaderValue) -> Self {
        let shared = &context.shared;
        let arrived_ns = shared.clock.now_ns();
        shared.metrics.arrived(endpoint);
        Self(Box::new(Facts {
            slot: Some(shared.metrics.in_flight.enter(context.thread, arrived_ns)),
            endpoint,
            group: shared.metrics.group(endpoint),
            request_id,
            arrived_ns,
            model: shared.metrics.routes.model(None),
            asked: None,
            streaming: false,
            estimated_prompt_tokens: None,
            queue_ns: None,
            queue_open: false,
            tries: 0,
            last_try: None,
            last_prefill: None,
            backend: Backend::Regular,
            failed_leg: Leg::Whole,
            failed: None,
            answering: Leg::Whole,
            head: None,
            flow: Flow::new(false),
            timed_out: false,
            look: 0,
            shared: Arc::clone(shared),
        }))
    }

    /// The body was read: it asks for the model `asked`, which is `model` among those that workers stated; the prompt's
    /// length is an estimate.
    pub(crate) fn looked(
        &mut self,
        streaming: bool,
        asked: Option<&str>,
        model: Option<&str>,
        prompt_tokens: u64,
    ) {
        let facts = &mut *self.0;
        facts.let_in();
        facts.streaming = streaming;
        facts.estimated_prompt_tokens = Some(prompt_tokens);
        if model.is_some() {
            facts.model = facts.shared.metrics.routes.model(model);
        } else if facts.asked.is_none() {
            facts.asked = asked.map(access_log::excerpt);
        }
    }

    /// Tells the operator what went wrong with a leg of the last try, by the names that the access log has.
    pub(crate) fn complain(&self, leg: Leg, problem: impl std::fmt::Display) {
        let facts = &*self.0;
        let worker = facts.tried_by(leg).map_or("-", |tried| &tried.worker.url);
        let request_id = facts.request_id.to_str().unwrap_or("-");
        tracing::warn!(request_id, worker, leg = of_pair(leg), "{problem}");
    }

    /// The same of the leg whose answer goes to the client.
    pub(crate) fn complain_of_answer(&self, problem: impl std::fmt::Display) {
        self.complain(self.0.answering, problem);
    }

    /// It waited so long, beside what it had waited before, for the limit on concurrent requests, and was let in unless the
    /// next word is a refusal.
    pub(crate) fn queued(&mut self, wait_ns: u64) {
        self.0.queue_ns = Some(self.0.queue_ns.unwrap_or_default().saturating_add(wait_ns));
        self.0.queue_open = true;
    }

    /// It is recorded under this number.
    pub(super) fn recorded(&mut self, look: u64) {
        self.0.look = look;
    }

    /// Its workers get it.
    pub(super) fn assigned(&mut self, booked: &Booked) {
        let facts = &mut *self.0;
        facts.tries += 1;
        facts.backend = if booked.prefill.is_some() { Backend::Pair } else { Backend::Regular };
        if facts.tries == 1 {
            let routed = &facts.row().routed;
            routed[usize::from(facts.streaming)].fetch_add(1, Ordering::Relaxed);
        }
        let prefill = booked.prefill.as_ref();
        facts.last_prefill = prefill.map(|leg| Box::new(facts.tried(Role::Prefill, leg)));
        let role = prefill.map_or(Role::Regular, |_| Role::Decode);
        facts.last_try = Some(facts.tried(role, &booked.decode));
    }

    /// The last try failed by this leg; whether another one follows is not known yet.
    pub(crate) fn failing(&mut self, leg: Leg) {
        self.0.failed_leg = leg;
    }

    /// This leg of the last try failed, and another try follows after this wait.
    pub(crate) fn try_failed(&mut self, leg: Leg, cause: Cause, wait_ns: u64) {
        let facts = &mut *self.0;
        facts.failed_by(leg);
        facts.shared.metrics.retried(facts.endpoint, leg, facts.tries, cause, wait_ns);
        facts.blame(leg, WorkerError::of_cause(cause));
    }

    /// The worker of this leg has failed so, as an answer of success tells, or the other leg's.
    pub(crate) fn judged(&mut self, leg: Leg, error: Option<WorkerError>) {
        self.0.blame(leg, error);
    }

    /// Nobody knows whose fault it is that the last try failed.
    pub(crate) fn absolve(&mut self) {
        self.0.blame(Leg::Prefill, None);
        self.0.blame(Leg::Whole, None);
    }

    /// The last try failed in a way that another one could mend, and none follows.
    pub(crate) fn exhausted(&mut self) {
        self.0.shared.metrics.exhausted(self.0.endpoint, self.0.failed_leg);
    }

    /// The response head of a leg of the last try came.
    pub(crate) fn upstream_head(&mut self, leg: Leg, status: StatusCode) {
        let facts = &mut *self.0;
        facts.shared.metrics.upstream_answered(status);
        facts.answering = leg;
        facts.blame(leg, status.is_server_error().then_some(WorkerError::Status));
    }

    /// The response head that goes to the client, with the refusal if it is the router's own.
    pub(crate) fn answered(&mut self, status: StatusCode, refusal: Option<Refusal>) {
        let facts = &mut *self.0;
        facts.shared.metrics.answered(status, refusal);
        if let Some(refusal) = refusal {
            facts.queue_open &= !metrics::is_turned_away(refusal);
            if WorkerError::of_refusal(refusal).is_some() {
                facts.failed_by(refusal.leg());
            }
            facts.blame(refusal.leg(), WorkerError::of_refusal(refusal));
            if refusal.leg() != Leg::Whole {
                facts.backend = Backend::Pair;
            }
        }
        if refusal.is_none() && !status.is_success() {
            facts.failed_by(facts.answering);
        }
        let kind = refusal
            .map_or_else(|| RequestError::of_status(status), |own| Some(RequestError::of_refusal(own)));
        if let Some(kind) = kind {
            facts.row().failed(kind);
        }
        facts.head = Some(Head { status, refusal });
        facts.flow = Flow::new(facts.streaming && status.is_success());
    }

    /// The model that it asks for, as far as its name is kept; what a client says is as long as the access log takes.
    pub(crate) fn model(&self) -> Option<&str> {
        self.0.asked.as_deref().or(self.0.model.stated())
    }

    /// The router's own answer is so long.
    pub(crate) fn answered_here(&mut self, bytes: u64) {
        self.0.flow.bytes = bytes;
    }

    /// A piece of the worker's answer came.
    pub(crate) fn see(&mut self, now_ns: u64, chunk: &[u8]) -> Seen {
        self.0.flow.see(now_ns, chunk)
    }

    /// One of the router's time limits ends the answer. To be said before [`Note::end`].
    pub(crate) fn timed_out(&mut self) {
        self.0.timed_out = true;
    }

    /// It is over: the last byte has gone, or the answer broke off. Returns how many tokens of the prompt the worker found in
    /// its cache, if it has said so in a whole answer.
    pub(crate) fn end(mut self, outcome: &Outcome) -> Option<u64> {
        self.0.close(Some(outcome));
        let (cached, _) = self.0.found().filter(|_| *outcome == Outcome::Completed)?;
        Some(cached)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.0.close(None);
    }
}

impl std::fmt::Debug for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Note").field("request_id", &self.0.request_id).finish_non_exhaustive()
    }
}

impl Try {
    fn decision(&self) -> Decision<'_> {
        let Self { worker, assignment, .. } = self;
        Decision {
            worker: &worker.url,
            policy: assignment.policy.row().name,
            reason: assignment.reason.as_str(),
            matched: assignment.predicted_cached_tokens.map(|predicted_tokens| Matched {
                chars: assignment.matched_chars,
                prompt_chars: assignment.prompt_chars,
                predicted_tokens,
            }),
        }
    }
}

/// The word for one of two legs.
fn of_pair(leg: Leg) -> Option<&'static str> {
    (leg != Leg::Whole).then(|| leg.label())
}

/// What is wrong with a worker whose answer ended so, if that was its failure.
fn broken_by(end: End) -> Option<WorkerError> {
    match end {
        End::Broken => Some(WorkerError::ConnectionLost),
        End::TimedOut => Some(WorkerError::Timeout),
        End::Complete | End::ClientGone | End::Refused | End::Shutdown => None,
    }
}

impl Facts {
    /// Where it is counted by model, endpoint and kind of plan.
    fn row(&self) -> &metrics::Row {
        self.model.row(self.group, self.backend)
    }

    /// Counts that a worker was chosen.
    fn tried(&self, role: Role, leg: &BookedLeg) -> Try {
        let (worker, assignment) = (Arc::clone(leg.worker()), leg.assignment);
        worker.metrics.selected(assignment.policy);
        self.shared.metrics.decided(role, &assignment);
        Try { worker, assignment, open: true }
    }

    /// This leg of the last try.
    fn tried_by(&self, leg: Leg) -> Option<&Try> {
        if leg == Leg::Prefill { self.last_prefill.as_deref() } else { self.last_try.as_ref() }
    }

    /// What became of a leg of the last try is known, and this was wrong with it.
    fn blame(&mut self, leg: Leg, error: Option<WorkerError>) {
        let tried =
            if leg == Leg::Prefill { self.last_prefill.as_deref_mut() } else { self.last_try.as_mut() };
        if let Some(tried) = tried
            && std::mem::take(&mut tried.open)
            && let Some(error) = error
        {
            tried.worker.metrics.failed(error);
        }
    }

    /// This leg of the last try failed, for the line about the request.
    fn failed_by(&mut self, leg: Leg) {
        if let (Some(word), Some(tried)) = (of_pair(leg), self.tried_by(leg)) {
            self.failed = Some((word, Arc::clone(&tried.worker)));
        }
    }

    /// The limit on concurrent requests has let it in.
    fn let_in(&mut self) {
        if let (true, Some(wait_ns)) = (std::mem::take(&mut self.queue_open), self.queue_ns) {
            self.shared.metrics.admitted(wait_ns);
        }
    }

    /// Without an outcome, the note was dropped.
    fn close(&mut self, outcome: Option<&Outcome>) {
        let Some(slot) = self.slot.take() else { return };
        self.let_in();
        let now_ns = self.shared.clock.now_ns();
        let end = self.how_it_ended(outcome);
        self.shared.metrics.in_flight.leave(slot);
        self.count(end, now_ns);
        let answering = self.tried_by(self.answering);
        if let (Some(error), Some(Outcome::Failed), Some(tried)) = (broken_by(end), outcome, answering) {
            tried.worker.metrics.failed(error);
            self.failed_by(self.answering);
        }
        if let Some(tape) = &self.shared.tape {
            tape.put(Line::Request(Box::new(self.outcome(end, now_ns))));
        }
        let form = self.shared.settings.access_log;
        if access_log::is_on(form) {
            access_log::write(form, &self.record(end, now_ns));
        }
    }

    fn how_it_ended(&self, outcome: Option<&Outcome>) -> End {
        match (self.head, outcome) {
            (Some(Head { refusal: Some(refusal), .. }), _) => match RequestError::of_refusal(refusal) {
                RequestError::Timeout => End::TimedOut,
                _ => End::Refused,
            },
            _ if self.timed_out => End::TimedOut,
            (_, None | Some(Outcome::ClientGone)) if self.shared.has_come_to(Stop::Now) => End::Shutdown,
            (_, None | Some(Outcome::ClientGone)) => End::ClientGone,
            (Some(head), Some(Outcome::Failed)) if head.status.is_server_error() => End::Complete,
            (_, Some(Outcome::Failed)) => End::Broken,
            (_, Some(Outcome::Completed | Outcome::Refused)) => End::Complete,
        }
    }

    /// Refusals of the worker and broken answers have no place in the histograms of answers; a stream's tokens count as
    /// far as they came.
    fn count(&self, end: End, now_ns: u64) {
        let metrics = &self.shared.metrics;
        let duration_ns = now_ns.saturating_sub(self.arrived_ns);
        metrics.ended(self.endpoint, end, duration_ns);
        let Some(tried) = &self.last_try else { return };
        let row = self.row();
        let flow = &self.flow;
        if let Some(first_ns) = flow.first_token_ns {
            row.first_token.observe(first_ns.saturating_sub(self.arrived_ns));
            row.gaps.merge(&flow.gaps);
        }
        if !self.head.is_some_and(|head| head.status.is_success()) {
            return;
        }
        match end {
            End::Broken => row.failed(RequestError::Backend),
            End::TimedOut => row.failed(RequestError::Timeout),
            End::ClientGone | End::Refused | End::Shutdown => {}
            End::Complete => self.count_success(row, tried, duration_ns),
        }
    }

    /// What an answer adds that came in full.
    fn count_success(&self, row: &metrics::Row, tried: &Try, duration_ns: u64) {
        row.duration.observe(duration_ns);
        let Flow { meter, first_token_ns, last_token_ns, .. } = &self.flow;
        if let Some(first_ns) = first_token_ns {
            let spent_ns = last_token_ns.saturating_sub(*first_ns);
            row.generation.observe(spent_ns);
            let gaps = meter.output_tokens().saturating_sub(1);
            if let Some(mean_ns) = spent_ns.checked_div(gaps) {
                row.per_token.observe(mean_ns);
            }
        }
        let Counts { prompt_tokens, completion_tokens, .. } = meter.counts();
        for (total, count) in row.tokens.iter().zip([prompt_tokens, completion_tokens]) {
            total.fetch_add(count.unwrap_or(0), Ordering::Relaxed);
        }
        if let Some((cached, prompt)) = self.found() {
            let computed = self.last_prefill.as_deref().unwrap_or(tried);
            let predicted = computed.assignment.predicted_cached_tokens.unwrap_or(0);
            self.shared.metrics.cache.told(predicted, cached, prompt);
        }
    }

    /// How many tokens of the prompt were in the worker's cache, and how many it had, if it said both and they can be true.
    fn found(&self) -> Option<(u64, u64)> {
        let Counts { prompt_tokens, cached_tokens, .. } = self.flow.meter.counts();
        cached_tokens.zip(prompt_tokens).filter(|(cached, prompt)| cached <= prompt)
    }

    /// What became of it, for the recording.
    fn outcome(&self, end: End, now_ns: u64) -> Request {
        let Counts { prompt_tokens, cached_tokens, .. } = self.flow.meter.counts();
        let output_tokens = self.flow.meter.output_tokens();
        Request {
            n: self.look,
            t: now_ns,
            arrived: self.arrived_ns,
            path: self.shared.metrics.endpoint(self.endpoint).path.clone(),
            status: self.head.map(|head| head.status.as_u16()),
            end: end.label().into(),
            tries: self.tries,
            prompt_tokens,
            cached_tokens,
            output_tokens: (output_tokens > 0).then_some(output_tokens),
            first_token_ns: self.flow.first_token_ns.map(|first_ns| first_ns.saturating_sub(self.arrived_ns)),
        }
    }

    fn record(&self, end: End, now_ns: u64) -> Record<'_> {
        let shared = &*self.shared;
        let counts = self.flow.meter.counts();
        let output_tokens = self.flow.meter.output_tokens();
        Record {
            request_id: self.request_id.as_bytes(),
            method: "POST",
            path: &shared.metrics.endpoint(self.endpoint).path,
            model: self.asked.as_deref().or(self.model.stated()),
            streaming: self.streaming,
            status: self.head.map(|head| head.status.as_u16()),
            error_code: self.head.and_then(|head| head.refusal).map_or("", Refusal::code),
            end: end.label(),
            attempts: self.tries,
            failed: self.failed.as_ref().map(|(leg, worker)| (*leg, &*worker.url)),
            prefill: self.last_prefill.as_deref().map(Try::decision),
            decision: self.last_try.as_ref().map(Try::decision),
            estimated_prompt_tokens: self.estimated_prompt_tokens,
            prompt_tokens: counts.prompt_tokens,
            cached_tokens: counts.cached_tokens,
            output_tokens: (output_tokens > 0).then_some(output_tokens),
            queue_ns: self.queue_ns,
            first_token_ns: self.flow.first_token_ns.map(|first_ns| first_ns.saturating_sub(self.arrived_ns)),
            duration_ns: now_ns.saturating_sub(self.arrived_ns),
            bytes: self.flow.bytes,
        }
    }
}
