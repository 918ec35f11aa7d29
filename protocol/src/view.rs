//! A shallow reader of request bodies: what routing needs, and nothing else.
//!
//! The body is scanned once; the few fields of interest are kept as slices of it and read afterwards, each on its
//! own. So the order of keys, duplicates (the last one counts, as in Python) and unknown fields do not matter, and
//! a field of the wrong type spoils that field only. Reading never fails: what cannot be understood is
//! [`Prompt::Unreadable`] or `None`, because judging a request is the engine's business and not the router's.

mod prompt;
mod scan;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use prompt::{First, Prompt};
use scan::{Fields, Sampling, Text, number, read};

/// The form of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `/v1/chat/completions`: the prompt is `messages`.
    Chat,
    /// `/v1/completions`: the prompt is `prompt`.
    Completions,
    /// SGLang's own `/generate`: the prompt is `text` or `input_ids`.
    Generate,
}

/// What a body says, as far as routing cares. Borrows from the body where the JSON text allows it.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView<'a> {
    /// The `model` asked for.
    pub model: Option<Cow<'a, str>>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// The prompt or prompts.
    pub prompt: Prompt<'a>,
    /// How many answers to each prompt (`n`), at least 1.
    pub n: u64,
    /// The most output tokens of one answer, when the body sets it (`max_tokens`, `max_completion_tokens`,
    /// `sampling_params.max_new_tokens`).
    pub output_budget: Option<u64>,
    /// The request id, when it is one string.
    pub rid: Option<Cow<'a, str>>,
}

impl<'a> RequestView<'a> {
    /// Reads `body`, which was sent to an endpoint of the form `dialect`.
    #[must_use]
    pub fn read(dialect: Dialect, body: &'a [u8]) -> Self {
        let fields: Fields<'a> = serde_json::from_slice(body).unwrap_or_default();
        let sampling = match dialect {
            Dialect::Generate => read::<Sampling<'a>>(fields.sampling_params).unwrap_or_default(),
            Dialect::Chat | Dialect::Completions => Sampling { n: fields.n, max_new_tokens: None },
        };
        Self {
            model: text(fields.model),
            stream: read(fields.stream).unwrap_or(false),
            prompt: prompt(dialect, &fields).unwrap_or(Prompt::Unreadable),
            n: number(sampling.n).unwrap_or(1).max(1),
            output_budget: match dialect {
                Dialect::Generate => number(sampling.max_new_tokens),
                // The newer name wins, as in the engine.
                Dialect::Chat => number(fields.max_completion_tokens).or(number(fields.max_tokens)),
                Dialect::Completions => number(fields.max_tokens),
            },
            rid: text(fields.rid),
        }
    }
}

fn prompt<'a>(dialect: Dialect, fields: &Fields<'a>) -> Option<Prompt<'a>> {
    match dialect {
        Dialect::Chat => prompt::chat(fields.messages?),
        Dialect::Completions => Prompt::deserialize(fields.prompt?).ok(),
        Dialect::Generate => {
            // `null` counts as absent; both at once is an error for the engine to report.
            let given = |raw: Option<&'a RawValue>| raw.filter(|raw| raw.get() != "null");
            match (given(fields.text), given(fields.input_ids)) {
                (Some(raw), None) => Prompt::deserialize(raw).ok().filter(Prompt::is_text),
                (None, Some(raw)) => Prompt::deserialize(raw).ok().filter(|prompt| !prompt.is_text()),
                _ => None,
            }
        }
    }
}

fn text<'a>(raw: Option<&'a RawValue>) -> Option<Cow<'a, str>> {
    read::<Text<'a>>(raw).map(|text| text.0)
}
