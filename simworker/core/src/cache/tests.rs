//! What the traces of `tests/radix_golden.rs` do not ask.

use super::{CacheConfig, Eviction, Full, HostTier, KvCache, WritePolicy};
use protocol::tokenizer::Token;

fn cache(page_size: u32, capacity_tokens: u64) -> KvCache {
    KvCache::new(CacheConfig { page_size, capacity_tokens, eviction: Eviction::Lru, disabled: false })
}

fn tokens(first: Token, n: u32) -> Vec<Token> {
    (first..first + n).collect()
}

/// A request that comes, computes its prompt and ends.
fn serve(cache: &mut KvCache, prompt: &[Token], namespace: u64) -> usize {
    let mut hold = cache.acquire(prompt, namespace);
    let (cached, rest) = (hold.matched_len(), prompt.len() - hold.kv_len());
    cache.evict_to_free(cache.prefill_demand(rest as u64, 1));
    cache.extend(&mut hold, rest).unwrap();
    cache.checkpoint(&mut hold, prompt, prompt.len(), prompt.len(), namespace, 0);
    cache.finish(hold, prompt, prompt.len(), namespace, 0);
    cache.check().unwrap();
    cached
}

#[test]
fn a_repeat_computes_its_last_token_or_page_again() {
    for (page_size, len, cached) in [(1, 100, 99), (16, 96, 80), (16, 100, 96), (64, 64, 0), (512, 600, 512)]
    {
        let mut cache = cache(page_size, 2_048);
        assert_eq!(serve(&mut cache, &tokens(1, len), 0), 0, "page {page_size}, first");
        assert_eq!(serve(&mut cache, &tokens(1, len), 0), cached, "page {page_size}, again");
    }
}

#[test]
fn namespaces_share_nothing() {
    let mut cache = cache(1, 1_000);
    for namespace in 0..3 {
        assert_eq!(serve(&mut cache, &tokens(1, 50), namespace), 0);
    }
    assert_eq!((cache.node_count(), cache.evictable()), (3, 150));
}

#[test]
fn a_full_pool_refuses_and_changes_nothing() {
    let mut cache = cache(16, 64);
    let mut hold = cache.acquire(&tokens(1, 60), 0);
    cache.extend(&mut hold, 40).unwrap();
    assert_eq!((cache.free(), cache.private()), (16, 48));
    assert_eq!(cache.extend_cost(&hold, 8), 0, "the last page has room for 8");
    assert_eq!(cache.extend(&mut hold, 30), Err(Full { needed: 32, free: 16 }));
    assert_eq!((hold.kv_len(), cache.free()), (40, 16));
    cache.drop_private(hold);
    assert_eq!((cache.free(), cache.is_idle()), (64, true));
    cache.check().unwrap();
}

#[test]
fn the_decode_check_asks_for_pages_that_begin() {
    let mut cache = cache(16, 640);
    let mut holds = [32, 33, 47, 48].map(|len| {
        let mut hold = cache.acquire(&tokens(len * 100, len), 0);
        cache.extend(&mut hold, len as usize).unwrap();
        hold
    });
    assert_eq!(cache.decode_check(&holds), 2 * 16);
    assert_eq!(cache.decode_demand(4), 4 * 16);
    cache.extend(&mut holds[2], 1).unwrap();
    assert_eq!(cache.decode_check(&holds), 3 * 16);
    holds.into_iter().for_each(|hold| cache.drop_private(hold));
}

#[test]
fn what_is_held_is_not_evicted() {
    let mut cache = cache(1, 100);
    serve(&mut cache, &tokens(1, 40), 0);
    serve(&mut cache, &tokens(1_000, 40), 0);
    let hold = cache.acquire(&tokens(1, 41), 0);
    assert_eq!((cache.protected(), cache.evictable()), (40, 40));
    assert_eq!(cache.evict_to_free(100), 40);
    assert_eq!((cache.free(), cache.evicted_total()), (60, 40));
    cache.refuse(hold);
    assert_eq!(cache.evict_to_free(100), 40);
    cache.check().unwrap();
}

#[test]
fn a_refused_request_has_still_made_its_prefix_recent() {
    let mut cache = cache(1, 100);
    serve(&mut cache, &tokens(1, 40), 0);
    serve(&mut cache, &tokens(1_000, 40), 0);
    let hold = cache.acquire(&tokens(1, 41), 0);
    cache.refuse(hold);
    cache.evict_to_free(60);
    assert_eq!((cache.probe(&tokens(1, 41), 0), cache.probe(&tokens(1_000, 41), 0)), (40, 0));
}

#[test]
fn the_reply_goes_before_the_prompt() {
    let mut cache = cache(1, 100);
    let conversation = tokens(1, 60);
    let mut hold = cache.acquire(&conversation[..40], 0);
    cache.extend(&mut hold, 60).unwrap();
    cache.finish(hold, &conversation, 40, 0, 0);
    assert_eq!(cache.evict_to_free(41), 20);
    assert_eq!(cache.probe(&conversation, 0), 40);
}

