//! One decision and its booking, in a small and in a large fleet: for one worker, and for the two of a pair.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use router_core::ids::WorkerId;
use router_core::index::Matches;
use router_core::prompt::PromptView;
use router_core::{
    BreakerConfig, Outcome, Plan, PlanMatches, PlanRequest, PolicyConfig, Role, Router, RouterConfig,
    RoutingKeys, WarmUp, WorkerSpec,
};

const POLICIES: [&str; 4] = ["cache_aware", "power_of_two", "prefix_hash", "round_robin"];
const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";
const FLEETS: [u32; 2] = [8, 500];

fn request(router: &Router) -> PlanRequest<'static> {
    PlanRequest {
        scopes: router.scopes(Some(MODEL)).expect("it is known"),
        prompt: PromptView::Text(&[b'x'; 1000]),
        prompt_tokens: 250,
        output_budget: None,
        keys: RoutingKeys::default(),
        exclude: &[],
        prefers_pair: None,
    }
}

/// A router with two requests in flight for each worker; of these the last `cold` have just joined.
fn router(policy: &str, workers: u32, cold: u32) -> Router {
    let warm_up = (cold > 0).then_some(WarmUp { duration_ns: u64::MAX, share: 1.0 });
    let policy = PolicyConfig::new(policy).expect("a policy of the table");
    let breaker = Some(BreakerConfig::default());
    let mut router =
        Router::new(RouterConfig { warm_up, breaker, ..RouterConfig::new(policy, 1) }).expect("it can work");
    for n in 0..workers {
        // What is there when others join has worked.
        if n == workers - cold {
            book(&mut router, 2 * n);
        }
        let url = format!("http://10.0.{}.{}:30000", n / 256, n % 256);
        let model = Some(MODEL.to_owned());
        router.add_worker(0, WorkerSpec { url, model, role: Role::Regular });
    }
    book(&mut router, 2 * if cold == 0 { workers } else { cold });
    router
}

fn book(router: &mut Router, requests: u32) {
    for _ in 0..requests {
        router.plan(0, &request(router), &PlanMatches::default()).expect("a worker is there");
    }
}

fn decide(router: &mut Router, now_ns: u64, matches: &PlanMatches) {
    let request = request(router);
    let assignment = router.plan(now_ns, &request, matches).expect("a worker is there").decode;
    router.first_token(now_ns, assignment.lease);
    black_box(router.finish(now_ns, assignment.lease, Outcome::Completed));
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    let mut bench = |name: &str, mut router: Router, workers: u32| {
        let owners = [1, 3, workers - 1].map(|worker| (WorkerId(worker), 900));
        let matches = PlanMatches { regular: Matches::new(owners, 1000), ..PlanMatches::default() };
        let mut now_ns = 1;
        group.bench_function(BenchmarkId::new(name, workers), |bench| {
            bench.iter(|| {
                now_ns += 1;
                decide(&mut router, now_ns, &matches);
            });
        });
    };
    for workers in FLEETS {
        for policy in POLICIES {
            bench(policy, router(policy, workers, 0), workers);
        }
        bench("cache_aware, one warming", router("cache_aware", workers, 1), workers);
        bench("cache_aware, half warming", router("cache_aware", workers, workers / 2), workers);
    }
    group.finish();
}

/// A plan of both legs: half of the workers are prefill workers, half decode workers.
fn pairs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    for (workers, policy) in FLEETS.into_iter().flat_map(|workers| POLICIES.map(|policy| (workers, policy))) {
        let mut router = pair_router(policy, workers);
        let owners = [1, 3, workers / 2 - 1].map(|worker| (WorkerId(worker), 900));
        let matches = PlanMatches { prefill: Matches::new(owners, 1000), ..PlanMatches::default() };
        let mut now_ns = 1;
        group.bench_function(BenchmarkId::new(policy, workers), |bench| {
            bench.iter(|| {
                now_ns += 1;
                let plan = plan(&mut router, now_ns, &matches);
                for leg in plan.prefill.into_iter().chain([plan.decode]) {
                    router.first_token(now_ns, leg.lease);
                    black_box(router.finish(now_ns, leg.lease, Outcome::Completed));
                }
            });
        });
    }
    group.finish();
}

fn pair_router(policy: &str, workers: u32) -> Router {
    let policy = PolicyConfig::new(policy).expect("a policy of the table");
    let (breaker, decode_dispatch_limit) = (Some(BreakerConfig::default()), Some(1000));
    let config = RouterConfig { breaker, decode_dispatch_limit, ..RouterConfig::new(policy, 1) };
    let mut router = Router::new(config).expect("it can work");
    for n in 0..workers {
        let url = format!("http://10.0.{}.{}:30000", n / 256, n % 256);
        let role = if n < workers / 2 { Role::Prefill } else { Role::Decode };
        router.add_worker(0, WorkerSpec { url, model: Some(MODEL.to_owned()), role });
    }
    (0..workers).for_each(|_| _ = plan(&mut router, 0, &PlanMatches::default()));
    router
}

fn plan(router: &mut Router, now_ns: u64, matches: &PlanMatches) -> Plan {
    let request = PlanRequest {
        scopes: router.scopes(Some(MODEL)).expect("it is known"),
        prompt: PromptView::Text(&[b'x'; 1000]),
        prompt_tokens: 250,
        output_budget: None,
        keys: RoutingKeys::default(),
        exclude: &[],
        prefers_pair: None,
    };
    router.plan(now_ns, &request, matches).expect("workers are there")
}

criterion_group!(benches, decisions, pairs);
criterion_main!(benches);
