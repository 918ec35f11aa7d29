//! From bytes to a booking: what the request says, which worker gets it, and the credit for its prompt.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};
use protocol::view::{First, RequestView};
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, Matches};
use router_core::prompt::PromptView;
use router_core::{Assignment, Role, RouteRequest, RoutingKeys, Unroutable};

use super::endpoint::Endpoint;
use super::lease::{Booking, Lease, Pledge};
use super::note::Note;
use crate::api_key::ApiKey;
use crate::clock::whole_seconds;
use crate::error::Refusal;
use crate::fleet::Member;
use crate::shared::Shared;

const TARGET_WORKER: HeaderName = HeaderName::from_static("x-smg-target-worker");
const ROUTING_KEY: HeaderName = HeaderName::from_static("x-smg-routing-key");
/// What stands in for a routing key: the first of these that the client sent.
const IMPLICIT_KEYS: [HeaderName; 3] =
    [header::AUTHORIZATION, HeaderName::from_static("x-forwarded-for"), header::COOKIE];

/// A worker that was chosen, and what it holds for the request.
pub(super) struct Booked {
    pub(super) assignment: Assignment,
    pub(super) member: Arc<Member>,
    pub(super) booking: Booking,
    /// Which workers might have had it.
    pub(super) scope: ScopeId,
}

/// Chooses a worker that is not in `exclude` and books the request on it.
///
/// Only `assign` runs under the decision lock; reading the body and walking the index do not. What was read is not
/// kept: a body of many megabytes is not held twice while its answer is awaited.
///
/// # Errors
/// No worker can have the request; the log says why.
pub(super) fn book(
    shared: &Arc<Shared>,
    endpoint: &'static Endpoint,
    headers: &HeaderMap,
    body: &Bytes,
    exclude: &[WorkerId],
    note: &mut Note,
) -> Result<Booked, Refusal> {
    let view = RequestView::read(endpoint.dialect, body);
    let prompt = prompt_view(&view);
    let prompt_tokens = view.prompt.estimated_tokens();
    let (scope, model) = {
        let router = &shared.books.lock().router;
        let scope = router.scope(Role::Regular, view.model.as_deref());
        let model = scope.as_ref().ok().and_then(|scope| router.scope_model(*scope));
        (scope, model.map(str::to_owned))
    };
    note.looked(view.stream, view.model.as_deref(), model.as_deref(), prompt_tokens);
    let scope = scope.map_err(|unknown| {
        tracing::debug!("nobody can have a request: {unknown}");
        Refusal::UnknownModel
    })?;
    let request = RouteRequest {
        scope,
        prompt,
        prompt_tokens,
        output_budget: view.output_budget,
        keys: routing_keys(headers, shared.settings.api_key.as_ref()),
        exclude,
    };
    let index = shared.belief.read();
    let matches = index.as_ref().map_or_else(Matches::default, |index| index.lookup(scope, prompt));
    drop(index);
    let now_ns = shared.clock.now_ns();
    let assigned = shared.books.lock().assign(now_ns, &request, &matches);
    let (assignment, member) = assigned.map_err(|why| refusal(shared, why))?;
    let lease = Lease::new(Arc::clone(shared), Arc::clone(&member), assignment);
    let credit = shared.belief.write().map(|mut index| index.credit(scope, prompt, assignment.worker));
    let pledge = Pledge::new(Arc::clone(shared), endpoint, body.clone(), credit);
    Ok(Booked { assignment, member, booking: Booking::new(lease, pledge), scope })
}

/// Whether a worker that was not tried could have the request now.
pub(super) fn others_left(shared: &Shared, scope: ScopeId, headers: &HeaderMap, tried: &[WorkerId]) -> bool {
    let request = RouteRequest {
        scope,
        prompt: PromptView::Unreadable,
        prompt_tokens: 0,
        output_budget: None,
        keys: routing_keys(headers, shared.settings.api_key.as_ref()),
        exclude: tried,
    };
    shared.books.lock().router.propose(shared.clock.now_ns(), &request, &Matches::default()).is_ok()
}

/// Takes a credit back, because nothing shows that the prompt reached the worker.
pub(super) fn withdraw(shared: &Shared, endpoint: &Endpoint, body: &[u8], credit: Credit) {
    let view = RequestView::read(endpoint.dialect, body);
    shared.belief.withdraw(prompt_view(&view), credit);
}

/// The prompt as the index sees it. A batch goes to one worker, by its first prompt.
fn prompt_view<'a>(view: &'a RequestView<'_>) -> PromptView<'a> {
    match view.prompt.first() {
        First::Text(text) => PromptView::Text(text.as_bytes()),
        First::Tokens(ids) => PromptView::Tokens(ids),
        First::Unreadable => PromptView::Unreadable,
    }
}

fn refusal(shared: &Shared, why: Unroutable) -> Refusal {
    // What becomes of it stands in the access log.
    tracing::debug!("nobody can have a request: {why}");
    match why {
        // It is for want of workers of this model alone.
        Unroutable::NoWorkers | Unroutable::NoneHealthy { .. } if others_serve(shared) => {
            Refusal::ModelDown { retry_after_secs: shared.settings.recovery_secs }
        }
        Unroutable::NoWorkers => Refusal::NoWorkers { retry_after_secs: shared.settings.recovery_secs },
        Unroutable::NoneHealthy { .. } | Unroutable::AllTried { .. } => {
            Refusal::NoneHealthy { retry_after_secs: shared.settings.recovery_secs }
        }
        Unroutable::BreakersOpen { retry_after_ns } => {
            Refusal::BreakersOpen { retry_after_secs: whole_seconds(retry_after_ns) }
        }
        Unroutable::TargetUnavailable => {
            Refusal::TargetUnavailable { retry_after_secs: shared.settings.recovery_secs }
        }
    }
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
