//! Log-probabilities: made up, and always the same for the same token at the same place. Replies are greedy, so the
//! token of a reply is the best at its place.

use protocol::sglang::{LogProb, LogProbs};
use protocol::tokenizer::{Token, block_token, decode, mix};
use simworker_core::EngineRole;

use super::failure::Failure;
use super::fields::Fields;
use super::limits;
use super::request::Order;
use crate::ticket::Ticket;

/// What is asked for about the answers to one prompt.
#[derive(Debug, Clone)]
struct Wanted {
    /// The prompt counts from this token on; none of it when there is none.
    start: Option<u64>,
    /// So many alternatives to each token.
    top: usize,
    /// These tokens at each place.
    ids: Option<Vec<Token>>,
    /// Each with its text.
    with_text: bool,
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
    /// Reads it from a body of `/generate` for so many prompts, each with `n` answers.
    pub(super) fn read(fields: &Fields<'_>, prompts: usize, n: u32) -> Result<Self, Failure> {
        for key in ["return_logprob", "logprob_start_len", "top_logprobs_num"] {
            if n > 1 && fields.is_list(key) {
                return Err(Failure::bad_request(format!(
                    "Cannot use list {key} with parallel_sample_num > 1"
                )));
            }
        }
        let are_wanted = fields.per_prompt::<bool>("return_logprob", prompts)?;
        let starts = fields.per_prompt::<i64>("logprob_start_len", prompts)?;
        let tops = fields.per_prompt::<i64>("top_logprobs_num", prompts)?;
        let tops = tops.into_iter().map(|top| alternatives(top.unwrap_or(0)));
        let tops = tops.collect::<Result<Vec<usize>, Failure>>()?;
        let ids = token_ids(fields, prompts)?;
        for ids in ids.iter().flatten() {
            limits::check("tokens in token_ids_logprob", ids.len() as u64, limits::MAX_ALTERNATIVES)?;
        }
        let with_text = fields.get_or_default("return_text_in_logprobs")?;
        let each = are_wanted.into_iter().zip(starts).zip(tops).zip(ids);
        let wanted = each.map(|(((is_wanted, start), top), ids)| {
            let start = start.and_then(|start| u64::try_from(start).ok());
            let ids = ids.filter(|ids| !ids.is_empty());
            is_wanted.unwrap_or(false).then_some(Wanted { start, top, ids, with_text })
        });
        Ok(Self { wanted: wanted.collect(), n: n as usize })
    }

    /// What an OpenAI route asks for about all answers: so many alternatives, with `echo` also to the prompt's tokens.
    pub(super) fn of_openai(top: Option<i64>, echo: bool, order: &Order) -> Result<Self, Failure> {
        let top = top.map(alternatives).transpose()?;
        let wanted =
            top.map(|top| Wanted { start: (echo && top > 0).then_some(0), top, ids: None, with_text: true });
        let n = order.n as usize;
        Ok(Self { wanted: vec![wanted; order.prompts.len()], n })
    }

    /// Refuses more of them than a worker makes for one body, where the context is so long.
    pub(super) fn check(&self, order: &Order, context_len: u32) -> Result<(), Failure> {
        let asked = self.wanted.iter().zip(order.prompts.iter().zip(&order.wishes));
        let each = asked.map(|(wanted, (prompt, wish))| {
            let Some(wanted) = wanted else { return 0 };
            let room = context_len.saturating_sub(prompt.len() as u32);
            let told = wanted.start.map_or(0, |start| (prompt.len() as u64).saturating_sub(start));
            (told + u64::from(wish.most(room))) * wanted.at_a_place() * self.n as u64
        });
        limits::check("log-probabilities in the answers to a body", each.sum(), limits::MAX_LOGPROBS)
    }

    /// Whether any prompt wants them.
    pub(super) fn are_wanted(&self) -> bool {
        self.wanted.iter().any(Option::is_some)
    }

    /// Of the prompt at a place no more than this is looked up in the cache: what is told of it has to be computed.
    pub(super) fn match_limits(&self) -> Vec<Option<u64>> {
        self.wanted.iter().map(|wanted| wanted.as_ref()?.start).collect()
    }

    /// Those of the request at a place among all answers, with the tokens `from..to` of its reply.
    pub(super) fn of(&self, index: usize, ticket: &Ticket, from: u32, to: u32) -> Option<LogProbs> {
        let wanted = self.wanted.get(index / self.n)?.as_ref()?;
        Some(wanted.of(ticket, from, &ticket.reply.ids(from, to)))
    }
}