#[test]
fn flush_waits_for_the_last_hold() {
    let mut cache = cache(1, 100);
    serve(&mut cache, &tokens(1, 40), 0);
    let hold = cache.acquire(&tokens(500, 10), 0);
    assert_eq!((hold.kv_len(), cache.flush()), (0, false));
    cache.refuse(hold);
    assert!(cache.flush());
    assert_eq!((cache.free(), cache.node_count(), cache.evicted_total()), (100, 0, 0));
    cache.check().unwrap();
}

#[test]
fn a_disabled_cache_keeps_nothing() {
    let config = CacheConfig { page_size: 1, capacity_tokens: 100, eviction: Eviction::Lru, disabled: true };
    let mut cache = KvCache::new(config);
    for _ in 0..3 {
        assert_eq!(serve(&mut cache, &tokens(1, 60), 0), 0);
        assert_eq!((cache.free(), cache.node_count()), (100, 0));
    }
}

#[test]
fn ends_of_edges_are_found_beyond_a_block_of_comparison() {
    for common in [1, 63, 64, 65, 200] {
        let mut cache = cache(1, 1_000);
        serve(&mut cache, &tokens(1, 300), 0);
        let fork = [tokens(1, common), tokens(5_000, 100)].concat();
        assert_eq!(cache.probe(&fork, 0), common as usize);
        assert_eq!(cache.node_count(), 2);
    }
}

/// A write-back cache with a full host: `branches` prompts that share a beginning, most of them pushed off the device.
fn written_back(branches: u32) -> KvCache {
    let room = 20 + u64::from(branches) * 10;
    let tier = HostTier { capacity_tokens: room, write: WritePolicy::Back, load_back_threshold: 0 };
    let mut cache = cache(1, room).with_host(tier);
    for branch in 0..4 * branches {
        serve(&mut cache, &branch_of(branch), 0);
        // Some come back from the host, and are on both tiers then.
        if branch % 3 == 0 {
            let again = branch_of(branch / 2);
            let mut hold = cache.acquire(&again, 0);
            cache.load_back(&mut hold);
            cache.drop_private(hold);
        }
    }
    cache.check().unwrap();
    cache
}

fn branch_of(branch: u32) -> Vec<Token> {
    tokens(1, 20).into_iter().chain(tokens(1_000 + branch * 10, 11)).collect()
}

#[test]
fn what_an_eviction_from_the_host_looks_at_does_not_grow_with_the_tree() {
    let visits = |branches: u32| {
        let mut cache = written_back(branches);
        let before = cache.host_totals();
        for branch in 0..100 {
            serve(&mut cache, &branch_of(1_000_000 + branch), 0);
        }
        let after = cache.host_totals();
        assert!(after.evicted - before.evicted >= 900, "the host is full: {after:?}");
        after.visited - before.visited
    };
    let (few, many) = (visits(100), visits(2_000));
    assert!(few >= 90 && many <= few + few / 2, "100 evictions look at {few} and {many} nodes");
}

#[test]
fn copies_of_leaves_are_passed_over_once_and_not_at_every_eviction() {
    let tier = HostTier { capacity_tokens: 2_000, write: WritePolicy::Back, load_back_threshold: 0 };
    // The newest goes first, so that the copies stay on the device.
    let config =
        CacheConfig { page_size: 1, capacity_tokens: 1_000, eviction: Eviction::Mru, disabled: false };
    let mut cache = KvCache::new(config).with_host(tier);
    let prompt = |at: u32| tokens(1_000 + at * 10, 10);
    for at in 0..200 {
        serve(&mut cache, &prompt(at), 0);
        if at % 100 == 99 {
            cache.evict_to_free(1_000);
        }
    }
    // The first hundred come back and are on both tiers then; the host has all two hundred and no room.
    for at in 0..100 {
        let mut hold = cache.acquire(&[prompt(at), vec![1]].concat(), 0);
        assert_eq!(cache.load_back(&mut hold), 10);
        cache.drop_private(hold);
    }
    assert_eq!(cache.host_usage(), Some((2_000, 2_000)));
    // Each new one takes the place of the one before, which has to be copied.
    let visits = |cache: &mut KvCache, at: u32| {
        let before = cache.host_totals().visited;
        serve(cache, &prompt(at), 0);
        cache.host_totals().visited - before
    };
    let all: Vec<u64> = (300..500).map(|at| visits(&mut cache, at)).collect();
    let evictions = all.iter().filter(|visits| **visits > 0).count();
    let sum: u64 = all.iter().sum();
    assert!(evictions >= 190 && sum <= 100 + 3 * evictions as u64, "{all:?}");
}
