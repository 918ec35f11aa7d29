use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::tokenizer::Token;

use super::*;
use crate::cache::CacheConfig;
use crate::preset::preset;
use crate::request::{RequestId, Submit};
use crate::scheduler::admitted::Admitted;

fn empty_cache() -> KvCache {
    KvCache::new(CacheConfig {
        page_size: 1,
        capacity_tokens: 100_000,
        eviction: Eviction::Lru,
        disabled: false,
    })
}

fn fill(cache: &mut KvCache, prompt: &[Token]) {
    let mut hold = cache.acquire(prompt, 0);
    let missing = prompt.len() - hold.kv_len();
    cache.extend(&mut hold, missing).unwrap();
    cache.finish(hold, prompt, prompt.len(), 0, 0);
}

fn cache_with(prompt: &[Token]) -> KvCache {
    let mut cache = empty_cache();
    fill(&mut cache, prompt);
    cache
}

fn request(id: u64, prompt: impl Iterator<Item = Token>) -> Request {
    let prompt: Arc<[Token]> = prompt.collect();
    let submit = Submit::new(RequestId(id), prompt, 1);
    Request::new(submit, 1, 0)
}

fn order_of(schedule: Schedule) -> Order {
    Order::new(&EngineConfig { schedule, ..EngineConfig::of(preset("a100-80g-llama3-8b").unwrap()) })
}

struct World {
    order: Order,
    cache: KvCache,
    running: RunningBatch,
    queue: VecDeque<Request>,
    processed: u64,
    pass: u64,
}

impl World {
    fn new(order: Order, cache: KvCache) -> Self {
        let running = RunningBatch::new(1);
        Self { order, cache, running, queue: VecDeque::new(), processed: 0, pass: 0 }
    }

    fn push(&mut self, mut request: Request) {
        request.entered = self.queue.len() as u64;
        request.processed_before = self.processed;
        self.queue.push_back(request);
    }

    fn ids(&mut self) -> Vec<u64> {
        let facts = Facts { pass: self.pass, running: &self.running };
        self.order.apply(&mut self.queue, &mut self.cache, self.processed, &facts);
        self.queue.iter().map(|request| request.id.0).collect()
    }
}

fn order(in_batch: bool, schedule: Schedule, requests: Vec<Request>) -> Vec<u64> {
    let order = Order { in_batch, ..order_of(schedule) };
    let mut world = World::new(order, cache_with(&(0..500).collect::<Vec<_>>()));
    requests.into_iter().for_each(|request| world.push(request));
    world.ids()
}

fn mixed() -> Vec<Request> {
    vec![
        request(0, 1000..1100),
        request(1, (0..50).chain(2000..2100)),
        request(2, (1000..1060).chain(3000..3100)),
        request(3, 0..400),
        request(4, 1000..1031),
        request(5, 1000..1032),
    ]
}

