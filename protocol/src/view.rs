//! A shallow reader of request bodies: what routing needs, and nothing else.
//!
//! The body is scanned once; the few fields of interest are kept as slices of it and read afterwards, each on its
//! own. Reading never fails, because judging a request is the engine's business and not the router's:
//!
//! * The order of keys and unknown fields do not matter, keys may be written with escapes, and of duplicates the last
//!   counts, as in Python. `null` is the same as absent.
//! * A field of the wrong type spoils that field only. What is passed over is not checked: `1e400`, `NaN` or a
//!   hundred thousand brackets in a field of no interest are nobody's concern here.
//! * A prompt that is no prompt is [`Prompt::Unreadable`]. So is that of a body that breaks off, has something behind
//!   its end or is no object: no engine will answer it, and its prompt should not be remembered. The other fields
//!   are what could be read.
//! * A byte order mark is passed over. What is not UTF-8 and lone halves of surrogate pairs read as U+FFFD.

mod conversation;
pub(crate) mod cursor;
mod digits;
pub(crate) mod fields;
mod find;
mod prompt;
pub(crate) mod quoted;

use std::borrow::Cow;

use cursor::{Cursor, Value};
use fields::{Fields, Sampling, number, text};
pub use prompt::{First, Prompt};

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The form of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `/v1/chat/completions`: the prompt is `tools` and `messages`, or `input_ids` in their place.
    Chat,
    /// `/v1/completions`: the prompt is `prompt`.
    Completions,
    /// SGLang's own `/generate`: the prompt is `text` or `input_ids`.
    Generate,
    /// `/v1/responses`: the prompt is `tools`, `instructions` and `input`.
    Responses,
    /// `/v1/embeddings`: the prompt is `input`.
    Embeddings,
    /// `/v1/classify`: the prompt is `input`, or else `text`.
    Classify,
    /// `/v1/rerank`: the first prompt is `query`, and `documents` follow.
    Rerank,
    /// `/v1/score`: the first prompt is `query`, and `items` follow.
    Score,
    /// A path of which nothing is known: only `model`, `stream` and `rid` are read.
    Opaque,
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
    /// `max_output_tokens`, `sampling_params.max_new_tokens`).
    pub output_budget: Option<u64>,
    /// The request id, when it is one string.
    pub rid: Option<Cow<'a, str>>,
}

impl<'a> RequestView<'a> {
    /// Reads `body`, which was sent to an endpoint of the form `dialect`. Takes time in proportion to its length,
    /// whatever is in it.
    #[must_use]
    pub fn read(dialect: Dialect, body: &'a [u8]) -> Self {
        let mut fields = Fields::default();
        let mut cursor = Cursor::new(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
        let is_whole = fields.read(&mut cursor).is_some() && cursor.peek().is_none();
        let prompt = if is_whole { prompt(dialect, &fields) } else { None };
        let (n, output_budget) = counts(dialect, &fields);
        Self {
            model: text(fields.model),
            stream: matches!(fields.stream, Some(Value::Scalar(b"true"))),
            prompt: prompt.unwrap_or(Prompt::Unreadable),
            n: n.unwrap_or(1).max(1),
            output_budget,
            rid: text(fields.rid),
        }
    }
}

/// The number of answers and the most tokens of one.
fn counts(dialect: Dialect, fields: &Fields<'_>) -> (Option<u64>, Option<u64>) {
    match dialect {
        Dialect::Generate => {
            let mut sampling = Sampling::default();
            if let Some(Value::Object(raw)) = fields.sampling_params {
                let _ = sampling.read(&mut Cursor::new(raw));
            }
            (number(sampling.n), number(sampling.max_new_tokens))
        }
        // The newer name wins, as in the engine.
        Dialect::Chat => {
            (number(fields.n), number(fields.max_completion_tokens).or(number(fields.max_tokens)))
        }
        Dialect::Completions => (number(fields.n), number(fields.max_tokens)),
        Dialect::Responses => (None, number(fields.max_output_tokens)),
        Dialect::Embeddings | Dialect::Classify | Dialect::Rerank | Dialect::Score | Dialect::Opaque => {
            (None, None)
        }
    }
}

fn prompt<'a>(dialect: Dialect, fields: &Fields<'a>) -> Option<Prompt<'a>> {
    let rendered = |text: String| Prompt::Text(Cow::Owned(text));
    match dialect {
        Dialect::Chat => match fields.input_ids.and_then(Prompt::of) {
            Some(ids @ Prompt::Tokens(_)) => Some(ids),
            _ => conversation::chat(fields).map(rendered),
        },
        Dialect::Responses => conversation::response(fields).map(rendered),
        Dialect::Completions => Prompt::of(fields.prompt?),
        Dialect::Generate => match (fields.text, fields.input_ids) {
            (Some(text), None) => Prompt::of(text).filter(Prompt::is_text),
            (None, Some(ids)) => Prompt::of(ids).filter(|prompt| !prompt.is_text()),
            // Both at once is an error for the engine to report.
            _ => None,
        },
        Dialect::Embeddings => Prompt::of(fields.input?),
        Dialect::Classify => Prompt::of(fields.input.or(fields.text)?),
        Dialect::Rerank => {
            let query = Prompt::Text(conversation::content_text(fields.query?)?);
            query.before(fields.documents.and_then(documents))
        }
        Dialect::Score => Prompt::of(fields.query?)?.before(fields.items.and_then(Prompt::of)),
        Dialect::Opaque => None,
    }
}

/// The documents of a rerank, each a text or a list of parts.
fn documents(value: Value<'_>) -> Option<Prompt<'_>> {
    let Value::Array(list) = value else { return None };
    let mut texts = Vec::new();
    Cursor::new(list).elements(|cursor| {
        texts.push(conversation::content_text(cursor.value()?)?);
        Some(())
    })?;
    Some(Prompt::Texts(texts))
}
