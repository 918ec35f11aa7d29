//! The decision core with somebody who writes down what it is told. Whatever only looks at it goes through; what changes it is
//! here, so nothing that changes it can be forgotten.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;

use router_core::ids::WorkerId;
use router_core::{
    Assignment, Finished, LeaseId, LoadReport, NoPlan, Outcome, PairPreference, Plan, PlanMatches,
    PlanRequest, Policies, Role, Router, Signals, WorkerSpec,
};

use super::line::{Line, Report};
use super::{Asked, Tape, start};

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Recorded {
    router: Router,
    tape: Option<Arc<Tape>>,
}

impl Deref for Recorded {
    type Target = Router;

    fn deref(&self) -> &Router {
        &self.router
    }
}

impl Recorded {
    pub(crate) fn new(router: Router, tape: Option<Arc<Tape>>) -> Self {
        Self { router, tape }
    }

    fn put(&self, line: impl FnOnce() -> Line) {
        if let Some(tape) = &self.tape {
            tape.put(line());
        }
    }

    pub(crate) fn set_policies(&mut self, now_ns: u64, policies: Policies) -> Signals {
        self.put(|| Line::Policies { t: now_ns, policies: Box::new(start::named(&policies)) });
        self.router.set_policies(now_ns, policies)
    }

    pub(crate) fn set_pairing(&mut self, decode_dispatch_limit: Option<NonZeroU32>, pair: PairPreference) {
        self.put(|| Line::Pairing {
            pairing: start::pairing(decode_dispatch_limit.map(NonZeroU32::get), pair),
        });
        self.router.set_pairing(decode_dispatch_limit, pair);
    }

    /// As [`Router::plan`]; `asked` is what is recorded of the request.
    pub(crate) fn plan(
        &mut self,
        now_ns: u64,
        request: &PlanRequest<'_>,
        matches: &PlanMatches,
        asked: Option<Asked>,
    ) -> Result<Plan, NoPlan> {
        // Another plan may change who is on the rings, so this comes first.
        let asked = asked.map(|asked| asked.at(&self.router.places(request)));
        let planned = self.router.plan(now_ns, request, matches);
        if let (Some(tape), Some(asked)) = (&self.tape, asked) {
            tape.put(asked.planned(now_ns, &planned));
        }
        planned
    }

    pub(crate) fn register_worker(&mut self, now_ns: u64, spec: WorkerSpec) -> WorkerId {
        let told = self.tape.is_some().then(|| spec.clone());
        let id = self.router.register_worker(now_ns, spec);
        if let Some(WorkerSpec { url, model, role }) = told {
            let (url, model, role) = (url.into(), model.map(Into::into), role.into());
            self.put(|| Line::Add { t: now_ns, worker: id.0, url, model, role });
        }
        id
    }

    pub(crate) fn remove_worker(&mut self, now_ns: u64, id: WorkerId) -> bool {
        self.put(|| Line::Remove { t: now_ns, worker: id.0 });
        self.router.remove_worker(now_ns, id)
    }

    pub(crate) fn set_draining(&mut self, now_ns: u64, id: WorkerId) -> bool {
        self.put(|| Line::Drain { t: now_ns, worker: id.0 });
        self.router.set_draining(now_ns, id)
    }

    pub(crate) fn set_healthy(&mut self, now_ns: u64, id: WorkerId, healthy: bool) -> bool {
        let changed = self.router.set_healthy(now_ns, id, healthy);
        if changed {
            // Probes say the same again and again.
            self.put(|| Line::Health { t: now_ns, worker: id.0, healthy });
        }
        changed
    }

    pub(crate) fn cache_lost(&mut self, now_ns: u64, id: WorkerId) {
        self.put(|| Line::CacheLost { t: now_ns, worker: id.0 });
        self.router.cache_lost(now_ns, id);
    }

    pub(crate) fn told_cached(&mut self, now_ns: u64, assignment: &Assignment, cached_tokens: u64) -> bool {
        self.put(|| Line::Cached { t: now_ns, lease: assignment.lease.0, tokens: cached_tokens });
        self.router.told_cached(now_ns, assignment, cached_tokens)
    }

    pub(crate) fn set_model(&mut self, id: WorkerId, model: Option<String>) -> bool {
        let told = self.tape.is_some().then(|| model.clone().map(Into::into));
        let changed = self.router.set_model(id, model);
        if let Some(model) = told.filter(|_| changed) {
            self.put(|| Line::Model { worker: id.0, model });
        }
        changed
    }

    pub(crate) fn set_role(&mut self, now_ns: u64, id: WorkerId, role: Role) -> bool {
        let changed = self.router.set_role(now_ns, id, role);
        if changed {
            self.put(|| Line::Role { t: now_ns, worker: id.0, role: role.into() });
        }
        changed
    }

    pub(crate) fn first_token(&mut self, now_ns: u64, lease: LeaseId) -> bool {
        self.put(|| Line::First { t: now_ns, lease: lease.0 });
        self.router.first_token(now_ns, lease)
    }

    pub(crate) fn progress(&mut self, now_ns: u64, lease: LeaseId, output_tokens: u64) -> bool {
        self.put(|| Line::Progress { t: now_ns, lease: lease.0, tokens: output_tokens });
        self.router.progress(now_ns, lease, output_tokens)
    }

    pub(crate) fn finish(&mut self, now_ns: u64, lease: LeaseId, outcome: Outcome) -> Finished {
        self.put(|| Line::Finish { t: now_ns, lease: lease.0, outcome: outcome.into() });
        self.router.finish(now_ns, lease, outcome)
    }

    pub(crate) fn report_loads(
        &mut self,
        asked_ns: u64,
        now_ns: u64,
        worker: WorkerId,
        report: Option<LoadReport>,
    ) {
        let told = |LoadReport { total_tokens, running, waiting, token_usage }| Report {
            total_tokens,
            running,
            waiting,
            token_usage,
        };
        self.put(|| Line::Load { t: now_ns, asked: asked_ns, worker: worker.0, report: report.map(told) });
        self.router.report_loads(asked_ns, now_ns, worker, report);
    }

    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.put(|| Line::Tick { t: now_ns });
        self.router.tick(now_ns);
    }
}
