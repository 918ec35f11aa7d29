//! A fifth worker joins four that share prompt prefixes: what it carries, and what that costs the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{WARM_UP, warming_router};
use crate::index::{IndexLimits, PrefixIndex};
use crate::testing::{DONE, REQUEST, SECOND, worker_spec};
use crate::{Draws, LeaseId, PromptView, RouteRequest, Router, ScopeId, WarmUp};

const GROUPS: usize = 60;
const HEAD_CHARS: usize = 8_000;
const PROMPT_CHARS: usize = 8_800;
const PROMPT_TOKENS: u64 = PROMPT_CHARS as u64 / 4;
const INTERVAL_NS: u64 = SECOND / 40;
const JOINS_NS: u64 = 60 * SECOND;
const NEWCOMER: u32 = 4;

/// Tokens of a stretch of time.
#[derive(Debug, Default)]
struct Tokens {
    prompt: u64,
    newcomers: u64,
    /// Of the others: all, and what they found in their caches.
    others: u64,
    others_cached: u64,
}

impl Tokens {
    fn newcomers_share(&self) -> f64 {
        self.newcomers as f64 / self.prompt as f64
    }

    fn hit_rate_of_others(&self) -> f64 {
        self.others_cached as f64 / self.others as f64
    }
}

/// Forty requests a second, each for one of the groups, whose prompts share their heads. A request takes as long as
/// what it must compute, and then two seconds of output.
struct World {
    router: Router,
    index: PrefixIndex,
    draws: Draws,
    now_ns: u64,
    running: BinaryHeap<Reverse<(u64, LeaseId)>>,
}

impl World {
    fn new(warm_up: Option<WarmUp>) -> Self {
        let index = PrefixIndex::new(IndexLimits { max_tree_size: 1 << 26, max_tree_bytes: 1 << 30 });
        let (router, draws) = (warming_router(warm_up, 4), Draws::new(3, 0));
        Self { router, index, draws, now_ns: 0, running: BinaryHeap::new() }
    }

    fn prompt(&mut self) -> Vec<u8> {
        let group = self.draws.below(GROUPS) as u8;
        let tail: Vec<u8> = (HEAD_CHARS..PROMPT_CHARS).map(|_| self.draws.below(256) as u8).collect();
        [vec![group; HEAD_CHARS], tail].concat()
    }

    fn request(&mut self, tokens: &mut Tokens) {
        let prompt = self.prompt();
        let view = PromptView::Text(&prompt);
        let request = RouteRequest { prompt: view, prompt_tokens: PROMPT_TOKENS, ..REQUEST };
        let matches = self.index.lookup(ScopeId(0), view);
        let assignment = self.router.assign(self.now_ns, &request, &matches).expect("a worker is there");
        self.index.credit(ScopeId(0), view, assignment.worker);
        let cached = assignment.predicted_cached_tokens.expect("it follows prefixes");
        let computed_ns = (PROMPT_TOKENS - cached) * SECOND / 5_000;
        self.running.push(Reverse((self.now_ns + computed_ns + 2 * SECOND, assignment.lease)));
        tokens.prompt += PROMPT_TOKENS;
        if assignment.worker.0 == NEWCOMER {
            tokens.newcomers += PROMPT_TOKENS;
        } else {
            tokens.others += PROMPT_TOKENS;
            tokens.others_cached += cached;
        }
    }

    fn run_until(&mut self, until_ns: u64) -> Tokens {
        let mut tokens = Tokens::default();
        while self.now_ns < until_ns {
            self.now_ns += INTERVAL_NS;
            while let Some(&Reverse((end_ns, lease))) = self.running.peek()
                && end_ns <= self.now_ns
            {
                self.running.pop();
                self.router.finish(end_ns, lease, DONE);
            }
            self.request(&mut tokens);
        }
        tokens
    }
}

#[test]
fn a_newcomer_carries_its_share_within_ten_seconds_and_keeps_it() {
    let mut world = World::new(Some(WARM_UP));
    world.run_until(JOINS_NS / 2);
    let before = world.run_until(JOINS_NS);
    world.router.add_worker(JOINS_NS, worker_spec(NEWCOMER));
    let first = world.run_until(JOINS_NS + 10 * SECOND);
    world.run_until(JOINS_NS + WARM_UP.duration_ns);
    let after = world.run_until(JOINS_NS + 3 * WARM_UP.duration_ns);
    println!("before {before:?}\nfirst {first:?}\nafter {after:?}");
    assert!(first.newcomers_share() >= 0.15, "{}", first.newcomers_share());
    assert!(after.newcomers_share() >= 0.15, "{}", after.newcomers_share());
    assert!(world.router.workers(0).all(|view| (view.diverted > 0) == (view.worker.id.0 == NEWCOMER)));
    for then in [first, after] {
        let (was, is) = (before.hit_rate_of_others(), then.hit_rate_of_others());
        assert!(is > was - 0.03, "hit rate of the others: {was} before, {is} then");
    }
}

#[test]
fn without_a_warm_up_a_newcomer_starves() {
    let mut world = World::new(None);
    world.run_until(JOINS_NS);
    world.router.add_worker(JOINS_NS, worker_spec(NEWCOMER));
    let then = world.run_until(JOINS_NS + 60 * SECOND);
    assert!(then.newcomers_share() < 0.02, "{}", then.newcomers_share());
}
