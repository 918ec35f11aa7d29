//! `/model_info` and `/server_info`: what the router answers to those who take it for a server.
//!
//! Tools that measure a server read `internal_states`, `max_total_num_tokens` and the like from `/server_info`. They get
//! the fields of the first healthy worker that answers. What is the router's own stands under `router`, with every worker
//! and what it says of itself; beside it stand the three fields that the gateway's answer has.

use std::collections::HashMap;
use std::sync::Arc;

use http::Uri;
use router_core::Role;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::ask::{self, Question, Told};
use super::{Answering, Asked, reply};
use crate::error::{Answer, Refusal};
use crate::shared::Shared;

/// Longest info of one worker that is told beside the first one's, and of all together, in bytes.
const MAX_INFO: usize = 64 << 10;
const MAX_INFOS: usize = 4 << 20;

/// What an engine tells of itself and should not: it answers with all its arguments.
const SECRETS: [&str; 4] = ["api_key", "admin_api_key", "ssl_keyfile_password", "ssl_key_password"];

/// One worker under `router`.
#[derive(Debug, Serialize)]
struct Row {
    url: String,
    /// `null` until it has told.
    model: Option<String>,
    healthy: bool,
    /// What it says of itself; left out where that is long or was not to be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Value>,
}

/// `GET /model_info`: a healthy worker's answer as it is.
pub(crate) fn model_info(asked: Asked) -> Answering {
    let question = Question::get(&asked, Uri::from_static("/model_info"));
    let question = question.or(Uri::from_static("/get_model_info"));
    Box::pin(async move {
        let members = match ask::healthy(&asked.context.shared) {
            Ok(members) => members,
            Err(refusal) => return refusal.answer(),
        };
        Asked::wait(&asked.turn, async {
            match ask::any(&asked.context, members, question).await {
                Some((_, said)) => reply::text("application/json", said.body),
                None => Refusal::NoWorkerAnswered.answer(),
            }
        })
        .await
    })
}

/// `GET /server_info`.
pub(crate) fn server_info(asked: Asked) -> Answering {
    let question = Question::get(&asked, Uri::from_static("/server_info"));
    let question = question.or(Uri::from_static("/get_server_info"));
    Box::pin(async move {
        let shared = &asked.context.shared;
        let members = match ask::healthy(shared) {
            Ok(members) => members,
            Err(refusal) => return refusal.answer(),
        };
        Asked::wait(&asked.turn, async {
            let told = ask::all(&asked.context, members, question).await;
            summary(rows(shared), &told, shared.metrics.policy(Role::Regular))
        })
        .await
    })
}

/// All engines, without their infos.
fn rows(shared: &Arc<Shared>) -> Vec<Row> {
    let mut standings = shared.standings();
    standings.dedup_by_key(|worker| worker.member.first_id);
    let rows = standings.into_iter().map(|worker| Row {
        url: worker.member.address.url.clone(),
        model: worker.model.map(|model| model.to_string()),
        healthy: worker.healthy,
        info: None,
    });
    rows.collect()
}

fn summary(rows: Vec<Row>, told: &[Told], policy: &str) -> Answer {
    let infos = told.iter().filter_map(|one| {
        let said = one.answer.as_ref().ok()?;
        Some((one.member.address.url.as_str(), &said.body[..]))
    });
    match merge(rows, infos, policy) {
        Some(info) => reply::json(&info),
        None => Refusal::NoWorkerAnswered.answer(),
    }
}

