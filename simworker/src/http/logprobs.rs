//! Log-probabilities of `/generate`: made up, and always the same for the same token at the same place.

use protocol::sglang::{LogProb, LogProbs};
use protocol::tokenizer::{Token, mix};
use simworker_core::EngineRole;

use super::failure::Failure;
use super::fields::Fields;
use crate::ticket::Ticket;

/// What is asked for about the answers to one prompt.
#[derive(Debug)]
struct Wanted {
    /// The prompt counts from this token on; none of it when negative.
    start: i64,
    /// So many alternatives to each token.
    top: usize,
    /// These tokens at each place.
    ids: Option<Vec<Token>>,
}

/// What a body asks for, prompt by prompt.
#[derive(Debug)]
pub(super) struct Logprobs {
    /// None for prompts that want none.
    wanted: Vec<Option<Wanted>>,
    /// Answers to each prompt.
    n: usize,
}

impl Logprobs {
    /// Reads it for so many prompts, each with `n` answers.
    pub(super) fn read(fields: &Fields<'_>, prompts: usize, n: u32) -> Result<Self, Failure> {
        let are_wanted = fields.per_prompt::<bool>("return_logprob", prompts)?;
        let starts = fields.per_prompt::<i64>("logprob_start_len", prompts)?;
        let tops = fields.per_prompt::<u16>("top_logprobs_num", prompts)?;
        let ids = fields.list_per_prompt::<Token>("token_ids_logprob", prompts)?;
        let each = are_wanted.into_iter().zip(starts).zip(tops).zip(ids);
        let wanted = each.map(|(((is_wanted, start), top), ids)| {
            let top = top.map_or(0, usize::from);
            is_wanted.unwrap_or(false).then(|| Wanted { start: start.unwrap_or(-1), top, ids })
        });
        Ok(Self { wanted: wanted.collect(), n: n as usize })
    }

    /// Those of the request at a place among all answers, as [`Wanted::of`].
    pub(super) fn of(&self, index: usize, ticket: &Ticket, from: u32, output: &[Token]) -> Option<LogProbs> {
        let wanted = self.wanted.get(index / self.n)?.as_ref()?;
        Some(wanted.of(ticket, from, output))
    }
}

impl Wanted {
    /// Those of a reply whose tokens `from..from + output.len()` are told. A decode worker has never seen the prompt's,
    /// as the prefill worker computed them.
    fn of(&self, ticket: &Ticket, from: u32, output: &[Token]) -> LogProbs {
        let prompt = &ticket.prompt[..];
        let start = match usize::try_from(self.start) {
            Ok(start) if ticket.worker.config.engine.role != EngineRole::Decode => start.min(prompt.len()),
            _ => prompt.len(),
        };
        let input = || prompt[start..].iter().zip(start as u64..).map(|(token, place)| (*token, place));
        let first = prompt.len() as u64 + u64::from(from);
        let made = || output.iter().zip(first..).map(|(token, place)| (*token, place));
        // Nothing comes before the first token, so there is no probability of it.
        let given = input().enumerate().map(|(at, (token, place))| entry(token, place, at > 0));
        LogProbs {
            input_token_logprobs: given.collect(),
            output_token_logprobs: made().map(|(token, place)| entry(token, place, true)).collect(),
            output_token_logprobs_length: from as usize + output.len(),
            input_top_logprobs: (self.top > 0).then(|| {
                input()
                    .enumerate()
                    .map(|(at, (_, place))| (at > 0).then(|| self.alternatives(place)))
                    .collect()
            }),
            output_top_logprobs: (self.top > 0)
                .then(|| made().map(|(_, place)| Some(self.alternatives(place))).collect()),
            input_token_ids_logprobs: self.ids.as_ref().map(|ids| {
                input().enumerate().map(|(at, (_, place))| (at > 0).then(|| of_ids(ids, place))).collect()
            }),
            output_token_ids_logprobs: self
                .ids
                .as_ref()
                .map(|ids| made().map(|(_, place)| Some(of_ids(ids, place))).collect()),
        }
    }

    fn alternatives(&self, place: u64) -> Vec<LogProb> {
        (0..self.top as u32).map(|token| entry(token, place, true)).collect()
    }
}

fn of_ids(ids: &[Token], place: u64) -> Vec<LogProb> {
    ids.iter().map(|token| entry(*token, place, true)).collect()
}

/// A logarithm between −8 and 0 in steps of 1/1024, which every form of number holds exactly.
fn entry(token: Token, place: u64, is_known: bool) -> LogProb {
    let logprob = -((mix(place << 32 | u64::from(token)) % 8192) as f64) / 1024.0;
    LogProb(is_known.then_some(logprob), token, None)
}
