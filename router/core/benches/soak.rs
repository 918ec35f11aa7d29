//! A million new prompts through index and router: memory stays within bounds and decisions do not become slower.
//!
//! 4 KB each, 8 workers of 10 million characters. Prints resident memory and the time of a decision (lookup, assign,
//! credit, finish) for every tenth of the run. Fails if memory exceeds 100 MB and twice the bound, or if the 99th
//! percentile of the last tenth is above 1.5 times that of the first.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "this measures what a clock says")]

mod prompts;

use std::process::ExitCode;
use std::time::Instant;

use prompts::{Load, Prompts};
use router_core::ids::ScopeId;
use router_core::index::{IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;
use router_core::{
    Outcome, PlanMatches, PlanRequest, PolicyConfig, Role, Router, RouterConfig, RoutingKeys, Scopes,
    WorkerSpec,
};

const PROMPTS: usize = 1_000_000;
const TENTH: usize = PROMPTS / 10;
const LOAD: Load = Load { heads: 1, head: 60, tail: 4 << 10, workers: 8, max_tree_size: 10_000_000 };
const SCOPE: ScopeId = ScopeId(0);
/// As many as a prompt of mean length has, at four characters each.
const PROMPT_TOKENS: u64 = 1024;
const MOST_RESIDENT_BYTES: u64 = 100_000_000 + 2 * LOAD.workers * LOAD.max_tree_size;
const MOST_SLOWDOWN: f64 = 1.5;
const DONE: Outcome = Outcome::Completed;

/// What one tenth of the run showed.
struct Tenth {
    p50_ns: u64,
    p99_ns: u64,
    worst_ns: u64,
    resident_bytes: u64,
}

fn router() -> Option<Router> {
    let mut policy = PolicyConfig::new("cache_aware").ok()?;
    policy.set("max_tree_size", i64::try_from(LOAD.max_tree_size).ok()?).ok()?;
    let mut router = Router::new(RouterConfig::new(policy, 1)).ok()?;
    for n in 0..LOAD.workers {
        let url = format!("http://10.0.0.{n}:30000");
        router.add_worker(0, WorkerSpec { url, model: None, role: Role::Regular });
    }
    Some(router)
}

/// One request from its prompt to its end; how long that took.
fn decide(router: &mut Router, index: &mut PrefixIndex, prompt: &[u8]) -> u64 {
    let prompt = PromptView::Text(prompt);
    let request = PlanRequest {
        scopes: Scopes { regular: Some(SCOPE), ..Scopes::default() },
        prompt,
        prompt_tokens: PROMPT_TOKENS,
        output_budget: None,
        keys: RoutingKeys::default(),
        exclude: &[],
        prefers_pair: None,
    };
    let begin = Instant::now();
    let matches = PlanMatches { regular: index.lookup(SCOPE, prompt), ..PlanMatches::default() };
    if let Ok(plan) = router.plan(0, &request, &matches) {
        index.credit(SCOPE, prompt, plan.decode.worker);
        router.finish(0, plan.decode.lease, DONE);
    }
    begin.elapsed().as_nanos() as u64
}

fn tenth(router: &mut Router, index: &mut PrefixIndex, prompts: &mut Prompts, times: &mut Vec<u64>) -> Tenth {
    times.clear();
    times.extend((0..TENTH).map(|_| decide(router, index, prompts.next().0)));
    times.sort_unstable();
    Tenth {
        p50_ns: times[TENTH / 2],
        p99_ns: times[TENTH / 100 * 99],
        worst_ns: times[TENTH - 1],
        resident_bytes: resident_bytes(),
    }
}

/// Resident memory of this process; 0 where `/proc` does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).map_or(0, |kib: u64| kib << 10)
}

fn main() -> ExitCode {
    let limits = IndexLimits { max_tree_size: LOAD.max_tree_size, max_tree_bytes: 1 << 30 };
    let mut index = PrefixIndex::new(limits);
    let Some(mut router) = router() else {
        eprintln!("the policy table has no cache_aware with max_tree_size");
        return ExitCode::FAILURE;
    };
    let (mut prompts, mut times) = (Prompts::new(LOAD), Vec::with_capacity(TENTH));
    println!("prompts    p50 us   p99 us   max us   resident MB   index MB");
    let tenths: Vec<Tenth> = (1..=10)
        .map(|n| {
            let row = tenth(&mut router, &mut index, &mut prompts, &mut times);
            println!(
                "{:7} {:9.2} {:8.2} {:8.1} {:13.1} {:10.1}",
                n * TENTH,
                row.p50_ns as f64 / 1e3,
                row.p99_ns as f64 / 1e3,
                row.worst_ns as f64 / 1e3,
                row.resident_bytes as f64 / 1e6,
                index.stats().bytes as f64 / 1e6,
            );
            row
        })
        .collect();
    let slowdown = tenths[9].p99_ns as f64 / tenths[0].p99_ns as f64;
    let resident_bytes = tenths.iter().map(|row| row.resident_bytes).max().unwrap_or(0);
    println!(
        "p99 of the last tenth {slowdown:.2} x the first (at most {MOST_SLOWDOWN}), \
         {:.1} MB resident (at most {:.1})",
        resident_bytes as f64 / 1e6,
        MOST_RESIDENT_BYTES as f64 / 1e6,
    );
    if slowdown <= MOST_SLOWDOWN && resident_bytes <= MOST_RESIDENT_BYTES {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
