//! A world of a prefill and a decode worker, each of one rank or some, that carries what one says to the other.

use std::collections::BTreeMap;

use simworker_core::{
    DpConfig, EngineConfig, EngineLoads, EngineRole, EngineTotals, Event, HandoffConfig, HandoffFault, Link,
    PauseMode, Ranks, RequestId, Submit,
};

use crate::mirrors;
use crate::support::{a100, request};

/// One of the two workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leg {
    Prefill,
    Decode,
}

/// Something done to a worker from outside.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Submit(Submit),
    Abort(u64),
    Fail(u64, HandoffFault),
    Wanted(u64),
    Arrived(u64, u32),
    Pause(PauseMode),
    Resume,
}

/// Both workers, what is on its way to them, and what they have said.
#[derive(Debug)]
pub(super) struct World {
    /// Of the workers that tell what becomes of their blocks, the size of these.
    told_pages: [Option<u32>; 2],
    prefill: Ranks,
    decode: Ranks,
    acts: BTreeMap<(u64, usize), (Leg, Act)>,
    next: usize,
    pub(super) prefill_events: Vec<Event>,
    pub(super) decode_events: Vec<Event>,
    /// Whose messages between the workers are lost.
    pub(super) lost: fn(u64) -> bool,
    pub(super) hop_ns: u64,
    /// After how many calls the workers are proven.
    pub(super) check_every: usize,
    calls: usize,
    /// Events of both that have been carried.
    carried: (usize, usize),
}

/// The room of a request.
pub(super) fn room_of(id: u64) -> u64 {
    1_000_000 + id
}

pub(super) fn config(role: EngineRole) -> EngineConfig {
    EngineConfig { role, ..a100() }
}

/// An engine whose link needs `setup_ns` and then `token_ns` for each token.
pub(super) fn with_link(role: EngineRole, setup_ns: u64, token_ns: u32) -> EngineConfig {
    let config = config(role);
    let link = Link { setup_ns, bytes_per_second: 1e9 };
    // A hair more than whole nanoseconds, so that rounding down ends at these.
    let kv_bytes_per_token = f64::from(token_ns) + 1e-9;
    EngineConfig { handoff: HandoffConfig { link, kv_bytes_per_token, ..config.handoff }, ..config }
}

/// A request with a prompt of its own.
pub(super) fn lone(id: u64, prompt: u32, max_new: u32) -> Submit {
    in_room(request(id, &[(500_000 + id, prompt)], max_new))
}

pub(super) fn in_room(submit: Submit) -> Submit {
    Submit { room: Some(room_of(submit.id.0)), ..submit }
}

impl World {
    pub(super) fn new(prefill: EngineConfig, decode: EngineConfig) -> Self {
        let one = DpConfig::default();
        Self::of((prefill, one), (decode, one))
    }

    /// With these ranks.
    pub(super) fn of(prefill: (EngineConfig, DpConfig), decode: (EngineConfig, DpConfig)) -> Self {
        let told_pages = [&prefill.0, &decode.0].map(|engine| engine.kv_events.map(|_| engine.page_size));
        Self {
            told_pages,
            prefill: Ranks::new(prefill.0, prefill.1).unwrap(),
            decode: Ranks::new(decode.0, decode.1).unwrap(),
            acts: BTreeMap::new(),
            next: 0,
            prefill_events: Vec::new(),
            decode_events: Vec::new(),
            lost: |_| false,
            hop_ns: 0,
            check_every: 1,
            calls: 0,
            carried: (0, 0),
        }
    }

    pub(super) fn at(&mut self, at_ns: u64, leg: Leg, act: Act) {
        self.acts.insert((at_ns, self.next), (leg, act));
        self.next += 1;
    }

    /// A request that both engines get at once.
    pub(super) fn both(&mut self, at_ns: u64, submit: Submit) {
        self.at(at_ns, Leg::Prefill, Act::Submit(submit.clone()));
        self.at(at_ns, Leg::Decode, Act::Submit(submit));
    }

    /// Goes on until nothing will happen any more.
    pub(super) fn run(&mut self) {
        self.run_until(u64::MAX);
        for (leg, events) in [(Leg::Prefill, &self.prefill_events), (Leg::Decode, &self.decode_events)] {
            if let Some(page) = self.told_pages[leg as usize] {
                mirrors::prove(self.ranks(leg), events, page);
            }
        }
        for ranks in [&mut self.prefill, &mut self.decode] {
            ranks.check().unwrap();
            assert!(ranks.is_idle());
            for rank in 0..ranks.size() {
                assert_eq!(ranks.loads(rank).used_tokens, 0, "nothing is held when idle");
            }
            assert!(ranks.flush());
        }
    }

