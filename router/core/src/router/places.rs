//! Placing a request of which not the text is known but where it falls on the rings of the policies.
//!
//! `consistent_hashing` and `prefix_hash` choose by the hash of a key or of a prompt. Whoever records decisions must not keep
//! such a hash: it tells who tries texts out which one it was. The place on the ring that follows the hash has the same
//! consequences and tells little more than they do: it is one of some 160 for each worker.

use super::Router;
use crate::fleet::PerRole;
use crate::plan::{NoPlan, Plan, PlanMatches, PlanProposal, PlanRequest};

/// For each role, where a request stands on the ring of the policy; `None` where that has none, or needs none for it.
pub type Places = PerRole<Option<u64>>;

impl Router {
    /// Where a request stands on the rings of the policies.
    #[must_use]
    pub fn places(&self, request: &PlanRequest<'_>) -> Places {
        let legs = self.state.legs(request);
        Places::of(|role| self.seats.get(role).policy.place(legs.get(role).as_ref()?))
    }

    /// As [`Router::plan`], for a request that stands at `places`, whatever its keys and its prompt hash to. Keys and prompt
    /// still say whether there is something to be hashed.
    ///
    /// # Errors
    /// As there.
    pub fn plan_at(
        &mut self,
        now_ns: u64,
        request: &PlanRequest<'_>,
        matches: &PlanMatches,
        places: Places,
    ) -> Result<Plan, NoPlan> {
        self.state.places = places;
        let planned = self.plan(now_ns, request, matches);
        self.state.places = Places::default();
        planned
    }

    /// What [`Router::plan_at`] would choose now.
    ///
    /// # Errors
    /// As there.
    pub fn propose_plan_at(
        &mut self,
        now_ns: u64,
        request: &PlanRequest<'_>,
        matches: &PlanMatches,
        places: Places,
    ) -> Result<PlanProposal, NoPlan> {
        self.state.places = places;
        let proposed = self.propose_plan(now_ns, request, matches);
        self.state.places = Places::default();
        proposed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{REQUEST, config, router};
    use crate::{PromptView, RoutingKeys, ScopeId, WorkerId};

    fn request<'a>(key: &'a str, prompt: &'a str) -> PlanRequest<'a> {
        PlanRequest {
            scopes: PerRole { regular: Some(ScopeId(0)), prefill: None, decode: None },
            prompt: PromptView::Text(prompt.as_bytes()),
            prompt_tokens: 9,
            output_budget: None,
            keys: RoutingKeys { routing_key: Some(key), ..RoutingKeys::default() },
            exclude: REQUEST.exclude,
            prefers_pair: None,
        }
    }

    #[test]
    fn a_place_stands_for_what_was_hashed_also_when_workers_come_and_go() {
        for policy in ["consistent_hashing", "prefix_hash"] {
            let [mut told, mut shown] = [(); 2].map(|()| router(config(policy, &[]), 8, 1));
            for n in 0..400 {
                let (key, prompt) = (format!("key {n}"), format!("prompt {n}"));
                for router in [&mut told, &mut shown] {
                    router.set_healthy(0, WorkerId(n % 8), n % 3 == 0);
                    if n % 100 == 99 {
                        router.remove_worker(0, WorkerId(n / 100));
                    }
                }
                let request = request(&key, &prompt);
                let places = shown.places(&request);
                assert!(places.regular.is_some(), "{policy}");
                let other = self::request("another key", "another prompt");
                let told = told.plan_at(0, &other, &PlanMatches::default(), places);
                let shown_plan = shown.plan(0, &request, &PlanMatches::default());
                let chosen = |plan: Result<Plan, NoPlan>| {
                    plan.map(|plan| (plan.decode.worker, plan.decode.reason, plan.decode.lease))
                };
                let (told, shown_plan) = (chosen(told), chosen(shown_plan));
                assert_eq!(told, shown_plan, "{policy} {n}");
            }
        }
    }

    #[test]
    fn what_is_not_hashed_has_no_place() {
        for (policy, key, prompt, has_place) in [
            ("consistent_hashing", "k", "", true),
            ("consistent_hashing", " ", "text", false),
            ("prefix_hash", "k", "", false),
            ("prefix_hash", "", "text", true),
            ("manual", "k", "text", false),
        ] {
            let router = router(config(policy, &[]), 3, 1);
            let found = router.places(&request(key, prompt));
            assert_eq!(found.regular.is_some(), has_place, "{policy} {key:?} {prompt:?}");
        }
        let mut router = router(config("consistent_hashing", &[]), 3, 1);
        let keys = RoutingKeys { target_worker: Some("1"), ..request("k", "").keys };
        let asked = PlanRequest { keys, ..request("k", "") };
        assert_eq!(router.places(&asked).regular, None, "it is the target that decides");
        let other = router.places(&request("another", ""));
        let chosen = |planned: Result<Plan, NoPlan>| planned.expect("a worker").decode.worker;
        let none = PlanMatches::default();
        let [own, another] = ["k", "another"].map(|key| chosen(router.plan(0, &request(key, ""), &none)));
        assert_ne!(own, another);
        let proposed = router.propose_plan_at(0, &request("k", ""), &none, other).expect("a worker");
        assert_eq!(proposed.decode.worker, another);
        assert_eq!(chosen(router.plan_at(0, &request("k", ""), &none, other)), another);
        assert_eq!(chosen(router.plan(0, &request("k", ""), &none)), own, "a place holds for one request");
    }
}
