//! The router's way with a request, as its shell goes it, back from the workers to the client: pass on what the answering leg
//! says, blame a leg that fails and cancel its twin, try again with new workers and a new room. The way there is in `dispatch`.

use router_core::ids::WorkerId;
use router_core::{Assignment, Cause, Next, Outcome, Tries};
use simworker_core::{EngineRole, RequestId};

use super::wire::Answer;
use super::world::{Event, World};
use crate::run::CLIENT_LEFT;
use crate::workload::Pacing;
use crate::workload::chain::{self, Followers};

/// Names of legs keep the place of their request in so many bits, and the number of the attempt above them.
const SEQ_BITS: u32 = 40;
/// The router's own default of `--request-timeout-secs`. Here it bounds only how long a request waits for a worker and is
/// tried again: answers are not broken off.
pub(super) const REQUEST_TIMEOUT_NS: u64 = 1_800_000_000_000;

/// A request that has arrived and not ended.
#[derive(Default)]
pub(super) struct Job {
    /// The number of the attempt that is under way, or is waited for.
    pub(super) attempt: u32,
    /// Its legs, once they were sent.
    pub(super) sent: Option<Sent>,
    tries: Tries,
    /// Who is not to be tried.
    pub(super) exclude: Vec<WorkerId>,
}

/// The legs of one attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) prefill: Option<Booked>,
    /// The leg that answers the client.
    pub(super) answer: Booked,
    pub(super) room: Option<u64>,
}

/// A leg as the router holds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Booked {
    assignment: Assignment,
    /// Its lease has not ended.
    open: bool,
}

/// How a leg ended, as the router sees it.
#[derive(Debug)]
pub(super) enum LegEnd {
    /// With an answer, good or bad.
    Answered(Answer),
    /// Without one.
    Broken(Cause),
}

/// The name of an attempt at a request; both legs have it, each at its own worker.
pub(super) fn name(seq: usize, attempt: u32) -> RequestId {
    RequestId(seq as u64 | u64::from(attempt) << SEQ_BITS)
}

/// The place of the request that a leg belongs to.
pub(super) fn seq_of(id: RequestId) -> usize {
    (id.0 & ((1 << SEQ_BITS) - 1)) as usize
}

impl Booked {
    pub(super) fn new(assignment: Assignment) -> Self {
        Self { assignment, open: true }
    }
}

impl World {
    /// Whether the router still waits for what a worker says of an attempt.
    pub(super) fn is_open(&self, id: RequestId, host: usize) -> bool {
        let Some(sent) = self.sent(id) else { return false };
        let here = |leg: &Booked| leg.open && self.addresses.host(leg.assignment.worker) == host;
        sent.prefill.iter().chain([&sent.answer]).any(here)
    }

    /// The legs of an attempt that is under way.
    fn sent(&self, id: RequestId) -> Option<Sent> {
        let job = self.jobs[seq_of(id)].as_ref()?;
        job.sent.filter(|_| name(seq_of(id), job.attempt) == id)
    }

    /// The room of an attempt that is under way.
    pub(super) fn room_of(&self, id: RequestId) -> Option<u64> {
        self.sent(id)?.room
    }

    pub(super) fn first_token(&mut self, now_ns: u64, id: RequestId) {
        let Some(sent) = self.sent(id) else { return };
        self.records[seq_of(id)].first_ns = Some(now_ns);
        self.router.first_token(now_ns, sent.answer.assignment.lease);
    }

    /// The lease of the leg that answers an attempt, if it is under way.
    pub(super) fn answering(&self, id: RequestId) -> Option<Assignment> {
        self.sent(id).map(|sent| sent.answer.assignment)
    }

    pub(super) fn leg_ended(&mut self, now_ns: u64, id: RequestId, host: usize, end: LegEnd) {
        if !self.is_open(id, host) {
            return;
        }
        let seq = seq_of(id);
        let prefill = self.hosts[host].role == EngineRole::Prefill;
        let begun = self.records[seq].first_ns.is_some();
        match end {
            // Its KV has left the prefill worker.
            LegEnd::Answered(answer) if prefill && answer.status == 200 => {
                self.close_prefill(now_ns, seq, Outcome::Completed);
            }
            // What a stream says that had begun well is the client's, good or bad.
            LegEnd::Answered(answer) if !prefill && (answer.status == 200 || begun) => {
                self.end(now_ns, seq, answer);
            }
            LegEnd::Answered(answer) => {
                let cause = Cause::Status(answer.status);
                self.leg_failed(now_ns, seq, prefill, cause, answer);
            }
            LegEnd::Broken(cause) => {
                let role = if prefill { "prefill" } else { "answering" };
                let text = format!("the {role} worker was lost");
                let status = if begun { 200 } else { 502 };
                self.leg_failed(now_ns, seq, prefill, cause, Answer::failed(status, &text));
            }
        }
        self.unpark(now_ns);
    }

