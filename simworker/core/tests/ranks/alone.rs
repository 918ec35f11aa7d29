//! One rank is a bare engine.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use simworker_core::{DpConfig, Engine, EngineConfig, LoadBalance, Pace, Ranks, RequestId};

use crate::support::{a100, shared};

/// Does the same to both, with the same random requests, aborts and looks, and compares all that can be seen.
fn compare(seed: u64, dp: DpConfig) {
    let mut rng = Pcg64::seed_from_u64(seed);
    let config = EngineConfig {
        kv_tokens: rng.random_range(800..6000),
        max_queued: Some(20),
        overlap: rng.random(),
        pace: if rng.random() { Pace::Step } else { Pace::Stretch },
        ..a100()
    };
    let mut bare = Engine::new(config.clone()).unwrap();
    let mut ranks = Ranks::new(config, dp).unwrap();
    let (mut of_bare, mut of_ranks) = (Vec::new(), Vec::new());
    let mut now_ns = 0;
    for id in 0..200 {
        now_ns += rng.random_range(0..40_000_000);
        while let Some(due) = bare.next_deadline().filter(|due| *due < now_ns) {
            assert_eq!(ranks.next_deadline(), Some(due));
            bare.advance(due, &mut of_bare);
            ranks.advance(due, &mut of_ranks);
        }
        if rng.random_bool(0.2) {
            let id = RequestId(rng.random_range(0..=id));
            assert_eq!(bare.abort(now_ns, id, &mut of_bare), ranks.abort(now_ns, id, &mut of_ranks));
        }
        // Some ids are taken, some prompts do not fit.
        let id = if rng.random_bool(0.1) { id / 2 } else { id };
        let wish = shared(id, rng.random_range(0..5), rng.random_range(0..1200), rng.random_range(0..300));
        let expected = bare.submit(now_ns, wish.clone(), &mut of_bare).map(|()| 0);
        assert_eq!(ranks.submit(now_ns, wish, None, &mut of_ranks), expected);
        assert_eq!(ranks.loads(0), bare.loads());
        assert_eq!(ranks.totals(0), bare.totals());
        assert_eq!(ranks.is_idle(), bare.is_idle());
        assert!(ranks.running().eq(bare.running()));
        ranks.check().unwrap();
    }
    while let Some(due) = bare.next_deadline() {
        bare.advance(due, &mut of_bare);
        ranks.advance(due, &mut of_ranks);
    }
    assert_eq!(ranks.next_deadline(), None);
    assert_eq!(of_ranks, of_bare);
    assert!(bare.flush() && ranks.flush());
    assert_eq!(ranks.loads(0), bare.loads());
}

#[test]
fn one_rank_does_exactly_what_an_engine_does() {
    for seed in 0..40 {
        let balances = [LoadBalance::RoundRobin, LoadBalance::TotalRequests, LoadBalance::TotalTokens];
        let balance = balances[seed as usize % balances.len()];
        compare(seed, DpConfig { size: 1, balance, attention: seed % 2 == 0 });
    }
}
