//! The hand-off of KV between ranks of two workers: what one side says reaches the right rank of the other.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use simworker_core::{
    DpConfig, EngineConfig, EngineRole, Event, FinishReason, HandoffFault, LoadBalance, Ranks, Refusal,
    RequestId, Submit,
};

use crate::support::{a100, dp, request};

/// A prefill worker and a decode worker, and what was heard of both.
struct Pair {
    prefill: Ranks,
    decode: Ranks,
    prefill_events: Vec<Event>,
    decode_events: Vec<Event>,
    /// Events that have been carried to the other side.
    carried: (usize, usize),
}

impl Pair {
    fn new(prefill: DpConfig, decode: DpConfig) -> Self {
        let worker = |role, dp| Ranks::new(EngineConfig { role, ..a100() }, dp).unwrap();
        Self {
            prefill: worker(EngineRole::Prefill, prefill),
            decode: worker(EngineRole::Decode, decode),
            prefill_events: Vec::new(),
            decode_events: Vec::new(),
            carried: (0, 0),
        }
    }

    /// Carries what each side has said to the other.
    fn carry(&mut self) {
        loop {
            if let Some(event) = self.decode_events.get(self.carried.1).cloned() {
                self.carried.1 += 1;
                if let Event::KvWanted { room, at_ns, .. } = event {
                    self.prefill.kv_wanted(at_ns, room, &mut self.prefill_events);
                }
            } else if let Some(event) = self.prefill_events.get(self.carried.0).cloned() {
                self.carried.0 += 1;
                if let Event::KvSent { room, at_ns, cached_tokens, .. } = event {
                    assert!(self.decode.kv_arrived(at_ns, room, cached_tokens, &mut self.decode_events));
                }
            } else {
                return;
            }
        }
    }

    /// Lets time pass on both sides; what they say of it is of that time.
    fn advance(&mut self, now_ns: u64) {
        let told = [&self.prefill_events, &self.decode_events].map(Vec::len);
        self.prefill.advance(now_ns, &mut self.prefill_events);
        self.decode.advance(now_ns, &mut self.decode_events);
        for (events, told) in [&self.prefill_events, &self.decode_events].into_iter().zip(told) {
            assert!(events.is_sorted_by_key(Event::at_ns), "time goes back");
            assert!(events[told..].iter().all(|event| event.at_ns() <= now_ns), "of what is to come");
        }
    }

    fn run_to(&mut self, now_ns: u64) {
        let due = |pair: &Self| {
            let both = [pair.prefill.next_deadline(), pair.decode.next_deadline()];
            both.into_iter().flatten().min().filter(|due| *due < now_ns)
        };
        while let Some(due) = due(self) {
            self.advance(due);
            self.carry();
        }
        self.prefill.check().unwrap();
        self.decode.check().unwrap();
    }
}

fn ends(events: &[Event]) -> BTreeMap<u64, FinishReason> {
    let end = |event: &Event| match event {
        Event::Finish { id, reason, .. } => Some((id.0, *reason)),
        _ => None,
    };
    events.iter().filter_map(end).collect()
}

#[test]
fn every_request_gets_its_kv_whichever_ranks_it_is_on() {
    for (seed, balance) in (0..).zip(LoadBalance::ALL) {
        for attention in [false, true] {
            let mut rng = Pcg64::seed_from_u64(seed);
            let mut pair =
                Pair::new(DpConfig { attention, ..dp(3, balance) }, dp(2, LoadBalance::TotalTokens));
            let mut now_ns = 0;
            for id in 0..60 {
                now_ns += rng.random_range(0..20_000_000);
                pair.run_to(now_ns);
                let mut wish = request(id, rng.random_range(1..3000), rng.random_range(2..60));
                wish.room = Some(rng.random_range(0..1 << 62));
                // Either side may be first, and the decode side asks before there is anything to be sent.
                pair.decode.submit(now_ns, wish.clone(), None, &mut pair.decode_events).unwrap();
                pair.decode.advance(now_ns, &mut pair.decode_events);
                pair.carry();
                pair.prefill.submit(now_ns, wish, None, &mut pair.prefill_events).unwrap();
            }
            pair.run_to(u64::MAX);
            assert!(pair.prefill.is_idle() && pair.decode.is_idle());
            for events in [&pair.prefill_events, &pair.decode_events] {
                let ends = ends(events);
                assert_eq!(ends.len(), 60);
                assert!(ends.values().all(|reason| *reason == FinishReason::Length), "{balance:?}: {ends:?}");
            }
            assert!(
                pair.decode_events.last().unwrap().at_ns() < 300_000_000_000,
                "nobody has waited in vain"
            );
        }
    }
}

