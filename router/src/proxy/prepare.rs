//! From bytes to a booking: what the request says, which workers get it, and the credit for its prompt.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use hyper::body::Incoming;
use protocol::view::{First, RequestView};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::Matches;
use router_core::prompt::PromptView;
use router_core::{
    Assignment, Leg, NoPlan, PerRole, PlanMatches, PlanRequest, Role, RoutingKeys, Scopes, Unroutable,
};

use super::attempt::Failure;
use super::endpoint::Endpoint;
use super::lease::{Booking, Lease, Pledge};
use super::note::Note;
use super::tries::{Aftermath, Answered, Unanswered};
use crate::api_key::ApiKey;
use crate::clock::whole_seconds;
use crate::error::Refusal;
use crate::fleet::{Member, Owed, Planned, Rank};
use crate::record::Asked;
use crate::record::line::Look;
use crate::shared::Shared;
use crate::upstream::Connection;

const TARGET_WORKER: HeaderName = HeaderName::from_static("x-smg-target-worker");
const ROUTING_KEY: HeaderName = HeaderName::from_static("x-smg-routing-key");
/// Whether the client prefers a pair of workers where regular ones could serve it as well.
const PREFER_PD: HeaderName = HeaderName::from_static("x-prefer-pd");
/// What stands in for a routing key: the first of these that the client sent.
const IMPLICIT_KEYS: [HeaderName; 3] =
    [header::AUTHORIZATION, HeaderName::from_static("x-forwarded-for"), header::COOKIE];

/// The workers that were chosen, and what they hold for the request.
pub(super) struct Booked {
    /// Who computes the prompt; `None` where the worker that answers does.
    pub(super) prefill: Option<BookedLeg>,
    /// Who answers.
    pub(super) decode: BookedLeg,
    /// Which workers might have had it.
    pub(super) scopes: Scopes,
}

/// One of the request's upstream calls, booked.
pub(super) struct BookedLeg {
    pub(super) assignment: Assignment,
    pub(super) member: Arc<Member>,
    pub(super) booking: Booking,
}

impl BookedLeg {
    /// The data-parallel rank that it is for; `None` where the engine chooses.
    pub(super) fn rank(&self) -> Option<u32> {
        self.worker().number
    }

    /// Whom it is on.
    pub(super) fn worker(&self) -> &Arc<Rank> {
        self.booking.rank()
    }

    /// Its worker answered.
    pub(super) fn answered(
        self,
        leg: Leg,
        connection: Connection,
        response: Response<Incoming>,
        aftermath: Aftermath,
    ) -> Answered {
        let lease = self.booking.answered(response.status());
        Answered { leg, member: self.member, connection, response, lease, paired: None, aftermath }
    }

    /// It failed; nobody else is to blame.
    pub(super) fn blame(self, leg: Leg, failure: &Failure, note: &mut Note) -> Unanswered {
        let mut aftermath = Aftermath::of(leg, self.assignment.worker);
        if failure.is_nobody_there() {
            // All that share the engine are gone with it.
            let others = self.member.ids().into_iter().filter(|id| *id != self.assignment.worker);
            aftermath.gone.extend(others);
        }
        if matches!(failure, Failure::OtherRanks) {
            self.member.doubt_ranks();
            aftermath.avoid.extend(self.member.ids());
            aftermath.other_ranks = Some(Arc::clone(&self.member));
        }
        if failure.is_told() {
            note.judged(leg, failure.error());
        }
        note.complain(leg, format_args!("no answer: {failure}"));
        self.close(failure);
        Unanswered { cause: failure.cause(), refusal: failure.refusal().of_leg(leg), aftermath }
    }

    /// The same where the other leg's answer has begun: no note waits for more, so it is told at once.
    pub(super) fn blame_beside(self, id: &HeaderValue, failure: &Failure) {
        let worker = &self.worker().url;
        let request_id = id.to_str().unwrap_or("-");
        tracing::warn!(request_id, %worker, "no answer: {failure}, after the decode leg had begun to answer");
        if let Some(error) = failure.error() {
            self.worker().metrics.failed(error);
        }
        self.close(failure);
    }

    fn close(self, failure: &Failure) {
        self.member.inquire();
        if failure.is_nobody_there() {
            self.member.unreachable.note();
        }
        self.booking.fail(failure.outcome());
    }
}

/// Why nothing was booked.
pub(super) enum Unbooked {
    /// Nobody can have it.
    Refused(Refusal),
    /// The prefill workers of this scope have as many decode streams as they may.
    AtLimit(ScopeId),
}

/// A request to be booked.
pub(super) struct Order<'a> {
    pub(super) endpoint: &'static Endpoint,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Bytes,
    /// Workers that must not have it.
    pub(super) exclude: &'a [WorkerId],
    /// It waits already for a decode stream to end, and has its turn.
    pub(super) has_place: bool,
}

