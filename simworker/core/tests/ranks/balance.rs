//! Which rank gets a request: each way of balancing by a naive model, and ranks that are named.

use std::collections::BTreeSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use simworker_core::{
    ConfigError, DpConfig, EngineConfig, EngineRole, Event, LoadBalance, LoadReport, Ranks, Refusal,
    RequestId,
};

use crate::support::{a100, dp, finish, request, run_to, shared};

const RANKS: u32 = 4;

/// What the front end is to know, kept in the plainest way.
struct Naive {
    balance: LoadBalance,
    sent: u64,
    /// Requests and tokens of each rank, and as of when the rank said so.
    known: Vec<(u64, u64, u64)>,
    read_ns: Option<u64>,
}

impl Naive {
    fn choose(&mut self, now_ns: u64, room: u64, tokens: u64, ranks: &Ranks) -> u32 {
        self.sent += 1;
        match self.balance {
            LoadBalance::RoundRobin => ((self.sent - 1) % u64::from(RANKS)) as u32,
            LoadBalance::FollowBootstrapRoom => (room % u64::from(RANKS)) as u32,
            LoadBalance::TotalRequests | LoadBalance::TotalTokens => {
                if self.read_ns.is_none_or(|read_ns| now_ns >= read_ns + 20_000_000) {
                    self.read_ns = Some(now_ns);
                    for (rank, known) in (0..RANKS).zip(&mut self.known) {
                        let LoadReport { at_ns, loads } = ranks.reported_loads(rank, now_ns);
                        if known.2 != at_ns {
                            *known = (loads.running + loads.waiting, loads.total_tokens, at_ns);
                        }
                    }
                }
                let mut best = 0;
                for rank in 1..self.known.len() {
                    let ((requests, tokens, _), (least_requests, least_tokens, _)) =
                        (self.known[rank], self.known[best]);
                    let is_less = match self.balance {
                        LoadBalance::TotalRequests => requests < least_requests,
                        _ if tokens == least_tokens => requests < least_requests,
                        _ => tokens < least_tokens,
                    };
                    if is_less {
                        best = rank;
                    }
                }
                self.known[best].0 += 1;
                self.known[best].1 += tokens;
                best as u32
            }
        }
    }
}

#[test]
fn each_balancing_agrees_with_a_naive_model() {
    for (seed, balance) in (0..).zip(LoadBalance::ALL.into_iter().cycle().take(24)) {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut ranks = Ranks::new(a100(), dp(RANKS, balance)).unwrap();
        let mut naive =
            Naive { balance, sent: 0, known: vec![(0, 0, u64::MAX); RANKS as usize], read_ns: None };
        let (mut events, mut used, mut now_ns) = (Vec::new(), BTreeSet::new(), 0);
        for id in 0..150 {
            now_ns += rng.random_range(0..15_000_000);
            run_to(&mut ranks, now_ns, &mut events);
            // As the ranks do themselves when they get a request: what ends now has ended.
            let mut wish = request(id, rng.random_range(1..3000), rng.random_range(1..200));
            wish.room = Some(rng.random_range(0..1 << 40));
            let (room, tokens) = (wish.room.unwrap(), wish.prompt.len() as u64);
            assert!(!ranks.abort(now_ns, RequestId(u64::MAX), &mut events));
            let expected = naive.choose(now_ns, room, tokens, &ranks);
            let rank = ranks.submit(now_ns, wish, None, &mut events).unwrap();
            assert_eq!(rank, expected, "{balance:?}, seed {seed}, request {id}");
            used.insert(rank);
        }
        finish(&mut ranks, &mut events);
        assert_eq!(used.len(), RANKS as usize, "{balance:?}");
        assert!(events.iter().map(Event::at_ns).is_sorted(), "time goes back");
        let ends = events.iter().filter(|event| matches!(event, Event::Finish { .. })).count();
        assert_eq!(ends, 150);
        assert_eq!((0..RANKS).map(|rank| ranks.totals(rank).finished_requests).sum::<u64>(), 150);
    }
}

