//! The fleet: the workers in the order in which they were added, as plain data, and the scopes that requests are
//! routed in.
//!
//! Load is the ledger's matter and belief about caches the index's; a worker is what was configured, whether it is
//! healthy, and whether it is about to leave. A worker's id is its place in the order of adding. It is never given to
//! another one.

use crate::request::UnknownModel;
use crate::{ScopeId, WorkerId};

/// What a worker does for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Prefill and decode.
    Regular,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Regular, Role::Prefill, Role::Decode];

    /// The word used in files, metrics and answers.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Role::Regular => "regular",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        }
    }
}

/// What is said of a worker when it is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Base URL.
    pub url: String,
    /// The model it serves; `None` if not known, and then it is taken to serve every one.
    pub model: Option<String>,
    /// What it does.
    pub role: Role,
}

/// One addressable engine endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its name in this process.
    pub id: WorkerId,
    /// Base URL.
    pub url: String,
    /// The model it serves; `None` serves every one.
    pub model: Option<String>,
    /// What it does.
    pub role: Role,
    /// Whether it is well enough for requests.
    pub healthy: bool,
    /// It is leaving: what is in flight on it ends, and nothing new begins. Never taken back.
    pub draining: bool,
}

/// What a scope takes in: the workers of a role, as far as they serve certain models.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Scope {
    role: Role,
    models: Models,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Models {
    /// Whatever they serve.
    Every,
    /// This one, or they have not said which.
    One(String),
    /// They have not said which.
    Unstated,
}

impl Scope {
    fn covers(&self, worker: &Worker) -> bool {
        let serves = match (&self.models, &worker.model) {
            (Models::Every, _) | (_, None) => true,
            (Models::One(wanted), Some(served)) => wanted == served,
            (Models::Unstated, Some(_)) => false,
        };
        self.role == worker.role && serves
    }
}

/// All workers, ordered by id.
#[derive(Debug)]
pub(crate) struct Fleet {
    workers: Vec<Worker>,
    next_id: u32,
    /// Place = `ScopeId`. One for "every model" of each role, then one per role and model that some worker has stated:
    /// the names that clients make up never grow it.
    scopes: Vec<Scope>,
}

// === impl Worker ===

