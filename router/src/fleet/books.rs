//! The decision core and the table of those that it decides about, under one lock: whoever is assigned is in the table.

use std::collections::HashMap;
use std::sync::Arc;

use router_core::ids::WorkerId;
use router_core::{Assignment, NoPlan, PlanMatches, PlanRequest, WorkerSpec};

use super::rank::{Layout, Rank};
use super::{Identity, Member};
use crate::record::{Asked, Recorded};

/// Decision core and members, always changed together.
pub(crate) struct Books {
    pub(crate) router: Recorded,
    /// In the order in which they were added.
    members: Arc<Vec<Arc<Member>>>,
    /// Those that the core decides about, in the order of their ids, as there.
    ranks: Vec<(Arc<Rank>, Arc<Member>)>,
    /// The engines by what operators know them by.
    known: HashMap<Identity, Arc<Member>>,
    /// The ranks that have names of their own.
    known_ranks: HashMap<Identity, (Arc<Rank>, Arc<Member>)>,
}

/// A plan whose legs are booked.
pub(crate) struct Planned {
    /// Who computes the prompt; `None` where the worker that answers does.
    pub(crate) prefill: Option<PlannedLeg>,
    pub(crate) decode: PlannedLeg,
}

/// One leg of it, and whose it is.
pub(crate) struct PlannedLeg {
    pub(crate) assignment: Assignment,
    pub(crate) rank: Arc<Rank>,
    pub(crate) member: Arc<Member>,
}

impl Books {
    pub(crate) fn new(router: Recorded) -> Self {
        Self {
            router,
            members: Arc::default(),
            ranks: Vec::new(),
            known: HashMap::new(),
            known_ranks: HashMap::new(),
        }
    }

    /// Everybody, in the order in which they were added, to be looked at without the lock.
    pub(crate) fn roster(&self) -> Arc<Vec<Arc<Member>>> {
        Arc::clone(&self.members)
    }

    /// All that the core decides about, in its order.
    pub(super) fn ranks(&self) -> &[(Arc<Rank>, Arc<Member>)] {
        &self.ranks
    }

    /// Makes an engine known of which the core has been told as one worker.
    pub(crate) fn add(&mut self, member: Arc<Member>) {
        let at = self.members.partition_point(|known| known.first_id < member.first_id);
        self.known.insert(member.identity, Arc::clone(&member));
        member.ranks().iter().for_each(|rank| self.enlist(Arc::clone(rank), &member));
        Arc::make_mut(&mut self.members).insert(at, member);
    }

    /// The engine that operators know by this id.
    pub(crate) fn find(&self, identity: Identity) -> Option<Arc<Member>> {
        self.known.get(&identity).cloned()
    }

    /// The rank that operators know by this id, where engines are addressed by rank.
    pub(crate) fn find_rank(&self, identity: Identity) -> Option<(Arc<Rank>, Arc<Member>)> {
        self.known_ranks.get(&identity).cloned()
    }

    /// Whose worker that is, of those that there are now.
    pub(crate) fn member_of(&self, worker: WorkerId) -> Option<Arc<Member>> {
        self.place(worker).map(|at| Arc::clone(&self.ranks[at].1))
    }

    /// The worker of this id, if it is one of those that there are now.
    pub(crate) fn rank(&self, worker: WorkerId) -> Option<&Arc<Rank>> {
        self.place(worker).map(|at| &self.ranks[at].0)
    }

    /// Whether this very registration is still there.
    pub(super) fn has(&self, member: &Member) -> bool {
        self.known.get(&member.identity).is_some_and(|known| known.first_id == member.first_id)
    }

    /// How many requests are in flight at an engine, also on ranks that it has no more.
    pub(super) fn leases_at(&self, member: &Member) -> usize {
        member.all_ids().iter().map(|id| self.router.leases_of(*id)).sum()
    }

    /// Takes an engine out of the fleet; whether it was there. What is in flight there goes on, what goes on about it ends.
    pub(super) fn remove(&mut self, now_ns: u64, member: &Member) -> bool {
        member.leave_alone();
        let is_there = self.has(member);
        if is_there {
            self.known.remove(&member.identity);
            let at = self.members.partition_point(|known| known.first_id < member.first_id);
            Arc::make_mut(&mut self.members).remove(at);
            member.ranks().iter().for_each(|rank| self.strike(now_ns, rank));
        }
        is_there
    }