    fn ranks(&self, leg: Leg) -> &Ranks {
        match leg {
            Leg::Prefill => &self.prefill,
            Leg::Decode => &self.decode,
        }
    }

    /// The load of a worker's first rank.
    pub(super) fn loads(&self, leg: Leg) -> EngineLoads {
        self.ranks(leg).loads(0)
    }

    /// The counters of each rank.
    pub(super) fn totals(&self, leg: Leg) -> Vec<EngineTotals> {
        let ranks = self.ranks(leg);
        (0..ranks.size()).map(|rank| ranks.totals(rank)).collect()
    }

    /// Goes on until nothing will happen before `end_ns`.
    pub(super) fn run_until(&mut self, end_ns: u64) {
        loop {
            let act = self.acts.first_key_value().map(|((at_ns, _), _)| *at_ns);
            let due = [self.prefill.next_deadline(), self.decode.next_deadline(), act];
            let Some(now_ns) = due.into_iter().flatten().min().filter(|due| *due < end_ns) else { return };
            if act == Some(now_ns) {
                self.act();
            } else if due[0] == Some(now_ns) {
                self.prefill.advance(now_ns, &mut self.prefill_events);
            } else {
                self.decode.advance(now_ns, &mut self.decode_events);
            }
            self.carry();
            self.calls += 1;
            if self.calls.is_multiple_of(self.check_every) {
                self.prefill.check().unwrap();
                self.decode.check().unwrap();
            }
        }
    }

    fn act(&mut self) {
        let ((now_ns, _), (leg, act)) = self.acts.pop_first().unwrap();
        let (ranks, events) = match leg {
            Leg::Prefill => (&mut self.prefill, &mut self.prefill_events),
            Leg::Decode => (&mut self.decode, &mut self.decode_events),
        };
        match act {
            Act::Submit(submit) => drop(ranks.submit(now_ns, submit, None, events).unwrap()),
            Act::Abort(id) => drop(ranks.abort(now_ns, RequestId(id), events)),
            Act::Fail(id, fault) => drop(ranks.handoff_failed(now_ns, room_of(id), fault, events)),
            Act::Wanted(id) => drop(ranks.kv_wanted(now_ns, room_of(id), events)),
            Act::Pause(mode) => ranks.pause(now_ns, mode, events),
            Act::Resume => ranks.resume(now_ns, events),
            Act::Arrived(id, cached) => drop(ranks.kv_arrived(now_ns, room_of(id), cached, events)),
        }
    }

    /// What the workers have said to each other since the last time is on its way.
    fn carry(&mut self) {
        let (from_prefill, from_decode) = self.carried;
        self.carried = (self.prefill_events.len(), self.decode_events.len());
        let said = self.prefill_events[from_prefill..].iter().chain(&self.decode_events[from_decode..]);
        let messages: Vec<_> =
            said.filter_map(message).filter(|(_, _, act)| !(self.lost)(act.id())).collect();
        for (at_ns, leg, act) in messages {
            self.at(at_ns + self.hop_ns, leg, act);
        }
    }
}

impl Act {
    fn id(&self) -> u64 {
        match self {
            Self::Submit(submit) => submit.id.0,
            Self::Pause(_) | Self::Resume => u64::MAX,
            Self::Abort(id) | Self::Fail(id, _) | Self::Wanted(id) | Self::Arrived(id, _) => *id,
        }
    }
}

/// What the other worker has to be told of an event.
fn message(event: &Event) -> Option<(u64, Leg, Act)> {
    match event {
        Event::KvWanted { id, room, at_ns, .. } => {
            assert_eq!(*room, room_of(id.0));
            Some((*at_ns, Leg::Prefill, Act::Wanted(id.0)))
        }
        Event::KvSent { id, room, at_ns, cached_tokens, .. } => {
            assert_eq!(*room, room_of(id.0));
            Some((*at_ns, Leg::Decode, Act::Arrived(id.0, *cached_tokens)))
        }
        _ => None,
    }
}

/// When a prefill engine had sent all of a request.
pub(super) fn sent_ns(events: &[Event], wanted: u64) -> u64 {
    let found = events.iter().find_map(|event| match event {
        Event::KvSent { id, at_ns, .. } if id.0 == wanted => Some(*at_ns),
        _ => None,
    });
    found.unwrap()
}

/// The requests that a decode engine has given slots, and when, in order.
pub(super) fn wanted(events: &[Event]) -> Vec<(u64, u64)> {
    let found = events.iter().filter_map(|event| match event {
        Event::KvWanted { id, at_ns, .. } => Some((id.0, *at_ns)),
        _ => None,
    });
    found.collect()
}
