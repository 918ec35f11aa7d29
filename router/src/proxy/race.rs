//! Both legs of a pair under way, up to the first bytes of decode's answer or the first failure; and what comes of that.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, header};
use hyper::body::Incoming;
use protocol::pd::InputLists;
use router_core::{Leg, Outcome};

use super::attempt::Failure;
use super::beside::Beside;
use super::call::{Begun, Prefilled};
use super::call_off::CallOff;
use super::names::Named;
use super::note::Note;
use super::prepare::BookedLeg;
use super::rooms::Taken;
use super::tries::{Aftermath, Answered, Errand, Paired, Unanswered};
use crate::upstream::Connection;

pub(super) type Running = Pin<Box<dyn Future<Output = Result<Prefilled, Failure>> + Send>>;

/// As long as this prefill's word is waited for where decode has failed.
const SECOND_OPINION: Duration = Duration::from_millis(250);

type Decoding = Pin<Box<dyn Future<Output = Result<Begun, Failure>> + Send>>;

/// Both calls, and what they are about.
pub(super) struct Sent {
    pub(super) running: Running,
    pub(super) decoding: Decoding,
    /// Whether log-probabilities are to be merged.
    pub(super) merges: bool,
    pub(super) named: Arc<Named>,
    pub(super) rooms: Arc<Taken>,
}

/// See the module's description.
pub(super) struct Race<'a> {
    pub(super) errand: &'a Errand<'a>,
    prefill: BookedLeg,
    decode: BookedLeg,
    sent: Sent,
    /// The prefill leg's answer has come in full, and held these lists; its books are closed.
    lists: Option<InputLists>,
}

/// What it comes to.
pub(super) enum Finish {
    /// Decode's answer is the client's, or is none of success.
    Begun(Begun),
    /// Prefill's answer is none of success.
    Refused(Connection, Response<Incoming>),
    Failed(Leg, Failure),
    /// Time was up first.
    Late(Failure),
}

impl Finish {
    /// Whether decode has failed in a way that may be prefill's doing.
    fn is_failure_of_decode(&self) -> bool {
        match self {
            Self::Begun(begun) => Outcome::of_status(begun.response.status().as_u16()) == Outcome::Failed,
            Self::Failed(leg, failure) => *leg == Leg::Decode && matches!(failure, Failure::GivenUp { .. }),
            Self::Refused(..) | Self::Late(_) => false,
        }
    }
}

impl<'a> Race<'a> {
    pub(super) fn new(errand: &'a Errand<'a>, prefill: BookedLeg, decode: BookedLeg, sent: Sent) -> Self {
        Self { errand, prefill, decode, sent, lists: None }
    }

    /// Sends both requests when it is first polled. Where log-probabilities are to be merged, the client's answer waits for
    /// the prefill leg's end; otherwise for nothing but its own first bytes.
    pub(super) async fn run(&mut self) -> Finish {
        let merges = self.sent.merges;
        let mut begun: Option<Begun> = None;
        loop {
            let is_ready = self.lists.is_some() || !merges;
            if let Some(begun) = begun.take_if(|_| is_ready) {
                return Finish::Begun(begun);
            }
            // In this order: a decode worker may fail because its prefill worker has failed, which is to be blamed.
            tokio::select! {
                biased;
                ended = &mut self.sent.running, if self.lists.is_none() => match ended {
                    Ok(Prefilled::Done(lists)) => {
                        self.prefill.booking.complete();
                        self.lists = Some(lists);
                    }
                    Ok(Prefilled::Refused(connection, response)) => return Finish::Refused(connection, response),
                    Err(failure) => return Finish::Failed(Leg::Prefill, failure),
                },
                answered = &mut self.sent.decoding, if begun.is_none() => match answered {
                    Ok(answer) if answer.response.status().is_success() => begun = Some(answer),
                    Ok(answer) => return Finish::Begun(answer),
                    Err(failure) => return Finish::Failed(Leg::Decode, failure),
                },
            }
        }
    }

    /// A transfer that fails is told of by both engines, and decode may be the first: then prefill, if it comes to no good
    /// within a moment, is to be blamed.
    pub(super) async fn hear_prefill(&mut self, finish: Finish) -> Finish {
        if self.lists.is_some() || !finish.is_failure_of_decode() {
            return finish;
        }
        let heard = tokio::select! {
            biased;
            heard = tokio::time::timeout(SECOND_OPINION, &mut self.sent.running) => heard.ok(),
            () = self.errand.turn.deadline() => None,
        };
        match heard {
            Some(Ok(Prefilled::Refused(connection, response))) => Finish::Refused(connection, response),
            Some(Err(failure)) => Finish::Failed(Leg::Prefill, failure),
            Some(Ok(Prefilled::Done(lists))) => {
                self.prefill.booking.complete();
                self.lists = Some(lists);
                finish
            }
            None => finish,
        }
    }

