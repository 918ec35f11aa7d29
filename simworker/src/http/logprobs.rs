//! Log-probabilities of `/generate`: made up, and always the same for the same token at the same place.

use protocol::sglang::{LogProb, LogProbs};
use protocol::tokenizer::{Token, mix};
use simworker_core::EngineRole;

use super::failure::Failure;
use super::fields::Fields;
use crate::ticket::Ticket;

/// What a body asks for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// The prompt counts from this token on; none of it when negative.
    start: i64,
    /// So many alternatives to each token.
    top: usize,
    /// These tokens at each place.
    ids: Option<Vec<Token>>,
}

impl Wanted {
    /// None when the body asks for none.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Option<Self>, Failure> {
        if !fields.get_or_default::<bool>("return_logprob")? {
            return Ok(None);
        }
        Ok(Some(Self {
            start: fields.get("logprob_start_len")?.unwrap_or(-1),
            top: fields.get::<u16>("top_logprobs_num")?.map_or(0, usize::from),
            ids: fields.get("token_ids_logprob")?,
        }))
    }

    /// Those of a reply whose tokens `from..from + output.len()` are told. A decode worker has never seen the prompt's,
    /// as the prefill worker computed them.
    pub(super) fn of(&self, ticket: &Ticket, from: u32, output: &[Token]) -> LogProbs {
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
