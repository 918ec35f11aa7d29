//! What is sent and when: a scenario and a seed become a plan.
//!
//! A plan is a pure function of the scenario and the seed. Every component (order, popularity, match ratios, arrivals,
//! jitter) draws from a stream of its own, so changing one does not move another. Prompts are runs of named blocks of
//! generated text, not tokens: a million requests fit in memory, and prompts share a prefix exactly where they share
//! blocks.

mod amounts;
mod arrivals;
pub(crate) mod chain;
pub(crate) mod draws;
pub(crate) mod mishaps;
mod mixed;
pub(crate) mod replay;
mod rounds;
mod sessions;
mod shared_prefix;
mod tree;

#[cfg(test)]
mod plan_tests;

use std::collections::BTreeMap;

use protocol::record::RequestRecord;
use protocol::tokenizer::{self, Token, mix};

use crate::scenario::{Arrival, Scenario, Workload};

/// A run of tokens of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Segment {
    /// The first tokens of a named block of generated text.
    Text {
        /// The block's name; `protocol::tokenizer::block_token(block, i)` is its token `i`.
        block: u64,
        /// How many of its tokens.
        tokens: u32,
    },
    /// The reply to an earlier request, as it came.
    Reply {
        /// That request's place in the plan.
        seq: u32,
        /// How long it is to be, in tokens.
        tokens: u32,
    },
}

impl Segment {
    /// Its length in tokens; of a reply, as planned.
    #[must_use]
    pub(crate) fn tokens(self) -> u32 {
        match self {
            Self::Text { tokens, .. } | Self::Reply { tokens, .. } => tokens,
        }
    }
}

/// What a request waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct After {
    /// The requests that must have ended, by their places in the plan; all are earlier ones.
    pub seqs: Box<[u32]>,
    /// How long after the last of them it is due, in nanoseconds.
    pub think_ns: u64,
}

/// One request of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedRequest {
    /// Its place in the plan, from 0: the order of arrival, if answers took no time.
    pub seq: u64,
    /// Its prefix group, if the workload has groups.
    pub group: Option<u32>,
    /// Its session, if the workload has sessions.
    pub session: Option<u64>,
    /// Its place in the session, from 0.
    pub turn: Option<u32>,
    /// When it is to be sent, in nanoseconds since the start; 0 under closed pacing. Of one that waits for others, when it would
    /// be if answers took no time.
    pub at_ns: u64,
    /// The prompt.
    pub prompt: Box<[Segment]>,
    /// Exact length of the reply, in tokens.
    pub output_tokens: u32,
    /// What it waits for, if it does.
    pub after: Option<After>,
}

impl PlannedRequest {
    /// Length of the prompt, in tokens; of replies in it, as planned.
    #[must_use]
    pub(crate) fn prompt_tokens(&self) -> u32 {
        self.prompt.iter().map(|segment| segment.tokens()).sum()
    }

    /// The prompt, token by token. `reply` adds the reply to the request at a place of the plan.
    #[must_use]
    pub(crate) fn tokens(&self, mut reply: impl FnMut(u32, &mut Vec<Token>)) -> Vec<Token> {
        let mut tokens = Vec::with_capacity(self.prompt_tokens() as usize);
        for segment in &self.prompt {
            match *segment {
                Segment::Text { block, tokens: count } => {
                    tokenizer::extend_with_block(&mut tokens, block, 0..count);
                }
                Segment::Reply { seq, .. } => reply(seq, &mut tokens),
            }
        }
        tokens
    }

    /// The requests whose replies its prompt holds.
    pub(crate) fn replies(&self) -> impl Iterator<Item = u32> {
        self.prompt.iter().filter_map(|segment| match segment {
            Segment::Reply { seq, .. } => Some(*seq),
            Segment::Text { .. } => None,
        })
    }

    /// The record of it, sent and not answered yet.
    pub(crate) fn record(&self, intended_ns: u64, sent_ns: u64) -> RequestRecord {
        let mut record = RequestRecord::sent(self.seq, self.group, intended_ns, sent_ns);
        (record.session, record.turn) = (self.session, self.turn);
        record
    }

    /// The key that requests of one session have in common; without sessions, those of one prefix group. Policies that route by
    /// a key get it: live as `X-SMG-Routing-Key`, in virtual time without a header.
    #[must_use]
    pub(crate) fn routing_key(&self) -> Option<String> {
        let session = self.session.map(|session| format!("session-{session}"));
        session.or_else(|| self.group.map(|group| group.to_string()))
    }
}

/// What decides when a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// Its own time, whatever became of the others.
    Open,
    /// An answer to an earlier one: this many are in flight at any time.
    Closed {
        /// The number.
        concurrency: u32,
    },
}

/// All requests of one run. Those that wait for none are in order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The requests.
    pub requests: Vec<PlannedRequest>,
    /// What decides when they are sent.
    pub pacing: Pacing,
}

