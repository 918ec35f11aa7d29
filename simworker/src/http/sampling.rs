//! How a reply is to be sampled: the one reader for all dialects, which spell a few words in their own ways.

use std::sync::Arc;

use protocol::tokenizer::Token;
use serde_json::Number;

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};
use super::limits;
use crate::reply::{Output, Stops, Wish};

/// `max_new_tokens` when it is not given.
const DEFAULT_GENERATE: u32 = 128;
/// `max_tokens` of a completion when it is not given.
const DEFAULT_COMPLETION: u32 = 16;

/// Whose words a body uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `sampling_params` of `/generate`.
    Native,
    Completions,
    Chat,
    Responses,
}

/// What is said about the replies to a prompt.
#[derive(Debug, Clone)]
pub(super) struct Sampling {
    pub(super) wish: Wish,
    /// Replies to each prompt.
    pub(super) n: u32,
}

/// A parameter that the mock does not follow, but checks as SGLang does.
struct Rule {
    key: &'static str,
    holds: fn(f64) -> bool,
    must: &'static str,
    is_whole: bool,
}

const RULES: [Rule; 7] = [
    Rule::of("temperature", |value| value >= 0.0, "a non-negative finite number"),
    Rule::of("top_p", |value| value > 0.0 && value <= 1.0, "in (0, 1]"),
    Rule::of("min_p", |value| (0.0..=1.0).contains(&value), "in [0, 1]"),
    Rule { is_whole: true, ..Rule::of("top_k", is_top_k, "-1 (disable) or at least 1") },
    Rule::of("frequency_penalty", |value| (-2.0..=2.0).contains(&value), "in [-2, 2]"),
    Rule::of("presence_penalty", |value| (-2.0..=2.0).contains(&value), "in [-2, 2]"),
    Rule::of("repetition_penalty", |value| value > 0.0 && value <= 2.0, "in (0, 2] (1.0 = no penalty)"),
];

fn is_top_k(value: f64) -> bool {
    value == -1.0 || value >= 1.0
}

impl Rule {
    const fn of(key: &'static str, holds: fn(f64) -> bool, must: &'static str) -> Self {
        Self { key, holds, must, is_whole: false }
    }

    fn check(&self, fields: &Fields<'_>, spelling: Spelling) -> Result<(), Failure> {
        let Some(given) = fields.get::<Number>(self.key)? else { return Ok(()) };
        let value = given.as_f64().unwrap_or(f64::NAN);
        if (self.holds)(value) {
            return Ok(());
        }
        // The OpenAI routes have made a float of it.
        let is_float = spelling != Spelling::Native && !self.is_whole;
        let shown = if is_float { format!("{value:?}") } else { given.to_string() };
        Err(Failure::bad_request(format!("{} must be {}, got {shown}.", self.key, self.must)))
    }
}

impl Sampling {
    /// What counts when nothing is said.
    pub(super) fn unsaid(spelling: Spelling) -> Self {
        let output = spelling.default_output();
        Self { wish: Wish { output, ignore_eos: false, ..Wish::exactly(0) }, n: 1 }
    }

    /// Reads it and checks it.
    pub(super) fn read(fields: &Fields<'_>, spelling: Spelling) -> Result<Self, Failure> {
        let output = output(fields, spelling)?;
        let min_tokens = min_tokens(fields, spelling, output)?;
        RULES.iter().try_for_each(|rule| rule.check(fields, spelling))?;
        let stops = Arc::new(Stops {
            texts: stop_texts(fields)?,
            tokens: stop_tokens(fields)?,
            min_tokens,
            are_shown: fields.get_or_default("no_stop_trim")?,
        });
        // What else changes the text changes nothing here: there are no special tokens.
        let _: bool = fields.get_or_default("skip_special_tokens")?;
        let ignore_eos = fields.get_or_default("ignore_eos")?;
        let n = fields.get("n")?.unwrap_or(1);
        Ok(Self { wish: Wish { output, ignore_eos, stops, script: None }, n })
    }

