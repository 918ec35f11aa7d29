//! A query with each of several texts.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use protocol::embedding::{RerankEntry, ScoreResponse, usage};
use protocol::tokenizer::{Token, encode};
use protocol::view::Prompt;
use serde::Deserialize;

use super::{Prefilled, check_model, meta};
use crate::http::body::WholeBody;
use crate::http::failure::{Api, Failure};
use crate::http::fields::Fields;
use crate::http::{json, limits, openai};
use crate::vectors::{fit, log_probability, logits, softmax};
use crate::worker::Worker;

pub(super) async fn rerank(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    Api::OpenAi.respond(answer_rerank(&worker, &headers, &body).await)
}

async fn answer_rerank(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    let fields = openai::fields(headers, body)?;
    let query = required::<Content>(&fields, "query")?.text();
    let documents: Vec<String> =
        required::<Vec<Content>>(&fields, "documents")?.into_iter().map(Content::text).collect();
    let top_n: Option<i64> = fields.get("top_n")?;
    if top_n.is_some_and(|most| most < 1) {
        return Err(Failure::schema("top_n: Value error, Value must be greater than 0."));
    }
    check_texts(&query, &documents)?;
    check_model(worker)?;
    let with_documents = fields.get("return_documents")?.unwrap_or(true);
    let query = encode(&query);
    check_size(query.len(), documents.iter().map(String::len))?;
    let pair = |document: &String| [query.as_slice(), &encode(document)].concat();
    let prompt = Prompt::TokenLists(documents.iter().map(pair).collect());
    let prefilled = Prefilled::run(worker, headers, &fields, prompt).await?;
    let mut entries: Vec<RerankEntry<'_>> = (0..)
        .zip(&prefilled.inputs)
        .zip(&documents)
        .map(|((index, one), document)| RerankEntry {
            score: fit(&one.0.prompt),
            document: with_documents.then_some(document.as_str()),
            index,
            meta_info: Some(meta(one)),
        })
        .collect();
    entries.sort_by(|a, b| b.score.total_cmp(&a.score));
    entries.truncate(top_n.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX));
    Ok(json(&entries))
}

/// A text, or parts of which those that are text count.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl Content {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().map(|part| part.text).collect(),
        }
    }
}

fn required<T: for<'a> Deserialize<'a>>(fields: &Fields<'_>, key: &str) -> Result<T, Failure> {
    fields.get(key)?.ok_or_else(|| Failure::schema(format!("{key}: Field required")))
}

fn check_texts(query: &str, documents: &[String]) -> Result<(), Failure> {
    let wrong = if query.is_empty() {
        "Query cannot be empty"
    } else if query.trim().is_empty() {
        "Query cannot be empty or whitespace only"
    } else if documents.is_empty() {
        "Documents cannot be empty"
    } else {
        match documents.iter().find(|document| document.trim().is_empty()) {
            None => return Ok(()),
            Some(document) if document.is_empty() => "Each document must be a non-empty string",
            Some(_) => "Each document cannot be empty or whitespace only",
        }
    };
    Err(Failure::bad_request(wrong))
}

/// One text or many, as words or as tokens.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Items {
    One(String),
    Texts(Vec<String>),
    Lists(Vec<Vec<Token>>),
}

/// The text before each item.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Query {
    Text(String),
    Tokens(Vec<Token>),
}

/// The tokens whose probabilities are asked for: the same for all items, or each its own.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Labels {
    Same(Vec<i64>),
    Own(Vec<Vec<i64>>),
}

