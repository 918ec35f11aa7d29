//! Both legs of a pair under way, up to the first bytes of decode's answer or the first failure; and what comes of that.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header;
use protocol::pd::{HandOff, InputLists};
use router_core::{Leg, Outcome};

use super::attempt::Failure;
use super::beside::Beside;
use super::call::{Begun, Prefilled};
use super::call_off::CallOff;
use super::earlier::Left;
use super::names::Named;
use super::note::Note;
use super::prepare::BookedLeg;
use super::rooms::Taken;
use super::tries::{Aftermath, Answered, Errand, Paired, Unanswered};
use crate::error::Half;

pub(super) type Running = Pin<Box<dyn Future<Output = Result<Prefilled, Failure>> + Send>>;

/// As long as this prefill's word is waited for where decode has failed.
const SECOND_OPINION: Duration = Duration::from_millis(250);

/// As long as decode may take to find fault with a request that prefill has found fault with: it may be behind with reading it.
const SAME_WORDS: Duration = Duration::from_secs(2);

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

/// Both legs of a pair until one of them decides what comes next. Dropping it ends both.
pub(super) struct Race<'a> {
    pub(super) errand: &'a Errand<'a>,
    prefill: BookedLeg,
    decode: BookedLeg,
    sent: Sent,
    /// The prefill leg's answer has come in full, and held these lists; its books are closed.
    lists: Option<InputLists>,
    /// Decode's answer has begun, and waits for these lists.
    begun: Option<Begun>,
}

/// What it comes to.
pub(super) enum Finish {
    /// Decode's answer is the client's, or is none of success.
    Begun(Begun),
    /// Prefill's answer is none of success.
    Refused(Begun),
    Failed(Half, Failure),
    /// Decode has failed for want of what prefill, which has not answered, was to hand over.
    NotHandedOver(Failure),
    /// Time was up first.
    Late(Failure),
}

impl Finish {
    /// Whether decode has failed in a way that may be prefill's doing.
    fn is_failure_of_decode(&self) -> bool {
        match self {
            Self::Begun(begun) => Outcome::of_status(begun.response.status().as_u16()) == Outcome::Failed,
            Self::Failed(leg, failure) => *leg == Half::Decode && matches!(failure, Failure::GivenUp { .. }),
            Self::Refused(_) | Self::NotHandedOver(_) | Self::Late(_) => false,
        }
    }

    /// What decode says of the hand-off, if it has failed at that, and the status.
    fn hand_off(&self) -> Option<(HandOff, u16)> {
        match self {
            Self::Begun(begun) => begun.hand_off.map(|said| (said, begun.response.status().as_u16())),
            Self::Failed(Half::Decode, Failure::GivenUp { failed, .. }) => {
                failed.hand_off.map(|said| (said, failed.status))
            }
            _ => None,
        }
    }
}

impl<'a> Race<'a> {
    pub(super) fn new(errand: &'a Errand<'a>, prefill: BookedLeg, decode: BookedLeg, sent: Sent) -> Self {
        Self { errand, prefill, decode, sent, lists: None, begun: None }
    }

    /// Sends both requests when it is first polled. Where log-probabilities are to be merged, the client's answer waits for
    /// the prefill leg's end; otherwise for nothing but its own first bytes.
    pub(super) async fn run(&mut self) -> Finish {
        loop {
            let is_ready = self.lists.is_some() || !self.sent.merges;
            if let Some(begun) = self.begun.take_if(|_| is_ready) {
                return Finish::Begun(begun);
            }
            // In this order: a decode worker may fail because its prefill worker has failed, which is to be blamed.
            tokio::select! {
                biased;
                ended = &mut self.sent.running, if self.lists.is_none() => match ended {
                    Ok(Prefilled::Done(lists)) => self.prefilled(lists),
                    Ok(Prefilled::Refused(begun)) => return Finish::Refused(begun),
                    Err(failure) if failure.is_of_request() => return self.hear_decode(failure).await,
                    Err(failure) => return Finish::Failed(Half::Prefill, failure),
                },
                answered = &mut self.sent.decoding, if self.begun.is_none() => match answered {
                    Ok(answer) if answer.response.status().is_success() => self.begun = Some(answer),
                    Ok(answer) => return Finish::Begun(answer),
                    Err(failure) => return Finish::Failed(Half::Decode, failure),
                },
            }
        }
    }