/// `token_ids_logprob`: a list for all prompts, or one for each.
fn token_ids(fields: &Fields<'_>, prompts: usize) -> Result<Vec<Option<Vec<Token>>>, Failure> {
    let key = "token_ids_logprob";
    let is_of_integers = |failure: Failure| match failure.message.contains(" entries for ") {
        true => failure,
        false => Failure::bad_request("token_ids_logprob must be a flat list of integers."),
    };
    fields.list_per_prompt::<Token>(key, prompts).map_err(is_of_integers)
}

/// So many alternatives to each token; fewer than none are none.
fn alternatives(asked: i64) -> Result<usize, Failure> {
    let asked = u64::try_from(asked).unwrap_or(0);
    limits::check("alternatives to a token", asked, limits::MAX_ALTERNATIVES)?;
    Ok(asked as usize)
}

impl Wanted {
    /// Entries for each token.
    fn at_a_place(&self) -> u64 {
        (1 + self.top + self.ids.as_ref().map_or(0, Vec::len)) as u64
    }

    /// Those of a reply whose tokens `from..from + output.len()` are told. A decode worker has never seen the prompt's,
    /// as the prefill worker computed them.
    fn of(&self, ticket: &Ticket, from: u32, output: &[Token]) -> LogProbs {
        let prompt = &ticket.prompt[..];
        let start = match self.start {
            Some(start) if ticket.worker.config.engine.role != EngineRole::Decode => {
                usize::try_from(start).unwrap_or(usize::MAX).min(prompt.len())
            }
            _ => prompt.len(),
        };
        let input: Vec<Place> = places(&prompt[start..], start as u64, true);
        let made: Vec<Place> = places(output, prompt.len() as u64 + u64::from(from), false);
        let entries = |places: &[Place]| places.iter().map(|place| self.entry(place, place.token)).collect();
        LogProbs {
            input_token_logprobs: entries(&input),
            output_token_logprobs: entries(&made),
            output_token_logprobs_length: from as usize + output.len(),
            input_top_logprobs: self.all_tops(&input),
            output_top_logprobs: self.all_tops(&made),
            input_token_ids_logprobs: self.all_ids(&input),
            output_token_ids_logprobs: self.all_ids(&made),
        }
    }

    fn all_tops(&self, places: &[Place]) -> Option<Vec<Option<Vec<LogProb>>>> {
        (self.top > 0).then(|| places.iter().map(|place| self.tops(place)).collect())
    }

    fn all_ids(&self, places: &[Place]) -> Option<Vec<Option<Vec<LogProb>>>> {
        let ids = self.ids.as_ref()?;
        let at = |place: &Place| {
            place.is_known.then(|| ids.iter().map(|token| self.entry(place, *token)).collect())
        };
        Some(places.iter().map(at).collect())
    }

    /// The best tokens at a place, best first.
    fn tops(&self, place: &Place) -> Option<Vec<LogProb>> {
        let others = (1..self.top as u32).map(|rank| {
            let token = block_token(place.number, rank);
            let logprob = place.logprob(place.token) - f64::from(rank) / 4.0;
            LogProb(Some(logprob), token, self.text(token))
        });
        let best = std::iter::once(self.entry(place, place.token));
        place.is_known.then(|| best.chain(others).collect())
    }

    fn entry(&self, place: &Place, token: Token) -> LogProb {
        LogProb(place.is_known.then(|| place.logprob(token)), token, self.text(token))
    }

    fn text(&self, token: Token) -> Option<String> {
        self.with_text.then(|| decode(&[token]))
    }
}

/// A token and where it is among those of prompt and reply.
#[derive(Debug)]
struct Place {
    token: Token,
    number: u64,
    /// Nothing comes before the first token that is told of a prompt, so there is no probability of it.
    is_known: bool,
}

fn places(tokens: &[Token], first: u64, are_prompt: bool) -> Vec<Place> {
    let place = |(at, token): (usize, &Token)| Place {
        token: *token,
        number: first + at as u64,
        is_known: !are_prompt || at > 0,
    };
    tokens.iter().enumerate().map(place).collect()
}

impl Place {
    /// A logarithm between −8 and 0 in steps of 1/1024, which every form of number holds exactly.
    fn logprob(&self, token: Token) -> f64 {
        -((mix(self.number << 32 | u64::from(token)) % 8192) as f64) / 1024.0
    }
}