pub(super) async fn score(
    State(worker): State<Arc<Worker>>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Response {
    Api::OpenAi.respond(answer_score(&worker, &headers, &body).await)
}

async fn answer_score(worker: &Arc<Worker>, headers: &HeaderMap, body: &[u8]) -> Result<Response, Failure> {
    let fields = openai::fields(headers, body)?;
    let makes_text = !worker.config.wire.is_embedding;
    let with_softmax: bool = fields.get_or_default("apply_softmax")?;
    let with_logprobs: bool = fields.get_or_default("return_token_logprobs")?;
    if with_logprobs && !makes_text {
        return Err(Failure::bad_request("return_token_logprobs is only supported for CausalLM models"));
    }
    let labels: Option<Labels> = fields.get("label_token_ids")?;
    if makes_text && labels.is_none() {
        let message = "label_token_ids is required for generation (CausalLM) models.";
        return Err(Failure::bad_request(message));
    }
    let items = fields.get("items")?.ok_or_else(|| Failure::bad_request("items must be provided"))?;
    let inputs = pairs(fields.get("query")?, items, fields.get_or_default("item_first")?)?;
    let labels = labels.filter(|_| makes_text).map(|labels| each(labels, inputs.len())).transpose()?;
    let model: String = fields.get_or_default("model")?;
    let mut tokens = 0;
    let mut logprobs: Vec<Vec<f64>> = Vec::new();
    if !inputs.is_empty() {
        let prefilled = Prefilled::run(worker, headers, &fields, Prompt::TokenLists(inputs)).await?;
        tokens = prefilled.tokens();
        logprobs = (0..)
            .zip(&prefilled.inputs)
            .map(|(at, (ticket, _)): (usize, _)| match &labels {
                Some(labels) => {
                    labels[at].iter().map(|label| log_probability(&ticket.prompt, *label)).collect()
                }
                None => logits(&ticket.prompt),
            })
            .collect();
    }
    let score = |row: &Vec<f64>| match (with_softmax, makes_text) {
        (true, _) => softmax(row),
        (false, true) => row.iter().map(|logprob| logprob.exp()).collect(),
        (false, false) => row.clone(),
    };
    Ok(json(&ScoreResponse {
        scores: logprobs.iter().map(score).collect(),
        pooled_hidden_states: None,
        token_logprobs: with_logprobs.then(|| logprobs.clone()),
        model: if model.is_empty() { "default" } else { &model },
        usage: usage(tokens),
        object: "scoring",
    }))
}

/// Bounds what is made of a query of so many tokens, or bytes, and of texts of so many.
fn check_size(query: usize, texts: impl ExactSizeIterator<Item = usize>) -> Result<(), Failure> {
    let pairs = texts.len() as u64;
    limits::check("requests in a body", pairs, limits::MAX_REQUESTS)?;
    let tokens = texts.map(|text| text as u64).sum::<u64>() + query as u64 * pairs;
    limits::check("tokens of queries and texts", tokens, limits::MAX_PAIRED_TOKENS)
}

/// The tokens of the query and of an item in a row, for each item.
fn pairs(query: Option<Query>, items: Items, item_first: bool) -> Result<Vec<Vec<Token>>, Failure> {
    let in_order = |query: &str, item: &str| {
        encode(&if item_first { format!("{item}{query}") } else { format!("{query}{item}") })
    };
    let before = match &query {
        None => 0,
        Some(Query::Text(text)) => text.len(),
        Some(Query::Tokens(tokens)) => tokens.len(),
    };
    match &items {
        Items::One(item) => check_size(before, [item.len()].into_iter())?,
        Items::Texts(items) => check_size(before, items.iter().map(String::len))?,
        Items::Lists(items) => check_size(before, items.iter().map(Vec::len))?,
    }
    Ok(match (query, items) {
        (None, Items::One(item)) => vec![encode(&item)],
        (None, Items::Texts(items)) => items.iter().map(|item| encode(item)).collect(),
        (None, Items::Lists(items)) => items,
        (Some(Query::Text(query)), Items::One(item)) => vec![in_order(&query, &item)],
        (Some(Query::Text(query)), Items::Texts(items)) => {
            items.iter().map(|item| in_order(&query, item)).collect()
        }
        (Some(Query::Tokens(query)), Items::Lists(items)) => {
            let both = |item: Vec<Token>| {
                if item_first { [item, query.clone()].concat() } else { [query.clone(), item].concat() }
            };
            items.into_iter().map(both).collect()
        }
        (Some(_), Items::Lists(items)) if items.is_empty() => Vec::new(),
        (Some(_), _) => {
            let message = "Invalid combination of query/items types for score_request.";
            return Err(Failure::bad_request(message));
        }
    })
}

/// The labels of each of so many items.
fn each(labels: Labels, items: usize) -> Result<Vec<Vec<Token>>, Failure> {
    let all = match labels {
        Labels::Same(labels) if labels.is_empty() => {
            return Err(Failure::bad_request("label_token_ids must be a nonempty list"));
        }
        Labels::Same(labels) => {
            let asked = labels.len() as u64 * items as u64;
            limits::check("log-probabilities in the answers to a body", asked, limits::MAX_LOGPROBS)?;
            vec![labels; items]
        }
        Labels::Own(lists) if lists.len() != items => {
            return Err(Failure::bad_request("label_token_ids must have one list per item"));
        }
        Labels::Own(lists) => lists,
    };
    all.iter().map(|labels| candidates(labels).map_err(Failure::bad_request)).collect()
}

/// The labels of one item, or what is wrong with them.
fn candidates(labels: &[i64]) -> Result<Vec<Token>, &'static str> {
    if labels.is_empty() {
        return Err("each item must have a nonempty candidate list");
    }
    let read: Option<Vec<Token>> = labels.iter().map(|label| Token::try_from(*label).ok()).collect();
    let read = read.ok_or("label_token_ids must contain nonnegative integers")?;
    let distinct: HashSet<Token> = read.iter().copied().collect();
    if distinct.len() == read.len() {
        Ok(read)
    } else {
        Err("label_token_ids must not contain duplicate tokens")
    }
}