/// Where it could go, and what there is to look up for that.
struct Sphere {
    scopes: Scopes,
    /// The scopes whose policy follows prefixes.
    followed: Scopes,
    model: Option<String>,
    /// Only pairs can have it.
    is_for_pairs: bool,
}

impl Order<'_> {
    /// Chooses workers and books the request on them.
    ///
    /// Only the plan is made under the decision lock; reading the body and walking the index are not. What was read is not
    /// kept: a body of many megabytes is not held twice while its answer is awaited.
    ///
    /// # Errors
    /// No workers can have the request; the log says why.
    pub(super) fn book(&self, shared: &Arc<Shared>, note: &mut Note) -> Result<Booked, Unbooked> {
        let view = RequestView::read(self.endpoint.dialect, self.body);
        let prompt = prompt_view(&view);
        let prompt_tokens = view.prompt.estimated_tokens();
        let sphere = self.sphere(shared, view.model.as_deref());
        let model = sphere.as_ref().ok().and_then(|sphere| sphere.model.as_deref());
        note.looked(view.stream, view.model.as_deref(), model, prompt_tokens);
        let Sphere { scopes, followed, is_for_pairs, .. } = sphere.map_err(Unbooked::Refused)?;
        if let Some(prefill) = scopes.prefill
            && is_for_pairs
            && !self.has_place
            && self.is_for_any()
            && shared.dispatch.is_waited_for(prefill)
        {
            return Err(Unbooked::AtLimit(prefill));
        }
        let request = PlanRequest {
            scopes,
            prompt,
            prompt_tokens,
            output_budget: view.output_budget,
            keys: routing_keys(self.headers, shared.settings.api_key.as_ref()),
            exclude: self.exclude,
            prefers_pair: scopes.prefill.and_then(|_| prefers_pair(self.headers)),
        };
        let (asked, look) = shared.tape.as_ref().map(|tape| Asked::new(tape, &request)).unzip();
        let number = asked.as_ref().map_or(0, |asked| asked.n);
        note.recorded(number);
        let matches = look_up(shared, &followed, prompt, look);
        let planned = shared.books.lock().plan(shared.clock.now_ns(), &request, &matches, asked);
        let planned = planned.map_err(|no| unbooked(shared, no, &scopes))?;
        let pledge = |role: Role, worker: WorkerId| {
            let credit = followed
                .get(role)
                .and_then(|scope| shared.belief.credit(scope, prompt, (worker, role), number));
            Pledge::new(Arc::clone(shared), self.endpoint, self.body.clone(), credit)
        };
        Ok(booked(shared, planned, scopes, pledge))
    }

    /// Whether it could go to any worker of its scopes.
    pub(super) fn is_for_any(&self) -> bool {
        self.exclude.is_empty() && !self.headers.contains_key(&TARGET_WORKER)
    }

    fn sphere(&self, shared: &Shared, model: Option<&str>) -> Result<Sphere, Refusal> {
        let router = &shared.books.lock().router;
        let mut scopes = router.scopes(model).map_err(|unknown| {
            tracing::debug!("nobody can have a request: {unknown}");
            Refusal::UnknownModel
        })?;
        // A scope outlives its workers.
        let is_filled = |scope: Option<ScopeId>| scope.is_some_and(|scope| router.has_workers(scope));
        let is_for_pairs =
            (is_filled(scopes.prefill) || is_filled(scopes.decode)) && !is_filled(scopes.regular);
        if !self.endpoint.is_for_pairs() {
            if is_for_pairs {
                return Err(Refusal::NeedsRegular);
            }
            scopes = Scopes { regular: scopes.regular, ..Scopes::default() };
        }
        let follows = |role: &Role| router.signals_of(*role).prefix_index.is_some();
        let followed = PerRole::of(|role| scopes.get(role).filter(|_| follows(&role)));
        let any = scopes.regular.or(scopes.prefill).or(scopes.decode);
        let model = any.and_then(|scope| router.scope_model(scope)).map(str::to_owned);
        Ok(Sphere { scopes, followed, model, is_for_pairs })
    }
}

/// What each role's workers have of the prompt, where somebody wants to know.
fn look_up(
    shared: &Shared,
    followed: &Scopes,
    prompt: PromptView<'_>,
    look: Option<Box<Look>>,
) -> PlanMatches {
    if look.is_none() && followed.iter().all(Option::is_none) {
        return PlanMatches::default();
    }
    let Some(index) = shared.belief.read_for(prompt, look) else { return PlanMatches::default() };
    PerRole::of(|role| followed.get(role).map_or_else(Matches::default, |scope| index.lookup(scope, prompt)))
}