    /// Tells the core which model an engine serves; whether that is news.
    pub(super) fn set_model(&mut self, member: &Member, model: Option<&str>) -> bool {
        let set = |news, id: &WorkerId| self.router.set_model(*id, model.map(str::to_owned)) | news;
        member.ids().iter().fold(false, set)
    }

    /// An engine is addressed in another way: its workers go and others come in one step, which are as healthy as these
    /// were, and serve the same. What is in flight goes on. Returns the ids that it had; nothing if it leaves.
    pub(super) fn lay_out(
        &mut self,
        now_ns: u64,
        member: &Arc<Member>,
        layout: Layout,
    ) -> Option<Vec<WorkerId>> {
        let before = member.ranks();
        let is_there = self.has(member);
        let mut staying = before.iter().filter_map(|rank| self.router.worker(rank.id));
        let like = staying.find(|worker| is_there && !worker.draining)?;
        let (like, healthy) = (like.clone(), like.healthy);
        before.iter().for_each(|rank| self.strike(now_ns, rank));
        let mut ranks = Vec::new();
        for number in layout.numbers() {
            let spec = WorkerSpec {
                url: Rank::url(&member.address, number),
                model: like.model.clone(),
                role: like.role,
            };
            let rank =
                Arc::new(Rank::new(self.router.register_worker(now_ns, spec), &member.address, number));
            self.router.set_healthy(now_ns, rank.id, healthy);
            self.enlist(Arc::clone(&rank), member);
            ranks.push(rank);
        }
        member.set_ranks(layout, ranks, |id| self.router.leases_of(id) > 0);
        Some(before.iter().map(|rank| rank.id).collect())
    }

    /// Takes one rank out, which is not the last one of its engine; whether it was there. What is in flight there goes on.
    pub(super) fn remove_rank(&mut self, now_ns: u64, member: &Member, rank: &Rank) -> bool {
        let ranks = member.ranks();
        let others: Vec<_> = ranks.iter().filter(|other| other.id != rank.id).cloned().collect();
        let is_there = !others.is_empty() && others.len() < ranks.len() && self.has(member);
        if is_there {
            self.strike(now_ns, rank);
            member.set_ranks(member.layout(), others, |id| self.router.leases_of(id) > 0);
        }
        is_there
    }

    fn enlist(&mut self, rank: Arc<Rank>, member: &Arc<Member>) {
        let at = self.ranks.partition_point(|(known, _)| known.id < rank.id);
        if rank.number.is_some() {
            self.known_ranks.insert(rank.identity, (Arc::clone(&rank), Arc::clone(member)));
        }
        self.ranks.insert(at, (rank, Arc::clone(member)));
    }

    fn strike(&mut self, now_ns: u64, rank: &Rank) {
        if let Some(at) = self.place(rank.id) {
            self.ranks.remove(at);
            self.known_ranks.remove(&rank.identity);
        }
        self.router.remove_worker(now_ns, rank.id);
    }

    fn place(&self, worker: WorkerId) -> Option<usize> {
        self.ranks.binary_search_by_key(&worker, |(rank, _)| rank.id).ok()
    }

    /// Chooses the workers of a request and books its legs on them. `asked` is what is recorded of it.
    ///
    /// # Errors
    /// Nobody can have a leg; nothing is booked.
    pub(crate) fn plan(
        &mut self,
        now_ns: u64,
        request: &PlanRequest<'_>,
        matches: &PlanMatches,
        asked: Option<Asked>,
    ) -> Result<Planned, NoPlan> {
        let plan = self.router.plan(now_ns, request, matches, asked)?;
        let leg = |assignment: Assignment| {
            let at = self.place(assignment.worker).expect("whoever is assigned is in the table");
            let (rank, member) = &self.ranks[at];
            PlannedLeg { assignment, rank: Arc::clone(rank), member: Arc::clone(member) }
        };
        Ok(Planned { prefill: plan.prefill.map(leg), decode: leg(plan.decode) })
    }
}

impl std::fmt::Debug for Books {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Books").field("members", &self.members.len()).finish_non_exhaustive()
    }
}