/// The first info, and all of them under `router`; `None` if there is none.
fn merge<'a>(
    mut rows: Vec<Row>,
    infos: impl Iterator<Item = (&'a str, &'a [u8])>,
    policy: &str,
) -> Option<Map<String, Value>> {
    let mut first: Option<Map<String, Value>> = None;
    let mut small: HashMap<&str, Value> = HashMap::new();
    let mut left = MAX_INFOS;
    for (url, body) in infos {
        let Ok(Value::Object(mut info)) = serde_json::from_slice(body) else { continue };
        redact(&mut info);
        if first.is_none() {
            first = Some(info.clone());
        }
        if body.len() <= MAX_INFO.min(left) {
            left -= body.len();
            small.insert(url, Value::Object(info));
        }
    }
    let mut whole = first?;
    for row in &mut rows {
        row.info = small.remove(row.url.as_str());
    }
    whole.insert("router_manager".to_owned(), true.into());
    whole.insert("routers_count".to_owned(), 1.into());
    whole.insert("workers_count".to_owned(), rows.len().into());
    let version = env!("CARGO_PKG_VERSION");
    whole.insert("router".to_owned(), json!({"version": version, "policy": policy, "workers": rows}));
    Some(whole)
}

/// Takes the values of keys out, at every depth.
fn redact(info: &mut Map<String, Value>) {
    for (name, value) in info {
        match value {
            Value::Null => {}
            _ if SECRETS.contains(&name.as_str()) => *value = Value::from("***"),
            value => redact_within(value),
        }
    }
}

fn redact_within(value: &mut Value) {
    match value {
        Value::Object(object) => redact(object),
        Value::Array(items) => items.iter_mut().for_each(redact_within),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(url: &str) -> Row {
        Row { url: url.to_owned(), model: Some("m".to_owned()), healthy: true, info: None }
    }

    #[test]
    fn the_first_one_speaks_for_all_and_each_for_itself() {
        let infos = [
            ("b", &b"not JSON"[..]),
            ("c", br#"{"max_total_num_tokens":7,"internal_states":[{"x":1}],"router":"mine"}"#),
            ("a", br#"{"max_total_num_tokens":9}"#),
        ];
        let merged = merge(vec![row("a"), row("b"), row("c")], infos.into_iter(), "random").expect("infos");
        let expected = json!({
            "max_total_num_tokens": 7, "internal_states": [{"x": 1}],
            "router_manager": true, "routers_count": 1, "workers_count": 3,
            "router": {"version": env!("CARGO_PKG_VERSION"), "policy": "random", "workers": [
                {"url": "a", "model": "m", "healthy": true, "info": {"max_total_num_tokens": 9}},
                {"url": "b", "model": "m", "healthy": true},
                {"url": "c", "model": "m", "healthy": true,
                 "info": {"max_total_num_tokens": 7, "internal_states": [{"x": 1}], "router": "mine"}},
            ]},
        });
        assert_eq!(Value::Object(merged), expected);
        assert!(merge(vec![row("a")], std::iter::empty(), "random").is_none());
    }

    #[test]
    fn a_long_one_is_told_once() {
        let long = json!({"x": "y".repeat(MAX_INFO)}).to_string();
        let infos = [("a", long.as_bytes()), ("b", b"{}")];
        let merged = merge(vec![row("a"), row("b")], infos.into_iter(), "random").expect("infos");
        assert_eq!(merged["x"].as_str().map(str::len), Some(MAX_INFO));
        assert_eq!(merged["router"]["workers"][0].get("info"), None);
        assert_eq!(merged["router"]["workers"][1]["info"], json!({}));
    }

    #[test]
    fn all_together_are_bounded() {
        let long = json!({"x": "y".repeat(MAX_INFO - 100)}).to_string();
        let urls: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let rows = urls.iter().map(|url| row(url)).collect();
        let merged =
            merge(rows, urls.iter().map(|url| (url.as_str(), long.as_bytes())), "random").expect("infos");
        assert!(Value::Object(merged).to_string().len() < MAX_INFOS + 2 * MAX_INFO + 10_000);
    }

    #[test]
    fn keys_are_not_told() {
        let body = br#"{"api_key":"sk-1","admin_api_key":null,"internal_states":[{"api_key":"sk-1","tp":[{"api_key":"sk-1"}]}]}"#;
        let merged = merge(vec![row("a")], [("a", &body[..])].into_iter(), "random").expect("infos");
        assert_eq!((&merged["api_key"], &merged["admin_api_key"]), (&json!("***"), &Value::Null));
        assert!(!Value::Object(merged).to_string().contains("sk-1"));
    }
}
