//! What is sent and when: a scenario and a seed become a plan.
//!
//! A plan is a pure function of the scenario and the seed. Every component (order, popularity, match ratios, arrivals,
//! jitter) draws from a stream of its own, so changing one does not move another. Prompts are runs of named blocks of
//! generated text, not tokens: a million requests fit in memory, and prompts share a prefix exactly where they share
//! blocks.

mod arrivals;
pub(crate) mod draws;
pub(crate) mod mishaps;
mod replay;
mod shared_prefix;
pub mod trace;

#[cfg(test)]
mod real_traces;
#[cfg(test)]
mod sample;

use protocol::tokenizer::{self, Token};

use crate::scenario::{Arrival, Scenario, Workload};

/// A run of tokens: the first ones of a named block of generated text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The block's name; `protocol::tokenizer::block_token(block, i)` is its token `i`.
    pub block: u64,
    /// How many of its tokens.
    pub tokens: u32,
}

/// One request of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRequest {
    /// Its place in the order of arrival, from 0.
    pub seq: u64,
    /// Its prefix group, if the workload has groups.
    pub group: Option<u32>,
    /// When it is to be sent, in nanoseconds since the start; 0 under closed pacing.
    pub at_ns: u64,
    /// The prompt.
    pub prompt: Box<[Segment]>,
    /// Exact length of the reply, in tokens.
    pub output_tokens: u32,
}

impl PlannedRequest {
    /// Length of the prompt, in tokens.
    #[must_use]
    pub fn prompt_tokens(&self) -> u32 {
        self.prompt.iter().map(|segment| segment.tokens).sum()
    }

    /// The prompt, token by token.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        let mut tokens = Vec::with_capacity(self.prompt_tokens() as usize);
        for segment in &self.prompt {
            tokens.extend((0..segment.tokens).map(|i| tokenizer::block_token(segment.block, i)));
        }
        tokens
    }
}

/// What decides when a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pacing {
    /// Its own time, whatever became of the others.
    Open,
    /// An answer to an earlier one: this many are in flight at any time.
    Closed {
        /// The number.
        concurrency: u32,
    },
}

/// All requests of one run, in order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The requests.
    pub requests: Vec<PlannedRequest>,
    /// What decides when they are sent.
    pub pacing: Pacing,
}

/// The plan of `scenario` with `seed`.
#[must_use]
pub fn plan(scenario: &Scenario, seed: u64) -> Plan {
    let prompts = match &scenario.workload {
        Workload::SharedPrefix(workload) => shared_prefix::prompts(workload, seed),
        Workload::Trace(workload) => replay::prompts(workload),
    };
    let at_ns = match (scenario.arrival, &scenario.workload) {
        (Arrival::Trace, Workload::Trace(workload)) => replay::stamps_ns(workload, seed),
        (arrival, _) => arrivals::stamps_ns(arrival, prompts.len(), seed),
    };
    let requests = prompts.into_iter().zip(at_ns).zip(0..).map(|((prompt, at_ns), seq)| {
        let Prompt { group, segments, output_tokens } = prompt;
        PlannedRequest { seq, group, at_ns, prompt: segments, output_tokens }
    });
    let pacing = match scenario.arrival {
        Arrival::Closed { concurrency } => Pacing::Closed { concurrency },
        _ => Pacing::Open,
    };
    Plan { requests: requests.collect(), pacing }
}

/// A request that has no time yet.
#[derive(Debug)]
struct Prompt {
    group: Option<u32>,
    segments: Box<[Segment]>,
    output_tokens: u32,
}