#[test]
fn lpm_sorts_by_match_and_fcfs_does_not() {
    assert_eq!(order(false, Schedule::Lpm, mixed()), [3, 1, 0, 2, 4, 5]);
    assert_eq!(order(true, Schedule::Fcfs, mixed()), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn requests_wait_for_the_first_of_their_prefix() {
    // 2 and 5 share 60 and 32 tokens with 0, 5 with its last one counted; 4 shares only 31.
    assert_eq!(order(true, Schedule::Lpm, mixed()), [3, 1, 0, 4, 2, 5]);
}

#[test]
fn a_long_queue_is_served_in_order_of_arrival() {
    let many = |n: u64| {
        let mut requests: Vec<_> = (0..n - 1).map(|i| request(i, 7000..7010)).collect();
        requests.push(request(n - 1, 0..400));
        requests
    };
    assert_eq!(order(true, Schedule::Lpm, many(128))[0], 127);
    assert_eq!(order(true, Schedule::Lpm, many(129))[0], 0);
    assert_eq!(order(true, Schedule::ShortestPrefillFirst, many(129))[0], 128, "this one never gives up");
}

#[test]
fn the_shortest_prefill_is_what_is_left_of_it() {
    // Work: 100, 100, 160, 1 (the last token), 31, 32; 2 and 5 wait for 0.
    assert_eq!(order(true, Schedule::ShortestPrefillFirst, mixed()), [3, 4, 0, 1, 5, 2]);
    assert_eq!(order(false, Schedule::ShortestPrefillFirst, mixed()), [3, 4, 5, 0, 1, 2]);
}

#[test]
fn the_response_ratio_grows_with_the_work_done_meanwhile() {
    let order = order_of(Schedule::Hrrn);
    let mut world = World::new(order, cache_with(&(0..500).collect::<Vec<_>>()));
    world.push(request(9, 1000..1100));
    world.processed = 500;
    world.push(request(3, 5000..5040));
    world.push(request(4, (0..300).chain(6000..6010)));
    assert_eq!(world.ids(), [9, 3, 4], "5, 0 and 0; equals by name");
    world.processed = 700;
    // 7, 5 and 20.
    assert_eq!(world.ids(), [4, 9, 3]);
}

#[test]
fn the_longest_reply_goes_first_and_equals_stay() {
    let lengths = [(0, 5), (1, 50), (2, 5), (3, 80)];
    let long = |(id, max_new)| Request { max_new, ..request(id, 10 * id as u32..10 * id as u32 + 5) };
    assert_eq!(order(true, Schedule::Lof, lengths.map(long).into()), [3, 1, 0, 2]);
}

#[test]
fn the_most_frequent_routing_key_of_those_that_run_goes_first() {
    let mut world = World::new(order_of(Schedule::RoutingKey), empty_cache());
    let keyed = |id: u64, routing_key| Request { routing_key, ..request(id, 0..5) };
    let waiting = [(0, None), (1, Some(7)), (2, Some(9)), (3, Some(8)), (4, Some(9)), (5, Some(3))];
    waiting.into_iter().for_each(|(id, key)| world.push(keyed(id, key)));
    assert_eq!(world.ids(), [0, 1, 2, 3, 4, 5], "with none running the order stays");
    let running = [(10, Some(9)), (11, Some(8)), (12, Some(9)), (13, None)];
    let joining = running.map(|(id, key)| {
        let request = Request { length: 100, max_new: 100, ..keyed(id, key) };
        let mut hold = world.cache.acquire(request.spelled(crate::cache::Spelling::Tokens).all(), 0);
        let missing = request.prompt.len() - hold.kv_len();
        world.cache.extend(&mut hold, missing).unwrap();
        Admitted::new(request, hold, 0)
    });
    world.running.join(joining.into(), &mut world.cache);
    // 9 runs twice, 8 once; the others by key, the one without first.
    assert_eq!(world.ids(), [2, 4, 3, 0, 5, 1]);
}

#[test]
fn priorities_come_before_the_schedule() {
    let with = |low_values_first, schedule| {
        let priority = Some(PriorityConfig { low_values_first, ..PriorityConfig::default() });
        let mut world = World::new(Order { priority, ..order_of(schedule) }, empty_cache());
        for (id, priority, max_new) in [(0, None, 9), (1, Some(1), 1), (2, Some(5), 1), (3, Some(1), 7)] {
            world.push(Request { priority, max_new, ..request(id, 0..5) });
        }
        world.ids()
    };
    assert_eq!(with(false, Schedule::Fcfs), [2, 1, 3, 0]);
    assert_eq!(with(true, Schedule::Fcfs), [1, 3, 2, 0]);
    assert_eq!(with(false, Schedule::Lof), [2, 3, 1, 0]);
}

#[test]
fn a_draw_depends_on_seed_and_pass_only() {
    let draw = |seed, pass, ids: &[u64]| {
        let mut world = World::new(Order { seed, ..order_of(Schedule::Random) }, empty_cache());
        ids.iter().for_each(|id| world.push(request(*id, 0..5)));
        world.pass = pass;
        let first = world.ids();
        assert_eq!(world.ids(), first, "asked again it is the same");
        first
    };
    let ids: Vec<u64> = (0..20).collect();
    let backwards: Vec<u64> = (0..20).rev().collect();
    assert_eq!(draw(1, 1, &ids), draw(1, 1, &backwards));
    assert_ne!(draw(1, 1, &ids), draw(1, 2, &ids));
    assert_ne!(draw(1, 1, &ids), draw(2, 1, &ids));
    // Each of three has its turn at the head about equally often.
    let heads = (0..3000).fold([0; 3], |mut heads, pass| {
        heads[draw(7, pass, &[0, 1, 2])[0] as usize] += 1;
        heads
    });
    assert!(heads.iter().all(|times| (900..1100).contains(times)), "{heads:?}");
}

#[test]
fn busy_branches_come_first_and_a_prefix_after_all_that_continues_it() {
    let mut cache = empty_cache();
    // The second branch forks, which keeps its age.
    fill(&mut cache, &[1, 1, 1, 1]);
    fill(&mut cache, &[2, 2, 2, 2]);
    fill(&mut cache, &[2, 2, 3, 3]);
    let mut world = World::new(order_of(Schedule::DfsWeight), cache);
    let prompts: [&[Token]; 8] = [
        &[1, 1, 1, 1, 9],
        &[2, 2, 8],
        &[7, 7],
        &[2, 2, 3, 3, 9],
        &[2, 2, 2, 2, 9],
        &[1, 1, 1, 1, 8],
        &[2, 2, 3, 3, 8],
        &[1, 1, 1, 1, 7],
    ];
    for (id, prompt) in (0..).zip(prompts) {
        world.push(request(id, prompt.iter().copied()));
    }
    // Branch 2 has 4 requests (3 3 two, 2 2 one, itself one), branch 1 three; 2 matches nothing and ends at the root.
    assert_eq!(world.ids(), [3, 6, 4, 1, 0, 5, 7, 2]);
}

/// The walk of SGLang's `_dfs_weight_order`, on a tree of strings that knows no radix tree.
fn naive_dfs(cached: &[Vec<Token>], prompts: &[Vec<Token>]) -> Vec<usize> {
    // A node is a prefix at which a cached sequence ends or forks, or at which a match ends.
    let matched = |prompt: &[Token]| {
        let most = prompt.len() - 1;
        let common =
            |other: &Vec<Token>| other.iter().zip(&prompt[..most]).take_while(|(a, b)| a == b).count();
        prompt[..cached.iter().map(common).max().unwrap_or(0)].to_vec()
    };
    let ends: Vec<Vec<Token>> = prompts.iter().map(|prompt| matched(prompt)).collect();
    // Age of a prefix: the first cached sequence that begins with it.
    let age = |prefix: &[Token]| cached.iter().position(|sequence| sequence.starts_with(prefix));
    let weight = |prefix: &[Token]| ends.iter().filter(|end| end.starts_with(prefix)).count();
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|&a, &b| {
        let (x, y) = (&ends[a], &ends[b]);
        let common = x.iter().zip(y).take_while(|(a, b)| a == b).count();
        match (x.len() == common, y.len() == common) {
            (true, true) => a.cmp(&b),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let (x, y) = (&x[..=common], &y[..=common]);
                weight(y).cmp(&weight(x)).then(age(x).cmp(&age(y)))
            }
        }
    });
    order
}