    /// The prefill leg has ended; the other one goes on.
    fn close_prefill(&mut self, now_ns: u64, seq: usize, outcome: Outcome) {
        let Some(leg) = self.jobs[seq].as_mut().and_then(|job| job.sent.as_mut()?.prefill.as_mut()) else {
            return;
        };
        leg.open = false;
        let lease = leg.assignment.lease;
        self.router.finish(now_ns, lease, outcome);
    }

    /// A leg has failed, and with it the attempt: that leg alone is to blame, its twin is cancelled. But a prefill leg that
    /// fails beside an answer that has begun leaves that alone.
    fn leg_failed(&mut self, now_ns: u64, seq: usize, prefill: bool, cause: Cause, answer: Answer) {
        let outcome = match cause {
            Cause::Status(status) => Outcome::of_status(status),
            Cause::Connect | Cause::StaleConnection | Cause::Reset | Cause::Duplicate | Cause::OtherRanks => {
                Outcome::Failed
            }
        };
        if prefill && self.records[seq].first_ns.is_some() {
            return self.close_prefill(now_ns, seq, outcome);
        }
        let Some(job) = &mut self.jobs[seq] else { return };
        let (attempt, Some(mut sent)) = (job.attempt, job.sent.take()) else { return };
        let blamed = match &mut sent.prefill {
            Some(leg) if prefill => leg,
            _ => &mut sent.answer,
        };
        blamed.open = false;
        let Assignment { worker, lease, .. } = blamed.assignment;
        job.tries.failed(now_ns, worker, cause, answer.retry_after_ns);
        self.router.finish(now_ns, lease, outcome);
        self.abandon(now_ns, seq, attempt, sent, Outcome::Refused);
        if self.records[seq].first_ns.is_some() || !self.try_again(now_ns, seq) {
            self.end(now_ns, seq, answer);
        }
    }

    /// Sends another attempt on its way, if there is to be one.
    fn try_again(&mut self, now_ns: u64, seq: usize) -> bool {
        let Some(job) = &self.jobs[seq] else { return false };
        let fresh_left = self.is_anybody_left(now_ns, seq, job.tries.tried());
        let draw = self.dice.jitter(name(seq, job.attempt));
        let deadline_ns = self.records[seq].sent_ns.saturating_add(REQUEST_TIMEOUT_NS);
        let next = job.tries.next(&self.retry, now_ns, deadline_ns, fresh_left, draw);
        let Next::Retry { wait_ns, exclude, needs_budget } = next else { return false };
        if needs_budget && !self.budget.draw(now_ns) {
            return false;
        }
        let Some(job) = &mut self.jobs[seq] else { return false };
        job.attempt += 1;
        job.exclude = exclude.into_vec();
        let attempt = job.attempt;
        self.clock.at(now_ns + wait_ns, Event::Retry { seq, attempt });
        true
    }

    /// Closes the legs of an attempt that are still open; their workers are not to blame.
    fn abandon(&mut self, now_ns: u64, seq: usize, attempt: u32, sent: Sent, outcome: Outcome) {
        for leg in sent.prefill.into_iter().chain([sent.answer]).filter(|leg| leg.open) {
            self.router.finish(now_ns, leg.assignment.lease, outcome);
            self.close(now_ns, leg.assignment.worker, name(seq, attempt));
        }
        if let Some(room) = sent.room {
            self.handovers.remove(&room);
        }
    }

    /// Closes the connection of a leg; its worker hears of it.
    fn close(&mut self, now_ns: u64, worker: WorkerId, id: RequestId) {
        let host = self.addresses.host(worker);
        let at_ns = now_ns + self.hop_ns + self.dice.abort_late_ns(self.hosts[host].role, id);
        self.clock.at(at_ns, Event::Abort { host, id });
    }

