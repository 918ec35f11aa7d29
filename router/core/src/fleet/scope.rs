//! Scopes: which workers a request may be routed to, as lists that every change is entered in.

use super::{Role, Worker};
use crate::WorkerId;

/// The workers of a role, as far as they serve certain models.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) role: Role,
    pub(super) models: Models,
    /// Who that is now, ordered by id.
    pub(super) workers: Workers,
}

/// The workers of a scope that are not about to leave. Kept up with every change, as every decision reads them.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    /// All, healthy or not.
    pub(crate) members: Vec<WorkerId>,
    /// Those that may get requests, as far as their breakers let them through.
    pub(crate) able: Vec<WorkerId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Models {
    /// Whatever they serve.
    Every,
    /// This one, or they have not said which.
    One(String),
    /// They have not said which.
    Unstated,
}

impl Scope {
    pub(super) fn new(role: Role, models: Models) -> Self {
        Self { role, models, workers: Workers::default() }
    }

    /// Enters a worker in the lists, or strikes it off, by what is true of it now.
    pub(super) fn enlist(&mut self, worker: &Worker) {
        let belongs = self.covers(worker) && !worker.draining;
        set(&mut self.workers.members, worker.id, belongs);
        set(&mut self.workers.able, worker.id, belongs && worker.healthy);
    }

    /// Strikes a worker off.
    pub(super) fn strike(&mut self, id: WorkerId) {
        set(&mut self.workers.members, id, false);
        set(&mut self.workers.able, id, false);
    }

    pub(super) fn covers(&self, worker: &Worker) -> bool {
        let serves = match (&self.models, &worker.model) {
            (Models::Every, _) | (_, None) => true,
            (Models::One(wanted), Some(served)) => wanted == served,
            (Models::Unstated, Some(_)) => false,
        };
        self.role == worker.role && serves
    }
}

/// Makes an ordered list contain an id, or not.
fn set(list: &mut Vec<WorkerId>, id: WorkerId, contained: bool) {
    match (list.binary_search(&id), contained) {
        (Err(at), true) => list.insert(at, id),
        (Ok(at), false) => {
            list.remove(at);
        }
        (Ok(_), true) | (Err(_), false) => {}
    }
}
