//! `/tokenize` and `/detokenize`, with the mock's tokenizer.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::tokenizer::{Token, decode, encode};
use protocol::view::{Dialect, Prompt, RequestView};
use serde_json::{Value, json};

use super::body::WholeBody;
use super::failure::{Api, Failure};
use super::fields::{Fields, OneOrMany};
use super::openai;
use crate::worker::Worker;

/// Ids of a text or of each of several; of a conversation, those of the prompt that the chat route would make of it.
pub(super) async fn tokenize(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    let context_len = worker.config.engine.context_len;
    answer(
        openai::check_content_type(&headers)
            .and_then(|()| ids(&body))
            .map(|(tokens, count)| json!({ "tokens": tokens, "count": count, "max_model_len": context_len })),
    )
}

/// The text of ids, or the texts of several lists of them.
pub(super) async fn detokenize(headers: HeaderMap, WholeBody(body): WholeBody) -> Response {
    let text = openai::check_content_type(&headers).and_then(|()| text(&body));
    answer(text.map(|text| json!({ "text": text })))
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
    // A conversation comes before a prompt.
    let prompt = if fields.has("messages") { None } else { fields.get::<OneOrMany<String>>("prompt")? };
    match prompt {
        Some(OneOrMany::One(text)) => Ok(of(&text)),
        Some(OneOrMany::Many(texts)) => Ok(texts.iter().map(|text| of(text)).unzip::<_, _, Vec<_>, Vec<_>>())
            .map(|(ids, counts)| (json!(ids), json!(counts))),
        None => match RequestView::read(Dialect::Chat, body).prompt {
            Prompt::Text(text) => Ok(of(&text)),
            _ => Err(Failure::bad_request(
                "Invalid prompt type: <class 'NoneType'>. Expected str or List[str].",
            )),
        },
    }
}

fn text(body: &[u8]) -> Result<Value, Failure> {
    match Fields::parse(body)?.get::<Lists>("tokens")? {
        Some(Lists::One(ids)) => Ok(json!(decode(&ids))),
        Some(Lists::Many(lists)) => Ok(lists.iter().map(|ids| json!(decode(ids))).collect()),
        None => Err(Failure::schema("tokens: Field required")),
    }
}

/// A list of ids, or several.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Lists {
    One(Vec<Token>),
    Many(Vec<Vec<Token>>),
}