#[test]
fn a_failed_hand_off_ends_its_request_on_its_rank() {
    let mut pair = Pair::new(dp(2, LoadBalance::FollowBootstrapRoom), dp(2, LoadBalance::RoundRobin));
    for (id, room) in [(1, 11), (2, 12)] {
        let mut wish = request(id, 500, 5);
        wish.room = Some(room);
        assert_eq!(pair.decode.submit(0, wish.clone(), None, &mut pair.decode_events), Ok(id as u32 - 1));
        assert_eq!(pair.prefill.submit(0, wish, None, &mut pair.prefill_events), Ok(room as u32 % 2));
    }
    assert_eq!((pair.prefill.rank_of(11), pair.prefill.rank_of(12)), (Some(1), Some(0)));
    assert!(pair.decode.handoff_failed(1_000, 12, HandoffFault::PeerLost, &mut pair.decode_events));
    assert!(!pair.decode.handoff_failed(1_000, 99, HandoffFault::Transfer, &mut pair.decode_events));
    assert!(pair.prefill.handoff_failed(1_000, 12, HandoffFault::Transfer, &mut pair.prefill_events));
    pair.run_to(u64::MAX);
    for events in [&pair.prefill_events, &pair.decode_events] {
        let ends = ends(events);
        assert_eq!(ends[&1], FinishReason::Length);
        assert!(matches!(ends[&2], FinishReason::Error { status: 500, .. }), "{ends:?}");
    }
    assert!(!pair.decode.abort(1 << 50, RequestId(2), &mut pair.decode_events));
}

#[test]
fn a_room_is_free_again_when_its_request_is_aborted() {
    for role in [EngineRole::Prefill, EngineRole::Decode] {
        let mut ranks = Ranks::new(EngineConfig { role, ..a100() }, dp(2, LoadBalance::RoundRobin)).unwrap();
        let mut events = Vec::new();
        let in_one = |id| Submit { room: Some(7), ..request(id, 100, 5) };
        ranks.submit(0, in_one(1), None, &mut events).unwrap();
        let refusal = ranks.submit(0, in_one(2), None, &mut events).unwrap_err();
        assert_eq!((refusal.status(), refusal), (400, Refusal::RoomTaken { room: 7 }));
        assert!(ranks.abort(10, RequestId(1), &mut events));
        ranks.submit(10, in_one(2), None, &mut events).unwrap();
        ranks.check().unwrap();
    }
}

#[test]
fn what_is_wanted_before_its_request_is_here_is_forgotten_in_time_or_when_it_has_failed() {
    const PATIENCE_NS: u64 = 300_000_000_000;
    for (size, balance) in
        [(1, LoadBalance::RoundRobin), (3, LoadBalance::RoundRobin), (3, LoadBalance::FollowBootstrapRoom)]
    {
        let config = EngineConfig { role: EngineRole::Prefill, ..a100() };
        let mut prefill = Ranks::new(config, dp(size, balance)).unwrap();
        let mut events = Vec::new();
        assert!(!prefill.kv_wanted(0, 5, &mut events));
        for room in [6, 7] {
            assert!(!prefill.kv_wanted(1, room, &mut events));
        }
        assert!(!prefill.handoff_failed(2, 7, HandoffFault::Transfer, &mut events));
        for (id, room) in [(1, 5), (2, 6), (3, 7)] {
            let mut wish = request(id, 100, 5);
            wish.room = Some(room);
            prefill.submit(PATIENCE_NS, wish, None, &mut events).unwrap();
        }
        while let Some(due) = prefill.next_deadline() {
            prefill.advance(due, &mut events);
        }
        let ends = ends(&events);
        assert!(matches!(ends[&1], FinishReason::Error { .. }), "too long ago: {size} {balance:?}: {ends:?}");
        assert_eq!(ends[&2], FinishReason::Length, "{size} {balance:?}");
        assert!(
            matches!(ends[&3], FinishReason::Error { .. }),
            "it had failed: {size} {balance:?}: {ends:?}"
        );
        prefill.check().unwrap();
    }
}