    /// What is wrong with a stream's request both engines say, each in its first event, and decode's is the client's. If decode says
    /// nothing within a moment, only prefill has found fault with it.
    async fn hear_decode(&mut self, failure: Failure) -> Finish {
        let answered = match self.begun.take() {
            Some(begun) => Ok(begun),
            None => match tokio::time::timeout(SAME_WORDS, &mut self.sent.decoding).await {
                Ok(answered) => answered,
                Err(_) => return Finish::Failed(Half::Prefill, failure),
            },
        };
        self.prefilled(InputLists::default());
        answered.map_or_else(|failure| Finish::Failed(Half::Decode, failure), Finish::Begun)
    }

    fn prefilled(&mut self, lists: InputLists) {
        self.prefill.booking.complete();
        self.lists = Some(lists);
    }

    /// A transfer that fails is told of by both engines, and decode may be the first: then prefill, if it comes to no good
    /// within a moment, is to be blamed. It is also if it says nothing at all, where decode says that the hand-off failed.
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
            Some(Ok(Prefilled::Refused(begun))) => Finish::Refused(begun),
            Some(Err(failure)) => Finish::Failed(Half::Prefill, failure),
            Some(Ok(Prefilled::Done(lists))) => {
                self.prefilled(lists);
                finish
            }
            None => match finish.hand_off() {
                Some((said, status)) => Finish::NotHandedOver(Failure::HandOff { said, status }),
                None => finish,
            },
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
                    self.turned_away(Half::Decode, begun)
                })
            }
            Finish::Refused(begun) => {
                note.upstream_head(Leg::Prefill, begun.response.status());
                Ok(self.turned_away(Half::Prefill, begun))
            }
            Finish::Failed(leg, failure @ Failure::Duplicate { .. }) => {
                Err(self.met_itself(leg, &failure, note))
            }
            Finish::Failed(leg, failure) => Err(self.failed(leg, &failure, note)),
            Finish::NotHandedOver(failure) => Err(self.not_handed_over(&failure, note)),
            Finish::Late(failure) => Err(self.late(&failure, note)),
        }
    }

    /// Decode's answer goes to the client; the prefill leg goes on beside it, unless it is over.
    fn commit(self, begun: Begun) -> Answered {
        let call_off = self.calling_off(Half::Prefill);
        let Self { prefill, decode, sent, lists, .. } = self;
        let Sent { running, named, rooms, .. } = sent;
        let beside = lists.is_none().then(|| Beside::begin(running, prefill, Arc::clone(&rooms), call_off));
        let lists = lists.filter(|lists| !lists.is_empty());
        let Begun { connection, response, first, .. } = begun;
        let paired = Paired { first, beside, lists, _held: Some((rooms, named)) };
        let aftermath = Aftermath::of(Leg::Decode, decode.assignment.worker);
        let answered = decode.answered(Leg::Decode, connection, response, aftermath);
        Answered { paired: Some(Box::new(paired)), ..answered }
    }

    /// The answer of this leg is none of success.
    fn turned_away(self, leg: Half, begun: Begun) -> Answered {
        let held = Some((Arc::clone(&self.sent.rooms), Arc::clone(&self.sent.named)));
        let (aftermath, turned) = self.call_off(leg);
        let Begun { connection, response, first, .. } = begun;
        let paired = first.map(|first| Paired { first: Some(first), beside: None, lists: None, _held: held });
        let answered = turned.answered(leg.into(), connection, response, aftermath);
        Answered { paired: paired.map(Box::new), ..answered }
    }

    fn failed(self, leg: Half, failure: &Failure, note: &mut Note) -> Unanswered {
        let (aftermath, failed) = self.call_off(leg);
        failed.blame(leg.into(), failure, note).after(aftermath)
    }

    /// Prefill is silent, and decode, which knows that, has done nothing wrong.
    fn not_handed_over(self, failure: &Failure, note: &mut Note) -> Unanswered {
        self.inquire();
        let left = self.left([Half::Prefill]);
        let Self { prefill, decode, sent, .. } = self;
        // Closes the connections.
        drop(sent);
        decode.booking.fail(Outcome::Refused);
        let mut aftermath = Aftermath::of(Leg::Prefill, prefill.assignment.worker);
        // All that share the engine are as silent.
        aftermath.avoid.extend(prefill.member.ids());
        aftermath.left = left;
        prefill.blame(Leg::Prefill, failure, note).after(aftermath)
    }

    /// An engine has not finished with an earlier try, which is nobody's fault. What called it off may have come too early.
    fn met_itself(self, leg: Half, failure: &Failure, note: &mut Note) -> Unanswered {
        let left = self.left([Half::Prefill, Half::Decode]);
        let Self { prefill, decode, sent, .. } = self;
        drop(sent);
        note.absolve();
        note.complain(leg.into(), format_args!("{failure}; called off again"));
        let worker = if leg == Half::Prefill { &prefill } else { &decode }.assignment.worker;
        let mut aftermath = Aftermath::of(leg.into(), worker);
        aftermath.left = left;
        for booking in [prefill.booking, decode.booking] {
            booking.fail(failure.outcome());
        }
        Unanswered { cause: failure.cause(), refusal: failure.refusal(), aftermath }
    }

    /// Decode waits for prefill, and does not show whether it does. So one of them is known to be late only if the other one has done
    /// its part.
    fn late(self, failure: &Failure, note: &mut Note) -> Unanswered {
        self.inquire();
        match (&self.lists, &self.begun) {
            (Some(_), _) => {
                drop(self.calling_off(Half::Decode).begin());
                self.failed(Half::Decode, failure, note)
            }
            (None, Some(_)) => {
                drop(self.calling_off(Half::Prefill).begin());
                self.failed(Half::Prefill, failure, note)
            }
            (None, None) => self.late_together(failure, note),
        }
    }

    /// Nobody knows which of them hangs.
    fn late_together(self, failure: &Failure, note: &mut Note) -> Unanswered {
        drop(self.left([Half::Prefill, Half::Decode]));
        let Self { errand, prefill, decode, sent, .. } = self;
        drop(sent);
        let [worker, prefill_worker] = [&decode, &prefill].map(|leg| &leg.worker().url);
        let request_id = errand.id.to_str().unwrap_or("-");
        tracing::warn!(request_id, %worker, %prefill_worker, "no answer: {failure}; one of the two hangs, and both are asked");
        note.absolve();
        let aftermath = Aftermath::of(Leg::Whole, decode.assignment.worker);
        for booking in [prefill.booking, decode.booking] {
            booking.fail(Outcome::Refused);
        }
        Unanswered { cause: None, refusal: failure.refusal_of_pair(), aftermath }
    }

    /// This leg has failed, so the other one is closed and called off, and its worker is not to blame. What is to be known
    /// afterwards, and the leg that failed.
    fn call_off(self, failed: Half) -> (Aftermath, BookedLeg) {
        let other = match failed {
            Half::Prefill => Some(Half::Decode),
            Half::Decode => self.lists.is_none().then_some(Half::Prefill),
        };
        let left = self.left(other);
        let has_names = !self.sent.named.is_empty();
        let Self { prefill, decode, sent, .. } = self;
        // Closes the connections.
        drop(sent);
        let (failed_leg, other_leg) = match failed {
            Half::Prefill => (prefill, decode),
            Half::Decode => (decode, prefill),
        };
        let mut aftermath = Aftermath::of(failed.into(), failed_leg.assignment.worker);
        if has_names && other.is_some() {
            // An engine refuses a request by the name of one that it has not finished with.
            aftermath.avoid.push(other_leg.assignment.worker);
        }
        aftermath.left = left;
        other_leg.booking.fail(Outcome::Refused);
        (aftermath, failed_leg)
    }

    /// Both engines have this try. These legs are called off.
    fn left(&self, called_off: impl IntoIterator<Item = Half>) -> Left {
        let calling_off = called_off.into_iter().map(|leg| self.calling_off(leg).begin());
        Left::at([&self.prefill.member, &self.decode.member], calling_off)
    }

    fn calling_off(&self, leg: Half) -> CallOff {
        let Errand { context, head, id, .. } = self.errand;
        CallOff {
            pool: Arc::clone(&context.pool),
            member: Arc::clone(&self.leg(leg).member),
            authorization: head.headers.get(header::AUTHORIZATION).cloned(),
            id: id.clone(),
            named: Arc::clone(&self.sent.named),
        }
    }

    fn leg(&self, leg: Half) -> &BookedLeg {
        match leg {
            Half::Prefill => &self.prefill,
            Half::Decode => &self.decode,
        }
    }

    /// One of the engines may hang: it is to go out of rotation soon.
    fn inquire(&self) {
        self.prefill.member.inquire();
        self.decode.member.inquire();
    }
}