    /// The router waits no longer for a first byte. As live: that is the end of the request.
    pub(super) fn silent(&mut self, now_ns: u64, id: RequestId) {
        let seq = seq_of(id);
        let Some(sent) = self.sent(id).filter(|_| self.records[seq].first_ns.is_none()) else { return };
        let Some(job) = &mut self.jobs[seq] else { return };
        let (attempt, mut sent) = (job.attempt, job.sent.take().unwrap_or(sent));
        // Of a pair nobody knows which leg is late, unless prefill has done its part.
        if sent.prefill.as_ref().is_none_or(|leg| !leg.open) {
            sent.answer.open = false;
            let Assignment { worker, lease, .. } = sent.answer.assignment;
            self.router.finish(now_ns, lease, Outcome::Failed);
            self.close(now_ns, worker, id);
        }
        self.abandon(now_ns, seq, attempt, sent, Outcome::Refused);
        self.dice.note("no first byte");
        self.end(now_ns, seq, Answer::failed(504, "no first byte in time"));
        self.unpark(now_ns);
    }

    pub(super) fn client_gone(&mut self, now_ns: u64, seq: usize) {
        let Some(job) = &mut self.jobs[seq] else { return };
        if let (attempt, Some(sent)) = (job.attempt, job.sent.take()) {
            self.abandon(now_ns, seq, attempt, sent, Outcome::ClientGone);
        }
        let status = if self.records[seq].first_ns.is_some() { 200 } else { 0 };
        self.end(now_ns, seq, Answer::failed(status, CLIENT_LEFT));
        self.unpark(now_ns);
    }

    /// As live: a cache that holds nothing of what was sent there is not believed in any more. A decode worker's answer
    /// tells what the prefill worker had found.
    fn told_cached(&mut self, now_ns: u64, sent: &Sent, cached_tokens: u64) {
        let booked = sent.prefill.as_ref().unwrap_or(&sent.answer).assignment;
        if self.router.told_cached(now_ns, &booked, cached_tokens)
            && let Some(index) = &mut self.index
        {
            index.clear(booked.worker);
        }
    }

    /// The end of a request.
    pub(super) fn end(&mut self, now_ns: u64, seq: usize, answer: Answer) {
        let Some(mut job) = self.jobs[seq].take() else {
            debug_assert!(false, "request {seq} ends twice");
            return;
        };
        if let Some(mut sent) = job.sent.take() {
            let outcome = Outcome::of_status(answer.status);
            // A decode worker whose hand-off failed has never heard what the prefill worker had found.
            let told = sent.prefill.is_none() || answer.error.is_empty();
            if outcome == Outcome::Completed && told {
                self.told_cached(now_ns, &sent, answer.cached_tokens);
            }
            sent.answer.open = false;
            self.router.finish(now_ns, sent.answer.assignment.lease, outcome);
            self.abandon(now_ns, seq, job.attempt, sent, Outcome::Refused);
        }
        let record = &mut self.records[seq];
        record.last_ns = now_ns;
        record.prompt_tokens = answer.prompt_tokens;
        record.cached_tokens = answer.cached_tokens;
        record.output_tokens = answer.output_tokens;
        record.status = answer.status;
        record.error = answer.error;
        self.finished += 1;
        self.go_on(now_ns, seq);
    }

    /// Lets those go on that waited for a request, or tells them that they never will.
    fn go_on(&mut self, now_ns: u64, seq: usize) {
        let Followers { freed, lost, session_ended } = self.chain.ended(seq, self.records[seq].succeeded());
        for follower in freed {
            let think_ns = self.requests[follower].after.as_ref().map_or(0, |after| after.think_ns);
            self.clock.at(now_ns.saturating_add(think_ns), Event::Arrive(follower));
        }
        for follower in lost {
            let error = chain::never_sent(&self.records[seq]).to_owned();
            let record = &mut self.records[follower];
            (record.intended_ns, record.sent_ns, record.last_ns) = (now_ns, now_ns, now_ns);
            record.error = error;
            self.finished += 1;
        }
        if session_ended && matches!(self.pacing, Pacing::Closed { .. }) {
            self.schedule_arrival(now_ns);
        }
    }
}