/// The guards of a plan that is booked.
fn booked(
    shared: &Arc<Shared>,
    planned: Planned,
    scopes: Scopes,
    pledge: impl Fn(Role, WorkerId) -> Pledge,
) -> Booked {
    // Both leases are held before the index is looked at.
    let source = planned.prefill.as_ref().map(|leg| leg.assignment);
    let computing = planned.prefill.map(|leg| Lease::new(Arc::clone(shared), leg));
    let answering = Lease::new(Arc::clone(shared), planned.decode).computed_by(source);
    let leg = |role, lease: Lease| {
        let assignment = *lease.assignment();
        let booking = Booking::new(lease, pledge(role, assignment.worker));
        BookedLeg { assignment, member: Arc::clone(booking.member()), booking }
    };
    let role = if computing.is_some() { Role::Decode } else { Role::Regular };
    let prefill = computing.map(|lease| leg(Role::Prefill, lease));
    Booked { prefill, decode: leg(role, answering), scopes }
}

/// Whether workers that were not tried could have the request now.
pub(super) fn others_left(shared: &Shared, scopes: Scopes, headers: &HeaderMap, tried: &[WorkerId]) -> bool {
    let request = PlanRequest {
        scopes,
        prompt: PromptView::Unreadable,
        prompt_tokens: 0,
        output_budget: None,
        keys: routing_keys(headers, shared.settings.api_key.as_ref()),
        exclude: tried,
        prefers_pair: prefers_pair(headers),
    };
    let now_ns = shared.clock.now_ns();
    let proposed = shared.books.lock().router.propose_plan(now_ns, &request, &PlanMatches::default());
    // One that would have to wait for a decode stream to end is there.
    !matches!(proposed, Err(NoPlan { why, .. }) if why != Unroutable::DispatchLimit)
}

/// Takes a credit back, because nothing shows that the prompt reached the worker.
pub(super) fn withdraw(shared: &Shared, endpoint: &Endpoint, body: &[u8], owed: Owed) {
    let view = RequestView::read(endpoint.dialect, body);
    shared.belief.withdraw(prompt_view(&view), owed);
}

/// The prompt as the index sees it. A batch goes to one worker, by its first prompt.
fn prompt_view<'a>(view: &'a RequestView<'_>) -> PromptView<'a> {
    match view.prompt.first() {
        First::Text(text) => PromptView::Text(text.as_bytes()),
        First::Tokens(ids) => PromptView::Tokens(ids),
        First::Unreadable => PromptView::Unreadable,
    }
}

fn unbooked(shared: &Shared, no: NoPlan, scopes: &Scopes) -> Unbooked {
    // What becomes of it stands in the access log.
    tracing::debug!("nobody can have a request: {no}");
    let retry_after_secs = shared.settings.recovery_secs;
    Unbooked::Refused(match (no.why, scopes.prefill) {
        (Unroutable::DispatchLimit, Some(prefill)) => return Unbooked::AtLimit(prefill),
        (Unroutable::DispatchLimit, None) => Refusal::DispatchLimit { retry_after_secs },
        // It is for want of workers of this model alone.
        (Unroutable::NoWorkers | Unroutable::NoneHealthy { .. }, _)
            if no.leg == Leg::Whole && others_serve(shared) =>
        {
            Refusal::ModelDown { retry_after_secs }
        }
        (Unroutable::NoWorkers, _) => Refusal::NoWorkers { retry_after_secs }.of_leg(no.leg),
        (Unroutable::NoneHealthy { .. } | Unroutable::AllTried { .. }, _) => {
            Refusal::NoneHealthy { retry_after_secs }.of_leg(no.leg)
        }
        (Unroutable::BreakersOpen { retry_after_ns }, _) => {
            Refusal::BreakersOpen { retry_after_secs: whole_seconds(retry_after_ns) }.of_leg(no.leg)
        }
        (Unroutable::TargetUnavailable, _) => Refusal::TargetUnavailable { retry_after_secs },
    })
}

/// Whether there are workers that get requests, if not this one.
fn others_serve(shared: &Shared) -> bool {
    let books = shared.books.lock();
    books.router.workers(shared.clock.now_ns()).any(|row| row.worker.takes_requests())
}

/// The keys of a request. The router's own key tells no clients apart, since all of them show it.
fn routing_keys<'a>(headers: &'a HeaderMap, own_key: Option<&ApiKey>) -> RoutingKeys<'a> {
    let is_own =
        |name: &HeaderName| *name == header::AUTHORIZATION && own_key.is_some_and(|key| key.admits(headers));
    let field = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    RoutingKeys {
        target_worker: field(&TARGET_WORKER),
        routing_key: field(&ROUTING_KEY),
        implicit: IMPLICIT_KEYS.iter().filter(|name| !is_own(name)).find_map(field),
    }
}

/// What the client says of pairs, if it says that in a word that is known. The first header of this name counts.
fn prefers_pair(headers: &HeaderMap) -> Option<bool> {
    let word = headers.get(PREFER_PD)?.as_bytes().trim_ascii();
    let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
    match () {
        () if is("true") || is("1") => Some(true),
        () if is("false") || is("0") => Some(false),
        () => None,
    }
}
