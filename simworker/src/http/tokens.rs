//! `/tokenize` and `/detokenize`, with the mock's tokenizer.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use protocol::tokenizer::{Token, decode, encode};
use protocol::view::{Dialect, Prompt, RequestView};
use serde_json::{Value, json};

use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use crate::worker::Worker;

/// Ids of a text or of each of several; of a conversation, those of the prompt that the chat route would make of it.
pub(super) async fn tokenize(State(worker): State<Arc<Worker>>, body: Bytes) -> Response {
    let context_len = worker.config.engine.context_len;
    answer(
        ids(&body)
            .map(|(tokens, count)| json!({ "tokens": tokens, "count": count, "max_model_len": context_len })),
    )
}

/// The text of ids, or the texts of several lists of them.
pub(super) async fn detokenize(body: Bytes) -> Response {
    answer(text(&body).map(|text| json!({ "text": text })))
}

fn answer(value: Result<Value, Failure>) -> Response {
    value.map_or_else(|failure| failure.response(Api::OpenAi), |value| super::json(&value))
}

fn ids(body: &[u8]) -> Result<(Value, Value), Failure> {
    let fields = Fields::parse(body)?;
    let of = |text: &str| {
        let ids = encode(text);
        (json!(ids), json!(ids.len()))
    };
    match fields.get::<OneOrMany<String>>("prompt")? {
        Some(OneOrMany::One(text)) => Ok(of(&text)),
        Some(OneOrMany::Many(texts)) => Ok(texts.iter().map(|text| of(text)).unzip::<_, _, Vec<_>, Vec<_>>())
            .map(|(ids, counts)| (json!(ids), json!(counts))),
        None => match RequestView::read(Dialect::Chat, body).prompt {
            Prompt::Text(text) => Ok(of(&text)),
            _ => Err(Failure::bad_request("prompt: a text or a list of texts is needed.")),
        },
    }
}

fn text(body: &[u8]) -> Result<Value, Failure> {
    match Fields::parse(body)?.get::<Lists>("tokens")? {
        Some(Lists::One(ids)) => Ok(json!(decode(&ids))),
        Some(Lists::Many(lists)) => Ok(lists.iter().map(|ids| json!(decode(ids))).collect()),
        None => Err(Failure::bad_request("tokens: a list of ids or a list of such lists is needed.")),
    }
}

/// A list of ids, or several.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Lists {
    One(Vec<Token>),
    Many(Vec<Vec<Token>>),
}
