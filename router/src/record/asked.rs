//! A request on its way to a decision, as it is recorded. Made outside of all locks: this is where hashing is done.

use router_core::{NoPlan, Places, Plan, PlanRequest, Scopes};

use super::line::{self, Booked, Hash, Line, Look, Refused, RoleName, Roles};
use super::{Tape, prompt};

/// See the module's description.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The number of its look.
    pub(crate) n: u64,
    plan: Box<line::Plan>,
}

impl Asked {
    /// The request, and the line to be put under the lock of the index.
    pub(crate) fn new(tape: &Tape, request: &PlanRequest<'_>) -> (Self, Box<Look>) {
        let n = tape.next_look();
        // Policies trim keys, and take a blank one for none.
        let hash = |key: &str| match key.trim() {
            "" => Hash(Box::default()),
            key => Hash(format!("{:016x}", tape.salt.hash(key.as_bytes())).into()),
        };
        let keys = &request.keys;
        let look = prompt::look(tape.salt, n, scopes(&request.scopes), request.prompt);
        let plan = line::Plan {
            n,
            tokens: request.prompt_tokens,
            budget: request.output_budget,
            key: keys.routing_key.map(hash),
            implicit: keys.implicit.map(hash),
            target: keys.target_worker.map(Box::from),
            tried: request.exclude.iter().map(|worker| worker.0).collect(),
            pair: request.prefers_pair,
            ..line::Plan::default()
        };
        (Self { n, plan: Box::new(plan) }, Box::new(look))
    }

    /// It stands there on the rings of the policies.
    pub(super) fn at(mut self, places: &Places) -> Self {
        self.plan.places = Roles::of(|role| *places.get(role));
        self
    }

    /// What came of it.
    pub(super) fn planned(mut self, now_ns: u64, planned: &Result<Plan, NoPlan>) -> Line {
        self.plan.t = now_ns;
        match planned {
            Ok(plan) => self.plan.legs = legs(plan),
            Err(no) => {
                self.plan.refused =
                    Some(Refused { leg: no.leg.label().into(), why: no.why.to_string().into() });
            }
        }
        Line::Plan(self.plan)
    }
}

fn scopes(scopes: &Scopes) -> Roles<Option<u32>> {
    Roles::of(|role| scopes.get(role).map(|scope| scope.0))
}

fn legs(plan: &Plan) -> Vec<Booked> {
    let answering = if plan.prefill.is_some() { RoleName::Decode } else { RoleName::Regular };
    let prefill = plan.prefill.iter().map(|leg| (RoleName::Prefill, leg));
    let legs = prefill.chain([(answering, &plan.decode)]);
    legs.map(|(role, leg)| Booked::of(role, leg)).collect()
}
