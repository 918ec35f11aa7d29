//! Answers that are ready before anybody asks.

use bytes::Bytes;
use protocol::embedding::{
    self, ClassifyData, ClassifyResponse, Embedding, EmbeddingObject, EmbeddingResponse, RerankEntry,
    ScoreResponse,
};
use protocol::responses::{Message, Response, ResponseUsage, Status};
use serde_json::{Value, json};

use crate::http::json_text;
use crate::reply::END_OF_TEXT;

/// Tokens of an answer whose length nobody asked for, and the most of a whole answer.
pub(super) const DEFAULT_TOKENS: u32 = 16;
/// Every prompt is said to have so many tokens.
const PROMPT_TOKENS: u32 = 32;
/// Different chunks of a stream; they repeat.
const PIECES: u32 = 64;
/// How many numbers an embedding has.
const EMBEDDING: usize = 16;

/// Which route is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat,
    Completions,
    Generate,
    Responses,
}

/// What stands in every answer of a worker.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Tells workers, and their boots, apart.
    pub(super) id: String,
    pub(super) model: String,
    /// Seconds since the epoch.
    pub(super) created: u64,
}

/// Why an answer is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It has as many tokens as were asked for.
    Length,
    /// It might have had more.
    Stop,
}

/// The whole answers of one kind.
#[derive(Debug)]
pub(super) struct Wholes {
    /// Those that reach their limit, by the number of their tokens, from 1 on.
    limited: Vec<Bytes>,
    /// The one that ends before its limit.
    longest: Bytes,
}

/// The chunks of a stream of one kind.
#[derive(Debug)]
struct Chunks {
    only: Bytes,
    first: Bytes,
    middle: Vec<Bytes>,
    last: Vec<Bytes>,
}

/// All answers of a worker that do not depend on the request.
#[derive(Debug)]
pub(super) struct Canned {
    names: Names,
    chat: Chunks,
    completions: Chunks,
    pub(super) whole_chats: Wholes,
    pub(super) whole_completions: Wholes,
    pub(super) whole_generations: Wholes,
}

/// The text of token `at`: four characters, which differ from those of its neighbours.
fn piece(at: u32) -> String {
    format!(" t{:02}", at % PIECES)
}

fn text(tokens: u32) -> String {
    (0..tokens).map(piece).collect()
}

fn usage(tokens: u32) -> Value {
    json!({
        "prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + tokens, "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": 0}, "reasoning_tokens": 0,
    })
}

fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

impl Wholes {
    /// Of what `make` says for so many tokens.
    fn new(make: impl Fn(u32, End) -> Value) -> Self {
        let text = |tokens, end| Bytes::from(make(tokens, end).to_string());
        Self {
            limited: (1..=DEFAULT_TOKENS).map(|tokens| text(tokens, End::Length)).collect(),
            longest: text(DEFAULT_TOKENS, End::Stop),
        }
    }

    /// The answer to a request for so many tokens, at least 1.
    pub(super) fn get(&self, asked: Option<u32>) -> Bytes {
        let place = asked.unwrap_or(DEFAULT_TOKENS).saturating_sub(1);
        self.limited.get(place as usize).unwrap_or(&self.longest).clone()
    }
}

impl Chunks {
    /// Of what `make` says for a token, whether it is the first, and whether it is the last.
    fn new(make: impl Fn(u32, bool, bool) -> Value) -> Self {
        let all = |last| (0..PIECES).map(|at| event(&make(at, false, last))).collect();
        Self {
            only: event(&make(0, true, true)),
            first: event(&make(0, true, false)),
            middle: all(false),
            last: all(true),
        }
    }

    fn get(&self, at: u32, total: u32) -> Bytes {
        let place = (at % PIECES) as usize;
        match (at == 0, at + 1 == total) {
            (true, true) => &self.only,
            (true, false) => &self.first,
            (false, false) => &self.middle[place],
            (false, true) => &self.last[place],
        }
        .clone()
    }
}

impl Canned {
    /// The answers of a worker with these names.
    pub(super) fn new(names: Names) -> Self {
        let n = &names;
        let chat = Chunks::new(|at, first, last| {
            let role = first.then_some("assistant");
            let delta = json!({
                "role": role, "content": piece(at), "reasoning_content": null, "tool_calls": null,
            });
            n.chunk("chat.completion.chunk", "delta", delta, last.then_some(End::Length))
        });
        let completions = Chunks::new(|at, _, last| {
            n.chunk("text_completion", "text", json!(piece(at)), last.then_some(End::Length))
        });
        let whole_chats = Wholes::new(|tokens, end| {
            let message = json!({"role": "assistant", "content": text(tokens), "reasoning_content": null});
            n.whole("chat.completion", "message", message, tokens, end)
        });
        let whole_completions =
            Wholes::new(|tokens, end| n.whole("text_completion", "text", json!(text(tokens)), tokens, end));
        let whole_generations = Wholes::new(|tokens, end| n.generation(0, tokens, Some(end)));
        Self { chat, completions, whole_chats, whole_completions, whole_generations, names }
    }

