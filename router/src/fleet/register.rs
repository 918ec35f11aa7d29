//! How a worker is made known. The place of a URL is taken at once, under the lock: whoever registers it at the same time
//! gets the same worker.

use std::sync::Arc;

use router_core::{Role, WorkerSpec};

use super::{Identity, Member, Stage, Terms, life};
use crate::shared::Shared;
use crate::upstream::Address;

/// Most workers of one router.
pub(crate) const MAX_WORKERS: usize = 10_000;

/// What came of a registration.
#[derive(Debug)]
pub(crate) enum Registered {
    /// It is new.
    New(Arc<Member>),
    /// It was there. If it had not come in its time it gets another chance.
    Known(Arc<Member>),
    /// There are [`MAX_WORKERS`].
    Full,
}

/// Makes a worker known and begins to probe it. One that is leaving begins anew: it goes at once, and what runs there
/// goes on.
pub(crate) fn register(shared: &Arc<Shared>, address: &Address, terms: Terms) -> Registered {
    let identity = Identity::of(address);
    let now_ns = shared.clock.now_ns();
    let mut books = shared.books.lock();
    match books.find(identity) {
        Some(leaving) if leaving.stage() == Stage::Draining => {
            books.remove(now_ns, &leaving);
            shared.belief.remove(leaving.id);
        }
        Some(known) => {
            drop(books);
            if known.advance(|stage| matches!(stage, Stage::Failed(_)), Stage::Pending) {
                life::begin(shared, &known);
            }
            return Registered::Known(known);
        }
        None => {}
    }
    if books.members().len() >= MAX_WORKERS {
        return Registered::Full;
    }
    let spec = WorkerSpec { url: address.url.clone(), model: terms.model.clone(), role: Role::Regular };
    let id = books.router.register_worker(now_ns, spec);
    let member = Arc::new(Member::new(id, address.clone(), terms, shared.background.pools));
    books.add(Arc::clone(&member));
    drop(books);
    life::begin(shared, &member);
    Registered::New(member)
}