#[test]
fn a_named_rank_bypasses_the_balancing() {
    let mut ranks = Ranks::new(a100(), dp(3, LoadBalance::RoundRobin)).unwrap();
    let mut events = Vec::new();
    let mut submit = |id, rank| ranks.submit(0, request(id, 10, 5), rank, &mut events);
    assert_eq!(submit(0, None), Ok(0));
    assert_eq!([submit(1, Some(2)), submit(2, Some(2)), submit(3, Some(0))], [Ok(2), Ok(2), Ok(0)]);
    assert_eq!([submit(4, None), submit(5, None), submit(6, None)], [Ok(1), Ok(2), Ok(0)]);
    let refusal = submit(7, Some(3)).unwrap_err();
    assert_eq!((&refusal, refusal.status()), (&Refusal::NoSuchRank { rank: 3, size: 3 }, 400));
    assert!(!refusal.is_scheduler_abort());
    assert_eq!(submit(6, Some(1)), Err(Refusal::DuplicateId), "a name is taken on all ranks");
    assert_eq!(submit(8, None), Ok(1), "what is refused takes no turn");
}

#[test]
fn a_named_rank_must_be_that_of_the_room_where_rooms_decide() {
    let config = EngineConfig { role: EngineRole::Prefill, ..a100() };
    let mut ranks = Ranks::new(config, dp(4, LoadBalance::FollowBootstrapRoom)).unwrap();
    let mut events = Vec::new();
    let mut submit = |id, room, rank| {
        let mut wish = request(id, 10, 5);
        wish.room = room;
        ranks.submit(0, wish, rank, &mut events)
    };
    assert_eq!(submit(1, Some(6), None), Ok(2));
    assert_eq!(submit(2, Some(7), Some(3)), Ok(3));
    let conflict = submit(3, Some(9), Some(2)).unwrap_err();
    assert_eq!(conflict, Refusal::RankAgainstRoom { rank: 2, room: 9, expected: 1 });
    assert_eq!(conflict.status(), 400);
    assert!(conflict.to_string().contains("follow_bootstrap_room conflict"), "{conflict}");
    assert_eq!(submit(4, None, None), Err(Refusal::NoRoom));
    assert_eq!(submit(5, Some(6), None), Err(Refusal::RoomTaken { room: 6 }));
    finish(&mut ranks, &mut events);
    let mut again = request(6, 10, 5);
    again.room = Some(6);
    assert_eq!(
        ranks.submit(u64::MAX / 2, again, None, &mut events),
        Ok(2),
        "rooms are free again at the end"
    );
}

#[test]
fn each_rank_has_a_cache_of_its_own() {
    let mut ranks = Ranks::new(a100(), dp(2, LoadBalance::RoundRobin)).unwrap();
    let mut events = Vec::new();
    let mut cached = |id, rank| {
        ranks.submit(id * 10_000_000_000, shared(id, 7, 500, 2), Some(rank), &mut events).unwrap();
        while let Some(due) = ranks.next_deadline() {
            ranks.advance(due, &mut events);
        }
        ranks.totals(rank).cached_tokens
    };
    assert_eq!(cached(1, 0), 0);
    assert_eq!(cached(2, 1), 0, "what another rank has is of no use");
    assert!(cached(3, 1) >= 499);
    assert!(ranks.flush());
}

#[test]
fn an_abort_finds_its_rank() {
    let mut ranks = Ranks::new(a100(), dp(3, LoadBalance::RoundRobin)).unwrap();
    let mut events = Vec::new();
    for id in 0..6 {
        ranks.submit(0, request(id, 100, 500), None, &mut events).unwrap();
    }
    run_to(&mut ranks, 500_000_000, &mut events);
    assert!(!ranks.flush(), "requests run");
    assert!(ranks.abort(500_000_000, RequestId(4), &mut events));
    assert!(!ranks.abort(500_000_000, RequestId(9), &mut events));
    run_to(&mut ranks, 600_000_000, &mut events);
    assert!(!ranks.abort(600_000_000, RequestId(4), &mut events), "it has ended");
    let running: BTreeSet<u64> = ranks.running().map(|(id, _)| id.0).collect();
    assert_eq!(running, BTreeSet::from([0, 1, 2, 3, 5]));
    finish(&mut ranks, &mut events);
}

#[test]
fn rooms_decide_on_prefill_engines_by_default() {
    assert_eq!(
        EngineRole::ALL.map(LoadBalance::auto).map(LoadBalance::label),
        ["round_robin", "follow_bootstrap_room", "round_robin"]
    );
    assert!(LoadBalance::ALL.iter().all(|way| LoadBalance::from_label(way.label()) == Some(*way)));
    assert_eq!(LoadBalance::from_label("auto"), None);
    let none = DpConfig { size: 0, ..DpConfig::default() };
    assert_eq!(Ranks::new(a100(), none).unwrap_err(), ConfigError::NoRank);
}