/// The plan of `scenario` with `seed`.
#[must_use]
pub(crate) fn plan(scenario: &Scenario, seed: u64) -> Plan {
    let prompts = prompts(&scenario.workload, seed);
    let starts = prompts.iter().filter(|prompt| prompt.after.is_none()).count();
    let at_ns = match (&scenario.arrival, &scenario.workload) {
        (Arrival::Trace, Workload::Trace(workload)) => replay::stamps_ns(workload, seed),
        (arrival, _) => arrivals::stamps_ns(arrival, starts, seed),
    };
    let pacing = match scenario.arrival {
        Arrival::Closed { concurrency } => Pacing::Closed { concurrency },
        _ => Pacing::Open,
    };
    let mut requests = timed(prompts, at_ns);
    if pacing == Pacing::Open && starts < requests.len() {
        requests = in_order(requests);
    }
    count_turns(&mut requests);
    Plan { requests, pacing }
}

/// Tells every request of a session its place there, in the order of the plan.
fn count_turns(requests: &mut [PlannedRequest]) {
    let mut turns: BTreeMap<u64, u32> = BTreeMap::new();
    for request in requests {
        let next = request.session.map(|session| turns.entry(session).or_default());
        request.turn = next.map(|next| {
            *next += 1;
            *next - 1
        });
    }
}

/// The prompts of a workload; predecessors come before those that wait for them.
fn prompts(workload: &Workload, seed: u64) -> Vec<Prompt> {
    match workload {
        Workload::SharedPrefix(workload) => shared_prefix::prompts(workload, seed),
        Workload::Trace(workload) => replay::prompts(workload),
        Workload::Independent(workload) => sessions::independent(workload, seed),
        Workload::PrefixTree(workload) => tree::prompts(workload, seed),
        Workload::Chat(workload) => sessions::chat(workload, seed),
        Workload::Agentic(workload) => sessions::agentic(workload, seed),
        Workload::Mix(workload) => mixed::prompts(workload, seed),
    }
}

/// Gives those that wait for none their times, and the others the earliest that they could have.
fn timed(prompts: Vec<Prompt>, starts_ns: Vec<u64>) -> Vec<PlannedRequest> {
    let mut starts_ns = starts_ns.into_iter();
    let mut requests: Vec<PlannedRequest> = Vec::with_capacity(prompts.len());
    for (prompt, seq) in prompts.into_iter().zip(0..) {
        let Prompt { group, session, segments, output_tokens, after } = prompt;
        let at_ns = match &after {
            None => starts_ns.next().unwrap_or(0),
            Some(After { seqs, think_ns }) => {
                let ends_ns = seqs.iter().map(|before| requests[*before as usize].at_ns);
                ends_ns.max().unwrap_or(0).saturating_add(*think_ns)
            }
        };
        requests.push(PlannedRequest {
            seq,
            group,
            session,
            turn: None,
            at_ns,
            prompt: segments,
            output_tokens,
            after,
        });
    }
    requests
}

/// The same requests in order of their times, and their places renamed. Nothing is due before its predecessors, and equal
/// times keep their order, so predecessors stay before those that wait for them.
fn in_order(requests: Vec<PlannedRequest>) -> Vec<PlannedRequest> {
    let mut order: Vec<u32> = (0..requests.len() as u32).collect();
    order.sort_by_key(|place| requests[*place as usize].at_ns);
    let mut places = vec![0; requests.len()];
    (0..).zip(&order).for_each(|(place, former)| places[*former as usize] = place);
    let mut requests: Vec<Option<PlannedRequest>> = requests.into_iter().map(Some).collect();
    let moved = order.iter().zip(0..).filter_map(|(former, seq)| {
        let mut request = requests[*former as usize].take()?;
        request.seq = seq;
        rename(&mut request.prompt, &mut request.after, |place| places[place as usize]);
        Some(request)
    });
    moved.collect()
}

/// Renames the places that a request names.
fn rename(prompt: &mut [Segment], after: &mut Option<After>, place: impl Fn(u32) -> u32) {
    for segment in prompt {
        if let Segment::Reply { seq, .. } = segment {
            *seq = place(*seq);
        }
    }
    if let Some(after) = after {
        after.seqs.iter_mut().for_each(|seq| *seq = place(*seq));
    }
}

/// A request that has no time yet. Places in `segments` and `after` are those in the list that it is part of.
#[derive(Debug, Clone)]
struct Prompt {
    group: Option<u32>,
    session: Option<u64>,
    segments: Box<[Segment]>,
    output_tokens: u32,
    after: Option<After>,
}

/// The name of block `index` of one kind in a run with `seed`.
fn block(seed: u64, salt: u64, index: u64) -> u64 {
    mix(mix(seed ^ mix(salt)) ^ index)
}