    /// Chunk `at` of a stream of `total`.
    pub(super) fn chunk(&self, kind: Kind, at: u32, total: u32) -> Bytes {
        match kind {
            Kind::Chat => self.chat.get(at, total),
            Kind::Completions => self.completions.get(at, total),
            Kind::Generate => {
                let end = (at + 1 == total).then_some(End::Length);
                event(&self.names.generation(at, at + 1, end))
            }
            Kind::Responses => {
                let delta = json!({
                    "type": "response.output_text.delta", "item_id": self.names.id, "output_index": 0,
                    "content_index": 0, "sequence_number": at + 1, "delta": piece(at), "logprobs": [],
                });
                Bytes::from(format!("event: response.output_text.delta\ndata: {delta}\n\n"))
            }
        }
    }

    /// What comes after the chunks: the usage, if it is wanted, and the end.
    pub(super) fn tail(&self, kind: Kind, total: u32, with_usage: bool) -> Bytes {
        let object = match kind {
            Kind::Chat if with_usage => "chat.completion.chunk",
            Kind::Completions if with_usage => "text_completion",
            _ => return Bytes::from_static(b"data: [DONE]\n\n"),
        };
        let Names { id, model, created } = &self.names;
        let chunk = json!({
            "id": id, "object": object, "created": created, "model": model, "choices": [], "usage": usage(total),
        });
        Bytes::from(format!("data: {chunk}\n\ndata: [DONE]\n\n"))
    }

    /// What the ids of this worker's responses begin with.
    pub(super) fn response_prefix(&self) -> String {
        format!("resp_{}_", self.names.id)
    }

    /// An answer of `/v1/responses`.
    pub(super) fn response(&self, id: &str, status: Status) -> Bytes {
        let text = text(DEFAULT_TOKENS);
        let Names { model, created, id: message, .. } = &self.names;
        let response = Response {
            status,
            output: vec![Message { status, ..Message::new(message, Some(&text)) }],
            usage: Some(ResponseUsage::new(PROMPT_TOKENS, 0, DEFAULT_TOKENS)),
            ..Response::new(id, *created, model)
        };
        json_text(&response).into()
    }

    /// An answer of `/v1/embeddings` for so many inputs.
    pub(super) fn embeddings(&self, inputs: usize) -> Bytes {
        let entry = |index| EmbeddingObject {
            embedding: Embedding::Floats(vec![0.25; EMBEDDING]),
            index,
            object: "embedding",
        };
        let data = (0..inputs).map(entry).collect();
        let usage = embedding::usage(PROMPT_TOKENS);
        json_text(&EmbeddingResponse { data, model: &self.names.model, object: "list", usage }).into()
    }

    /// An answer of `/v1/classify` for so many inputs.
    pub(super) fn classes(&self, inputs: usize) -> Bytes {
        let Names { id, model, created } = &self.names;
        let data = (0..inputs).map(|index| ClassifyData::of(index, vec![0.75, 0.25])).collect();
        let usage = embedding::usage(PROMPT_TOKENS);
        json_text(&ClassifyResponse { id, object: "list", created: *created, model, data, usage }).into()
    }

    /// An answer of `/v1/rerank` for so many documents: the first fits best.
    pub(super) fn ranks(documents: usize) -> Bytes {
        let score = |index: usize| 1.0 / (index + 1) as f64;
        let entry = |index| RerankEntry { score: score(index), document: None, index, meta_info: None };
        json_text(&(0..documents).map(entry).collect::<Vec<_>>()).into()
    }

    /// An answer of `/v1/score` for so many items.
    pub(super) fn scores(&self, items: usize) -> Bytes {
        json_text(&ScoreResponse {
            scores: vec![vec![0.75, 0.25]; items],
            pooled_hidden_states: None,
            token_logprobs: None,
            model: &self.names.model,
            usage: embedding::usage(PROMPT_TOKENS),
            object: "scoring",
        })
        .into()
    }
}

impl Names {
    fn choice(member: &str, value: Value, end: Option<End>) -> Value {
        let (reason, matched) = match end {
            None => (None, None),
            Some(End::Length) => (Some("length"), None),
            Some(End::Stop) => (Some("stop"), Some(END_OF_TEXT)),
        };
        json!({
            "index": 0, member: value, "logprobs": null, "finish_reason": reason, "matched_stop": matched,
        })
    }

    fn chunk(&self, object: &str, member: &str, value: Value, end: Option<End>) -> Value {
        let Self { id, model, created } = self;
        json!({
            "id": id, "object": object, "created": created, "model": model,
            "choices": [Self::choice(member, value, end)], "usage": null,
        })
    }

    fn whole(&self, object: &str, member: &str, value: Value, tokens: u32, end: End) -> Value {
        let mut answer = self.chunk(object, member, value, Some(end));
        answer["usage"] = usage(tokens);
        answer["metadata"] = json!({"weight_version": "default"});
        answer
    }

    /// The part `from..to` of a generation, as SGLang writes it with `--incremental-streaming-output`.
    fn generation(&self, from: u32, to: u32, end: Option<End>) -> Value {
        let reason = end.map(|end| match end {
            End::Length => json!({"type": "length", "length": to}),
            End::Stop => json!({"type": "stop", "matched": END_OF_TEXT}),
        });
        json!({
            "text": (from..to).map(piece).collect::<String>(),
            "output_ids": (from..to).map(|at| at % PIECES).collect::<Vec<_>>(),
            "meta_info": {
                "id": self.id, "finish_reason": reason, "prompt_tokens": PROMPT_TOKENS,
                "weight_version": "default", "num_retractions": 0, "reasoning_tokens": 0,
                "completion_tokens": to, "cached_tokens": 0, "cached_tokens_details": {"device": 0, "host": 0},
                "dp_rank": 0,
            },
        })
    }
}
