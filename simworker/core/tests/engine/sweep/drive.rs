//! Doing to the ranks what was drawn.

use std::collections::BTreeSet;

use simworker_core::{
    DpConfig, EngineConfig, EngineLoads, EngineTotals, Event, Limits, LoadReport, Pace, Ranks,
};

use super::draw::{Act, Script};
use crate::mirrors;

/// All that can be seen from outside.
#[derive(Debug, PartialEq)]
pub(super) struct Played {
    pub(super) events: Vec<Event>,
    /// Requests that were not accepted.
    pub(super) refused: BTreeSet<u64>,
    /// Flushes that emptied the caches.
    pub(super) flushed: u64,
    pub(super) totals: Vec<EngineTotals>,
    pub(super) limits: Limits,
    looks: Vec<(EngineLoads, LoadReport)>,
}

/// Plays a script on new ranks, lets all requests end, and proves the ranks all the while.
pub(super) fn play(config: &EngineConfig, dp: DpConfig, script: &Script, pace: Pace) -> Played {
    let mut ranks = Ranks::new(EngineConfig { pace, ..config.clone() }, dp).unwrap();
    let mut checks = Checks { every: if pace == Pace::Step { 16 } else { 1 }, calls: 0 };
    let mut played = Played {
        events: Vec::new(),
        refused: BTreeSet::new(),
        flushed: 0,
        totals: Vec::new(),
        limits: ranks.limits(),
        looks: Vec::new(),
    };
    for (at_ns, act) in script {
        while let Some(due) = ranks.next_deadline().filter(|due| due < at_ns) {
            ranks.advance(due, &mut played.events);
            checks.check(&ranks);
        }
        played.act(&mut ranks, *at_ns, act);
        checks.check(&ranks);
    }
    while let Some(due) = ranks.next_deadline() {
        ranks.advance(due, &mut played.events);
        checks.check(&ranks);
    }
    let told = config.kv_events.is_some();
    if told {
        mirrors::prove(&ranks, &played.events, config.page_size);
    }
    rests(&mut ranks);
    while let Some(due) = ranks.next_deadline() {
        ranks.advance(due, &mut played.events);
    }
    if told {
        mirrors::prove(&ranks, &played.events, config.page_size);
    }
    played.totals = (0..ranks.size()).map(|rank| ranks.totals(rank)).collect();
    played
}

/// Steps are many, and most of them change next to nothing.
struct Checks {
    every: u64,
    calls: u64,
}

impl Checks {
    fn check(&mut self, ranks: &Ranks) {
        self.calls += 1;
        if self.calls.is_multiple_of(self.every) {
            ranks.check().unwrap();
        }
    }
}

/// When all has ended nothing is held, and a flush leaves nothing.
fn rests(ranks: &mut Ranks) {
    ranks.check().unwrap();
    assert!(ranks.is_idle(), "every request ends");
    for rank in 0..ranks.size() {
        let loads = ranks.loads(rank);
        assert_eq!(loads.used_tokens, 0, "nothing is protected or private when idle");
        assert_eq!(loads.free_tokens + loads.evictable_tokens, loads.max_total_tokens);
        assert_eq!((loads.running, loads.waiting, loads.total_tokens), (0, 0, 0));
    }
    assert!(ranks.flush());
    for rank in 0..ranks.size() {
        let loads = ranks.loads(rank);
        assert_eq!(loads.free_tokens, loads.max_total_tokens);
    }
}

impl Played {
    fn act(&mut self, ranks: &mut Ranks, at_ns: u64, act: &Act) {
        let events = &mut self.events;
        match act {
            Act::Submit(request) => {
                if ranks.submit(at_ns, request.clone(), None, events).is_err() {
                    self.refused.insert(request.id.0);
                }
            }
            Act::Abort(id) => {
                ranks.abort(at_ns, *id, events);
            }
            Act::AbortAll => ranks.abort_all(at_ns, events),
            Act::Flush => {
                ranks.advance(at_ns, events);
                self.flushed += u64::from(ranks.flush());
            }
            Act::Pause(mode) => ranks.pause(at_ns, *mode, events),
            Act::Resume => ranks.resume(at_ns, events),
            Act::Slow(factor) => ranks.set_pace_factor(at_ns, *factor, events),
            Act::Look => {
                ranks.advance(at_ns, events);
                let looks =
                    (0..ranks.size()).map(|rank| (ranks.loads(rank), ranks.reported_loads(rank, at_ns)));
                self.looks.extend(looks);
            }
        }
    }
}
