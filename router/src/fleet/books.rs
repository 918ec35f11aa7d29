//! The decision core and the table of those that it decides about, under one lock: whoever is assigned is in the table.

use std::collections::HashMap;
use std::sync::Arc;

use router_core::index::Matches;
use router_core::{Assignment, RouteRequest, Router, Unroutable};

use super::{Identity, Member};

/// See the module's description.
pub(crate) struct Books {
    pub(crate) router: Router,
    /// In the order of their ids.
    members: Arc<Vec<Arc<Member>>>,
    /// The same by what operators know them by.
    known: HashMap<Identity, Arc<Member>>,
}

impl Books {
    pub(crate) fn new(router: Router) -> Self {
        Self { router, members: Arc::default(), known: HashMap::new() }
    }

    /// Everybody, in the order in which they were added.
    pub(crate) fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// The same, to be looked at without the lock.
    pub(crate) fn roster(&self) -> Arc<Vec<Arc<Member>>> {
        Arc::clone(&self.members)
    }

    /// Makes a worker known that the core has been told of.
    pub(crate) fn add(&mut self, member: Arc<Member>) {
        let at = self.members.partition_point(|known| known.id < member.id);
        self.known.insert(member.identity, Arc::clone(&member));
        Arc::make_mut(&mut self.members).insert(at, member);
    }

    /// The one that operators know by this id.
    pub(crate) fn find(&self, identity: Identity) -> Option<Arc<Member>> {
        self.known.get(&identity).cloned()
    }

    /// Takes a worker out of the fleet; whether it was there. What is in flight there goes on, what goes on about it ends.
    pub(super) fn remove(&mut self, now_ns: u64, member: &Member) -> bool {
        member.leave_alone();
        if let Ok(at) = self.members.binary_search_by_key(&member.id, |known| known.id) {
            Arc::make_mut(&mut self.members).remove(at);
            self.known.remove(&member.identity);
        }
        self.router.remove_worker(now_ns, member.id)
    }

    /// Chooses a worker and books the request on it.
    ///
    /// # Errors
    /// No worker can have the request; nothing is booked.
    pub(crate) fn assign(
        &mut self,
        now_ns: u64,
        request: &RouteRequest<'_>,
        matches: &Matches,
    ) -> Result<(Assignment, Arc<Member>), Unroutable> {
        let assignment = self.router.assign(now_ns, request, matches)?;
        let at = self.members.partition_point(|member| member.id < assignment.worker);
        Ok((assignment, Arc::clone(&self.members[at])))
    }
}

impl std::fmt::Debug for Books {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Books").field("members", &self.members.len()).finish_non_exhaustive()
    }
}