#[test]
fn the_walk_agrees_with_a_naive_one() {
    use rand::{RngExt, SeedableRng};
    for seed in 0..300 {
        let mut rng = rand_pcg::Pcg64::seed_from_u64(seed);
        let mut draw = |most: usize| -> Vec<Vec<Token>> {
            let count = rng.random_range(1..12);
            let mut sequence = |_| {
                let len = rng.random_range(1..most);
                (0..len).map(|_| rng.random_range(0..3)).collect()
            };
            (0..count).map(&mut sequence).collect()
        };
        let (cached, prompts) = (draw(7), draw(8));
        let mut cache = empty_cache();
        // `fill` looks before it inserts; both make the same nodes.
        cached.iter().for_each(|sequence| fill(&mut cache, sequence));
        let mut world = World::new(order_of(Schedule::DfsWeight), cache);
        for (id, prompt) in (0..).zip(&prompts) {
            world.push(request(id, prompt.iter().copied()));
        }
        let naive: Vec<u64> = naive_dfs(&cached, &prompts).into_iter().map(|at| at as u64).collect();
        assert_eq!(world.ids(), naive, "seed {seed}: {cached:?} {prompts:?}");
    }
}

#[test]
fn waiting_requests_are_refreshed_every_32nd_time_with_the_first_last() {
    let prompts: BTreeMap<u64, Vec<Token>> =
        (0..3).map(|id| (id, (100 * id as u32..100 * id as u32 + 50).collect())).collect();
    let mut cache = empty_cache();
    prompts.values().for_each(|prompt| fill(&mut cache, prompt));
    let mut world = World::new(order_of(Schedule::Fcfs), cache);
    assert_eq!(world.ids(), [0; 0], "an empty queue is no call");
    for id in [0, 1] {
        world.push(request(id, prompts[&id].iter().copied().chain(7000..7010)));
    }
    // The first call refreshes 1, then 0; 2 is evicted first, then 1.
    world.ids();
    assert_eq!(world.cache.evict_to_free(99_851), 50);
    let left = |world: &mut World, id: u64| world.cache.probe(&[prompts[&id].as_slice(), &[1]].concat(), 0);
    assert_eq!([0, 1, 2].map(|id| left(&mut world, id)), [50, 50, 0]);
    // Those looks have made 1 the most recent, until the 33rd call.
    for _ in 0..31 {
        world.ids();
    }
    let _ = left(&mut world, 1);
    world.ids();
    world.cache.evict_to_free(99_901);
    assert_eq!([0, 1].map(|id| left(&mut world, id)), [50, 0]);
}
