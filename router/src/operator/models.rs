//! `/v1/models`: what the fleet serves, by its workers' own word.

use http::Uri;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ask::{self, Question};
use super::{Answering, Asked, reply};
use crate::error::{Answer, Refusal};

/// OpenAI's list, as far as it is looked at: entries are passed on as they are.
#[derive(Deserialize)]
struct Given {
    data: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct Models {
    object: &'static str,
    data: Vec<Value>,
}

/// `GET /v1/models`: each id once, as the first healthy worker that has it describes it.
pub(crate) fn models(asked: Asked) -> Answering {
    let question = Question::get(&asked, Uri::from_static("/v1/models"));
    Box::pin(async move {
        let members = match ask::healthy(&asked.context.shared) {
            Ok(members) => members,
            Err(refusal) => return refusal.answer(),
        };
        Asked::wait(&asked.turn, async {
            let told = ask::all(&asked.context, members, question).await;
            list(told.iter().filter_map(|one| one.answer.as_ref().ok()).map(|said| &said.body[..]))
        })
        .await
    })
}

fn list<'a>(lists: impl Iterator<Item = &'a [u8]>) -> Answer {
    match union(lists) {
        Some(data) => reply::json(&Models { object: "list", data }),
        None => Refusal::NoWorkerAnswered.answer(),
    }
}

/// The entries of all lists, each id once; `None` if there is no list at all.
fn union<'a>(lists: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Value>> {
    let mut entries: Option<Vec<Value>> = None;
    for list in lists.filter_map(|body| serde_json::from_slice::<Given>(body).ok()) {
        let entries = entries.get_or_insert_default();
        for entry in list.data {
            let is_known = entries.iter().any(|known| known["id"] == entry["id"]);
            if entry["id"].is_string() && !is_known {
                entries.push(entry);
            }
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_listed_once_by_the_first_that_has_it() {
        let lists = [
            r#"{"object":"list","data":[{"id":"a","max_model_len":7,"own":{"x":[1]}},{"id":"lora","parent":"a"}]}"#,
            "not JSON",
            r#"{"data":[{"id":"b","root":"r"},{"id":"a","max_model_len":9},{"name":"no id"}]}"#,
        ];
        let entries = union(lists.iter().map(|list| list.as_bytes())).expect("lists");
        let expected = serde_json::json!([
            {"id": "a", "max_model_len": 7, "own": {"x": [1]}},
            {"id": "lora", "parent": "a"},
            {"id": "b", "root": "r"},
        ]);
        assert_eq!(Value::from(entries), expected);
    }

    #[test]
    fn no_list_is_not_an_empty_one() {
        assert_eq!(union([&b"{}"[..], b"<html>"].into_iter()), None);
        assert_eq!(union([&br#"{"data":[]}"#[..]].into_iter()), Some(Vec::new()));
    }
}