    /// Closes the books of what is over, and gives what goes on.
    pub(super) fn judge(self, finish: Finish, note: &mut Note) -> Result<Answered, Unanswered> {
        match finish {
            Finish::Begun(begun) => {
                note.upstream_head(Leg::Decode, begun.response.status());
                Ok(if begun.response.status().is_success() {
                    self.commit(begun)
                } else {
                    self.turned_away(begun)
                })
            }
            Finish::Refused(connection, response) => {
                note.upstream_head(Leg::Prefill, response.status());
                let (aftermath, prefill) = self.call_off(Leg::Prefill);
                Ok(prefill.answered(Leg::Prefill, connection, response, aftermath))
            }
            Finish::Failed(leg, failure) => {
                let (aftermath, failed) = self.call_off(leg);
                let unanswered = failed.blame(leg, &failure, note);
                Err(unanswered.after(aftermath))
            }
            Finish::Late(failure) => Err(self.late(&failure, note)),
        }
    }

    /// Decode's answer goes to the client; the prefill leg goes on beside it, unless it is over.
    fn commit(self, begun: Begun) -> Answered {
        let call_off = self.calling_off(&self.prefill);
        let Self { errand, prefill, decode, sent, lists } = self;
        let Sent { running, named, rooms, .. } = sent;
        let is_over = lists.is_some();
        let beside = (!is_over).then(|| {
            let end = errand.context.shared.clock.instant(errand.deadline_ns);
            Beside::begin(running, prefill, Arc::clone(&rooms), end, call_off)
        });
        let Begun { connection, response, first } = begun;
        let lists = lists.filter(|lists| !lists.is_empty());
        let paired = Paired { first, beside, lists, _held: (rooms, named) };
        let aftermath = Aftermath::of(Leg::Decode, decode.assignment.worker);
        Answered {
            paired: Some(Box::new(paired)),
            ..decode.answered(Leg::Decode, connection, response, aftermath)
        }
    }

    /// Decode's answer is none of success.
    fn turned_away(self, begun: Begun) -> Answered {
        let (aftermath, decode) = self.call_off(Leg::Decode);
        decode.answered(Leg::Decode, begun.connection, begun.response, aftermath)
    }

    /// Decode waits for prefill, so it is prefill that has kept it waiting, unless that has done its part.
    fn late(self, failure: &Failure, note: &mut Note) -> Unanswered {
        let leg = if self.lists.is_some() { Leg::Decode } else { Leg::Prefill };
        if leg == Leg::Prefill {
            // Both engines are at it.
            drop(self.calling_off(&self.prefill).begin());
        }
        let (aftermath, late) = self.call_off(leg);
        late.blame(leg, failure, note).after(aftermath)
    }

    /// This leg has failed, so the other one is closed and called off, and its worker is not to blame. What is to be known
    /// afterwards, and the leg that failed.
    fn call_off(self, failed: Leg) -> (Aftermath, BookedLeg) {
        let prefill_is_over = self.lists.is_some();
        let call_off = match failed {
            Leg::Prefill => Some(self.calling_off(&self.decode)),
            Leg::Decode | Leg::Whole => (!prefill_is_over).then(|| self.calling_off(&self.prefill)),
        };
        let has_names = !self.sent.named.is_empty();
        let Self { prefill, decode, sent, .. } = self;
        // Closes the connections.
        drop(sent);
        let (failed_leg, other) = match failed {
            Leg::Prefill => (prefill, decode),
            Leg::Decode | Leg::Whole => (decode, prefill),
        };
        let mut aftermath = Aftermath::of(failed, failed_leg.assignment.worker);
        let is_other_over = failed != Leg::Prefill && prefill_is_over;
        if has_names && !is_other_over {
            // An engine refuses a request by the name of one that it has not finished with.
            aftermath.avoid.push(other.assignment.worker);
        }
        other.booking.fail(Outcome::Refused);
        aftermath.calling_off = call_off.and_then(CallOff::begin);
        (aftermath, failed_leg)
    }

    fn calling_off(&self, leg: &BookedLeg) -> CallOff {
        let Errand { context, head, id, .. } = self.errand;
        CallOff {
            pool: Arc::clone(&context.pool),
            member: Arc::clone(&leg.member),
            authorization: head.headers.get(header::AUTHORIZATION).cloned(),
            id: id.clone(),
            named: Arc::clone(&self.sent.named),
        }
    }
}