    /// Reads `sampling_params`: one for all prompts, or one for each. The number of replies must be the same for all.
    pub(super) fn read_native(fields: &Fields<'_>) -> Result<OneOrMany<Self>, Failure> {
        let read = |params: &Fields<'_>| Self::read(params, Spelling::Native).map_err(Failure::later);
        match fields.objects("sampling_params")? {
            None => Ok(OneOrMany::One(Self::unsaid(Spelling::Native))),
            Some(OneOrMany::One(params)) => read(&params).map(OneOrMany::One),
            Some(OneOrMany::Many(all)) => {
                let all = all.iter().map(read).collect::<Result<Vec<_>, _>>()?;
                if all.iter().any(|one| one.n != all[0].n) {
                    let differ =
                        "The parallel_sample_num should be the same for all samples in sample params.";
                    return Err(Failure::bad_request(differ));
                }
                Ok(OneOrMany::Many(all))
            }
        }
    }
}

impl Spelling {
    /// The members that bound the reply; the first that is given counts.
    fn budgets(self) -> &'static [&'static str] {
        match self {
            Self::Native => &["max_new_tokens"],
            Self::Completions => &["max_tokens"],
            Self::Chat => &["max_completion_tokens", "max_tokens"],
            Self::Responses => &["max_output_tokens"],
        }
    }

    fn default_output(self) -> Output {
        match self {
            Self::Native => Output::Tokens(DEFAULT_GENERATE),
            Self::Completions => Output::Tokens(DEFAULT_COMPLETION),
            Self::Chat | Self::Responses => Output::Open,
        }
    }
}

fn output(fields: &Fields<'_>, spelling: Spelling) -> Result<Output, Failure> {
    let given = spelling.budgets().iter().map(|key| fields.get::<i64>(key));
    let given = given.collect::<Result<Vec<_>, _>>()?;
    let first = match (spelling, given.as_slice()) {
        // Nothing and 0 are the same to the newer name, as to Python's `or`.
        (Spelling::Chat, [newer, older]) => newer.filter(|tokens| *tokens != 0).or(*older),
        _ => given.first().copied().flatten(),
    };
    match (first, spelling) {
        // Said to be nothing, which is not the same as not said.
        (None, Spelling::Native) if fields.is_null("max_new_tokens") => Ok(Output::Open),
        (None, _) => Ok(spelling.default_output()),
        (Some(..=0), Spelling::Completions) => Err(Failure::schema("max_tokens must be positive")),
        // Room for the two tokens that some templates begin and end with, whether there are any or not.
        (Some(tokens), Spelling::Responses) if tokens >= 2 => Ok(tokens_of(tokens - 2)),
        (Some(tokens), _) if tokens < 0 || spelling == Spelling::Responses => {
            let tokens = if spelling == Spelling::Responses { tokens - 2 } else { tokens };
            Err(Failure::bad_request(format!("max_new_tokens must be at least 0, got {tokens}.")))
        }
        (Some(tokens), _) => Ok(tokens_of(tokens)),
    }
}

fn tokens_of(tokens: i64) -> Output {
    Output::Tokens(u32::try_from(tokens).unwrap_or(u32::MAX))
}

fn min_tokens(fields: &Fields<'_>, spelling: Spelling, output: Output) -> Result<u32, Failure> {
    let key = if spelling == Spelling::Native { "min_new_tokens" } else { "min_tokens" };
    let least: i64 = fields.get_or_default(key)?;
    let wrong = |range: &str| {
        Err(Failure::bad_request(format!("min_new_tokens must be in [0, {range}], got {least}.")))
    };
    match (u32::try_from(least), output) {
        (Err(_), _) => wrong("max_new_tokens"),
        (Ok(least), Output::Tokens(most)) if least > most => wrong(&format!("max_new_tokens({most})")),
        (Ok(least), _) => Ok(least),
    }
}

fn stop_texts(fields: &Fields<'_>) -> Result<Vec<Arc<str>>, Failure> {
    let texts = match fields.get::<OneOrMany<String>>("stop")? {
        None => Vec::new(),
        Some(OneOrMany::One(text)) => vec![text],
        Some(OneOrMany::Many(texts)) => texts,
    };
    limits::check("stop strings", texts.len() as u64, limits::MAX_STOPS)?;
    let longest = texts.iter().map(String::len).max().unwrap_or(0);
    limits::check("bytes of a stop string", longest as u64, limits::MAX_STOP_BYTES)?;
    Ok(texts.into_iter().map(Arc::from).collect())
}

fn stop_tokens(fields: &Fields<'_>) -> Result<Vec<Token>, Failure> {
    let ids: Vec<Option<i64>> = fields.get_or_default("stop_token_ids")?;
    // One that no token has matches none.
    Ok(ids.into_iter().flatten().filter_map(|id| Token::try_from(id).ok()).collect())
}