impl Worker {
    /// Whether it may get requests, as far as its breaker lets them through.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        self.healthy && !self.draining
    }
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn new() -> Self {
        let fixed = |role| [Models::Every, Models::Unstated].map(|models| Scope { role, models });
        let scopes = Role::ALL.into_iter().flat_map(fixed).collect();
        Self { workers: Vec::new(), next_id: 0, scopes }
    }

    /// Adds a worker behind all others.
    pub(crate) fn add(&mut self, spec: WorkerSpec, healthy: bool) -> &Worker {
        let id = WorkerId(self.next_id);
        self.next_id += 1;
        let WorkerSpec { url, model, role } = spec;
        self.ensure_scope(role, model.as_deref());
        let at = self.workers.len();
        self.workers.push(Worker { id, url, model, role, healthy, draining: false });
        &self.workers[at]
    }

    /// Takes a worker out; false if there is none of that id.
    pub(crate) fn remove(&mut self, id: WorkerId) -> bool {
        let place = self.place(id);
        place.map(|at| self.workers.remove(at)).is_some()
    }

    /// Sets the health flag; whether that changed it.
    pub(crate) fn set_healthy(&mut self, id: WorkerId, healthy: bool) -> bool {
        let Some(at) = self.place(id) else { return false };
        std::mem::replace(&mut self.workers[at].healthy, healthy) != healthy
    }

    /// Sets the draining flag; whether that changed it.
    pub(crate) fn set_draining(&mut self, id: WorkerId) -> bool {
        let Some(at) = self.place(id) else { return false };
        !std::mem::replace(&mut self.workers[at].draining, true)
    }

    /// Sets the model; whether that changed it.
    pub(crate) fn set_model(&mut self, id: WorkerId, model: Option<String>) -> bool {
        let Some(at) = self.place(id) else { return false };
        self.ensure_scope(self.workers[at].role, model.as_deref());
        let worker = &mut self.workers[at];
        let changed = worker.model != model;
        worker.model = model;
        changed
    }

    /// The scope of a model's workers of a role.
    pub(crate) fn scope(&self, role: Role, model: Option<&str>) -> Result<ScopeId, UnknownModel> {
        let place = |wanted: &Models| {
            self.scopes.iter().position(|scope| scope.role == role && scope.models == *wanted)
        };
        let of = |name: &str| {
            let is_it = |models: &Models| matches!(models, Models::One(model) if model == name);
            self.scopes.iter().position(|scope| scope.role == role && is_it(&scope.models))
        };
        let base = || model.and_then(|name| name.split_once(':')).and_then(|(base, _)| of(base));
        let others = || match self.who_may_serve_others(role) {
            None => Err(UnknownModel),
            Some(models) => Ok(place(&models).unwrap_or(0)),
        };
        match (model, model.and_then(of).or_else(base)) {
            (_, Some(at)) => Ok(ScopeId(at as u32)),
            (None, None) => Ok(ScopeId(place(&Models::Every).unwrap_or(0) as u32)),
            (Some(_), None) => others().map(|at| ScopeId(at as u32)),
        }
    }

    /// The model of a scope; `None` if it is not of a single one.
    pub(crate) fn scope_model(&self, scope: ScopeId) -> Option<&str> {
        match &self.scopes.get(scope.0 as usize)?.models {
            Models::One(model) => Some(model),
            Models::Every | Models::Unstated => None,
        }
    }

    /// All workers.
    pub(crate) fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The worker of that id.
    pub(crate) fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.place(id).map(|at| &self.workers[at])
    }

    /// The workers of a scope, healthy or not, draining or not.
    pub(crate) fn members(&self, scope: ScopeId) -> impl Iterator<Item = &Worker> {
        let scope = self.scopes.get(scope.0 as usize);
        self.workers.iter().filter(move |worker| scope.is_some_and(|scope| scope.covers(worker)))
    }

    /// Who gets a request for a model that nobody has stated: everybody, as long as there is no doubt which model is
    /// meant; otherwise those that have not said what they serve, and nobody if there are none.
    fn who_may_serve_others(&self, role: Role) -> Option<Models> {
        let mut stated = None;
        let (mut several, mut unstated) = (false, false);
        for worker in self.workers.iter().filter(|worker| worker.role == role) {
            match &worker.model {
                None => unstated = true,
                Some(model) => several |= *stated.get_or_insert(model) != model,
            }
        }
        match (several, unstated) {
            (false, _) => Some(Models::Every),
            (true, true) => Some(Models::Unstated),
            (true, false) => None,
        }
    }

    fn ensure_scope(&mut self, role: Role, model: Option<&str>) {
        let Some(model) = model else { return };
        let scope = Scope { role, models: Models::One(model.to_owned()) };
        if !self.scopes.contains(&scope) {
            self.scopes.push(scope);
        }
    }

    fn place(&self, id: WorkerId) -> Option<usize> {
        self.workers.binary_search_by_key(&id, |worker| worker.id).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(url: &str, model: Option<&str>, role: Role) -> WorkerSpec {
        WorkerSpec { url: url.into(), model: model.map(str::to_owned), role }
    }

    fn ids(fleet: &Fleet, role: Role, model: Option<&str>) -> Vec<u32> {
        fleet.members(fleet.scope(role, model).expect("a known model")).map(|worker| worker.id.0).collect()
    }

    #[test]
    fn a_scope_is_one_role_and_one_model_or_all() {
        let mut fleet = Fleet::new();
        fleet.add(spec("a", Some("m1"), Role::Regular), true);
        fleet.add(spec("b", Some("m2"), Role::Regular), true);
        fleet.add(spec("c", None, Role::Regular), true);
        fleet.add(spec("d", Some("m1"), Role::Prefill), true);
        assert_eq!(ids(&fleet, Role::Regular, None), [0, 1, 2]);
        assert_eq!(
            ids(&fleet, Role::Regular, Some("m1")),
            [0, 2],
            "a worker of no stated model serves every one"
        );
        assert_eq!(ids(&fleet, Role::Regular, Some("made up")), [2], "two others are stated");
        assert_eq!(ids(&fleet, Role::Prefill, Some("m1")), [3]);
        assert_eq!(ids(&fleet, Role::Decode, None), [] as [u32; 0]);
    }

    #[test]
    fn scopes_differ_by_role_and_stay_when_workers_go() {
        let mut fleet = Fleet::new();
        fleet.add(spec("a", Some("m"), Role::Prefill), true);
        let prefill = fleet.scope(Role::Prefill, Some("m"));
        fleet.add(spec("b", Some("m"), Role::Decode), true);
        assert_ne!(prefill, fleet.scope(Role::Decode, Some("m")));
        assert!(fleet.remove(WorkerId(0)));
        assert!(!fleet.remove(WorkerId(0)));
        assert_eq!(prefill, fleet.scope(Role::Prefill, Some("m")));
    }

    #[test]
    fn a_made_up_model_is_refused_only_where_everybody_says_another() {
        let scope = |models: &[Option<&str>], name: &str| {
            let mut fleet = Fleet::new();
            for model in models {
                fleet.add(spec("a", *model, Role::Regular), true);
            }
            fleet.add(spec("p", Some("q1"), Role::Prefill), true);
            fleet.add(spec("p", Some("q2"), Role::Prefill), true);
            fleet.scope(Role::Regular, Some(name)).map(|scope| fleet.scope_model(scope).map(str::to_owned))
        };
        let all = Ok(None);
        let found = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(scope(&[Some("m1"), Some("m2")], "x"), Err(UnknownModel));
        assert_eq!(scope(&[Some("m1"), Some("m2"), None], "x"), all, "the last one may serve it");
        assert_eq!(scope(&[None, Some("m1"), Some("m2")], "x"), all);
        assert_eq!(scope(&[Some("m1"), Some("m1")], "x"), all, "there is no doubt who is meant");
        assert_eq!(scope(&[], "x"), all, "other roles have no say");
        for name in ["m1", "m1:adapter", "m1:adapter:2"] {
            assert_eq!(scope(&[Some("m1"), Some("m2")], name), found("m1"), "{name}");
        }
        for name in ["m1x:adapter", ":m1", "adapter:m1", ""] {
            assert_eq!(scope(&[Some("m1"), Some("m2")], name), Err(UnknownModel), "{name}");
        }
        assert_eq!(scope(&[Some("m1"), Some("m1:8b")], "m1:8b"), found("m1:8b"), "a full name comes first");
    }

    #[test]
    fn a_made_up_model_goes_to_no_worker_of_another() {
        let mut fleet = Fleet::new();
        for model in [Some("m1"), Some("m2"), None] {
            fleet.add(spec("a", model, Role::Regular), true);
        }
        assert_eq!(ids(&fleet, Role::Regular, Some("x")), [2]);
        assert_eq!(ids(&fleet, Role::Regular, Some("m1")), [0, 2]);
        assert_eq!(ids(&fleet, Role::Regular, None), [0, 1, 2]);
        fleet.set_model(WorkerId(1), Some("m1".into()));
        assert_eq!(ids(&fleet, Role::Regular, Some("x")), [0, 1, 2], "one model, and no doubt who is meant");
    }

    #[test]
    fn a_model_that_is_found_out_later_changes_the_scopes() {
        let mut fleet = Fleet::new();
        fleet.add(spec("a", None, Role::Regular), true);
        fleet.add(spec("b", None, Role::Regular), true);
        assert!(
            fleet.set_model(WorkerId(0), Some("m1".into()))
                && fleet.set_model(WorkerId(1), Some("m2".into()))
        );
        assert!(!fleet.set_model(WorkerId(1), Some("m2".into())), "no news");
        assert!(!fleet.set_model(WorkerId(7), Some("m7".into())), "nobody");
        assert_eq!(ids(&fleet, Role::Regular, Some("m1")), [0]);
        assert_eq!(fleet.scope(Role::Regular, Some("m7")), Err(UnknownModel));
        let before = fleet.scope(Role::Regular, Some("m2"));
        assert!(fleet.set_model(WorkerId(1), Some("m1".into())));
        assert_eq!(ids(&fleet, Role::Regular, Some("m1")), [0, 1]);
        assert_eq!(fleet.scope(Role::Regular, Some("m2")), before, "a scope stays");
        assert!(fleet.set_model(WorkerId(1), None));
        assert_eq!(ids(&fleet, Role::Regular, Some("m2")), [1]);
    }

    #[test]
    fn ids_are_never_given_twice() {
        let mut fleet = Fleet::new();
        fleet.add(spec("a", None, Role::Regular), true);
        fleet.remove(WorkerId(0));
        assert_eq!(fleet.add(spec("a", None, Role::Regular), true).id, WorkerId(1));
    }
}
