//! How a worker is made known. The place of a URL is taken at once, under the lock: whoever registers it at the same time
//! gets the same worker. And how what was said of it is changed.

use std::sync::Arc;

use router_core::{Role, WorkerSpec};

use super::{Identity, Member, Stage, Terms, life};
use crate::shared::Shared;
use crate::upstream::Address;

/// Most workers of one router.
pub(crate) const MAX_WORKERS: usize = 10_000;

/// What came of a registration.
#[derive(Debug)]
#[must_use]
pub(crate) enum Registered {
    /// It is new.
    New(Arc<Member>),
    /// It was there, and stays as it is.
    Known(Arc<Member>),
    /// There are [`MAX_WORKERS`].
    Full,
}

/// Makes a worker known and begins to probe it. One that is leaving, or did not come in its time, begins anew: it goes at
/// once, and what runs there goes on.
pub(crate) fn register(shared: &Arc<Shared>, address: &Address, terms: Terms) -> Registered {
    enrol(shared, address, terms, |_| false)
}

/// The same for one of which other things are said than before: one that is another worker by that begins anew too.
pub(crate) fn register_changed(shared: &Arc<Shared>, address: &Address, terms: Terms) -> Registered {
    let (role, port) = (terms.role, terms.bootstrap_port);
    enrol(shared, address, terms, |former| !former.fits(role, port))
}

fn enrol(
    shared: &Arc<Shared>,
    address: &Address,
    terms: Terms,
    is_another: impl FnOnce(&Member) -> bool,
) -> Registered {
    let identity = Identity::of(address);
    let now_ns = shared.clock.now_ns();
    let mut books = shared.books.lock();
    match books.find(identity) {
        Some(former)
            if former.stage().is_leaving()
                || matches!(former.stage(), Stage::Failed(_))
                || is_another(&former) =>
        {
            books.remove(now_ns, &former);
            shared.belief.remove(&former.ids());
        }
        Some(known) => return Registered::Known(known),
        None => {}
    }
    if books.ranks().len() >= MAX_WORKERS {
        return Registered::Full;
    }
    // Who does not say what it does is asked before it gets requests.
    let role = terms.role.unwrap_or(Role::Regular);
    let spec = WorkerSpec { url: address.url.clone(), model: terms.model.clone(), role };
    let id = books.router.register_worker(now_ns, spec);
    let member = Arc::new(Member::new(id, address.clone(), terms, shared.background.pools));
    books.add(Arc::clone(&member));
    // Under the lock: whoever takes it out again must find what is to be ended.
    life::begin(shared, &member);
    drop(books);
    Registered::New(member)
}

/// Changes what operators say of a worker. It is as if it had been registered so, but that it keeps its requests and what
/// is believed of its cache.
pub(crate) fn set_terms(shared: &Arc<Shared>, member: &Arc<Member>, change: impl FnOnce(&mut Terms)) {
    // Whoever learns from the worker what it serves looks at the terms under this lock too.
    let mut books = shared.books.lock();
    let (before, now) = member.change_terms(change);
    if before.model != now.model {
        // What nobody says any more is what the worker says.
        let model = now.model.or_else(|| member.facts().model);
        books.set_model(member, model.as_deref());
        shared.turns.notify_waiters();
    }
    let is_there = books.has(member);
    let stage = member.stage();
    if before.health_check != now.health_check && is_there && (stage.is_coming() || stage == Stage::Ready) {
        life::begin(shared, member);
    }
}
