//! What both workers are sent.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Value, json};

use super::legs::{bodies, command_line, decode, prefill, rooms, router, wait_for};
use super::{BODY, flags};
use crate::case_bodies::bodies::{BODIES, path_of_reference};
use crate::common::{Router, Worker};

const KEYS: [&str; 3] = ["bootstrap_host", "bootstrap_port", "bootstrap_room"];

/// A body without what the router adds.
fn without(mut body: Value) -> Value {
    let object = body.as_object_mut().expect("an object");
    assert!(KEYS.iter().all(|key| object.remove(*key).is_some()), "{object:?}");
    body
}

/// The cases and, where they are there, the bodies of real clients.
pub(super) fn all() -> Vec<(String, &'static str, Vec<u8>)> {
    let mut all: Vec<_> = BODIES
        .into_iter()
        .map(|(case, path, body)| (case.to_owned(), path, body.as_bytes().to_vec()))
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/requests");
    if let Ok(files) = std::fs::read_dir(folder) {
        for file in files.map(|file| file.expect("a file").path()) {
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            let number = name.strip_suffix(".json").and_then(|stem| stem.split('-').next()?.parse().ok());
            if let Some(number) = number {
                let path = path_of_reference(number);
                all.push((name, path, std::fs::read(&file).expect("a body")));
            }
        }
    }
    all
}

/// How long the lists are that a body of these gets; `None` where it gets plain values.
fn length(case: &str) -> Option<usize> {
    let is = |beginnings: &[&str]| beginnings.iter().any(|beginning| case.starts_with(beginning));
    let batches = ["generate from texts", "generate from lists", "completions of several", "14-", "17-"];
    match case {
        _ if is(&["12-"]) => Some(4),
        // Several prompts, or as many answers to one.
        _ if is(&batches) || is(&["every sampling option", "08-"]) => Some(3),
        _ => None,
    }
}

// sgl-project/sglang#22740, #8500, #21571, #22743: fields that a router does not know were dropped.
#[test]
fn case_32_both_workers_get_the_clients_body_with_three_members_more() {
    let (prefill, decode) = (prefill(), decode());
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let paths = ["/v1/chat/completions", "/generate", "/v1/completions"];
    for (case, path, body) in all().into_iter().filter(|(_, path, _)| paths.contains(path)) {
        assert_eq!(router.post(path, &body).status(), 200, "{case}");
        wait_for(1, &[&prefill, &decode]);
        let [at_prefill] = &prefill.take_seen()[..] else { panic!("{case}: one request") };
        let [at_decode] = &decode.take_seen()[..] else { panic!("{case}: one request") };
        assert_eq!(at_prefill.first, at_decode.first, "{case}");
        assert!(at_prefill.first.starts_with(&format!("POST {path} ")), "{case}");
        assert_eq!(at_prefill.body, at_decode.body, "{case}: the same room");
        // Nothing before the end of the client's object has changed.
        let end = body.iter().rposition(|byte| *byte == b'}').expect("an object");
        let kept = body[..end].trim_ascii_end();
        assert!(at_prefill.body.starts_with(kept), "{case}");
        assert!(at_prefill.body.ends_with(&body[end..]), "{case}");
        assert!(at_prefill.body[kept.len()..].starts_with(b",\"bootstrap_host\":"), "{case}");
        assert_eq!(
            without(at_prefill.json()),
            serde_json::from_slice::<Value>(&body).expect("JSON"),
            "{case}"
        );
        let sent = at_prefill.json();
        for (key, is_right) in [
            ("bootstrap_host", (|value| *value == json!("127.0.0.1")) as fn(&Value) -> bool),
            ("bootstrap_port", |value| *value == json!(9000)),
            ("bootstrap_room", |value| value.as_u64().is_some_and(|room| room < 1 << 63)),
        ] {
            let values = sent[key].as_array();
            assert_eq!(values.map(Vec::len), length(&case), "{case}: {key}");
            let mut each = values.map_or_else(|| std::slice::from_ref(&sent[key]), Vec::as_slice).iter();
            assert!(each.all(is_right), "{case}: {}", sent[key]);
        }
    }
}

// sgl-project/sglang#5531: a list of 33 texts.
#[test]
fn case_64_a_batch_gets_lists_of_its_own_length_and_a_room_for_each_item() {
    let (prefill, decode) = (prefill(), decode());
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut all_rooms = HashSet::new();
    for length in [1, 2, 33] {
        for (path, body) in [
            ("/generate", json!({"text": vec!["a, [b"; length]})),
            ("/generate", json!({"input_ids": vec![vec![1, 2, 3]; length]})),
            ("/v1/completions", json!({"prompt": vec!["a"; length]})),
            ("/v1/completions", json!({"prompt": vec![vec![1, 2, 3]; length]})),
            // Of prompts in a list each has one room, however many answers it gets.
            ("/v1/completions", json!({"prompt": vec!["a"; length], "n": 2})),
            ("/generate", json!({"text": vec!["a"; length], "sampling_params": {"n": 3}})),
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "a"}], "n": length})),
            ("/generate", json!({"text": "a", "sampling_params": {"n": length}})),
        ] {
            assert_eq!(router.post(path, body.to_string().as_bytes()).status(), 200, "{body}");
            let sent = bodies(&decode).pop().expect("a body");
            let is_list =
                body["prompt"].is_array() || body["input_ids"].is_array() || body["text"].is_array();
            let is_one = length == 1 && !is_list;
            let rooms = if is_one {
                vec![sent["bootstrap_room"].clone()]
            } else {
                assert_eq!(sent["bootstrap_host"], json!(vec!["127.0.0.1"; length]), "{body}");
                assert_eq!(sent["bootstrap_port"], json!(vec![9000; length]), "{body}");
                sent["bootstrap_room"].as_array().expect("a list").clone()
            };
            assert_eq!(rooms.len(), length, "{body}");
            for room in rooms {
                assert!(all_rooms.insert(room.as_u64().expect("a number")), "{body}: twice the same room");
            }
            assert_eq!(without(sent), body);
        }
    }
    for (path, body) in
        [("/generate", json!({"input_ids": [1, 2, 3]})), ("/v1/completions", json!({"prompt": [1, 2, 3]}))]
    {
        assert_eq!(router.post(path, body.to_string().as_bytes()).status(), 200, "{body}");
        assert!(bodies(&decode).pop().expect("a body")["bootstrap_room"].is_u64(), "one prompt: {body}");
    }
}

#[test]
fn what_the_client_says_in_the_routers_place_is_overwritten() {
    let (prefill, decode) = (prefill(), decode());
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let body = br#"{"bootstrap_room":7,"text":"a","bootstrap_host":"evil","boot\u0073trap_room":[8],"bootstrap_port":1,
        "disagg_prefill_dp_rank":3,"bootstrap_room":9}"#;
    assert_eq!(router.post("/generate", body).status(), 200);
    wait_for(1, &[&prefill, &decode]);
    for worker in [&prefill, &decode] {
        let seen = worker.seen().pop().expect("a request");
        let text = seen.text();
        assert_eq!(text.matches("bootstrap_room").count() + text.matches("boot\\u0073").count(), 1, "{text}");
        assert!(!text.contains("evil") && !text.contains("disagg_prefill_dp_rank"), "{text}");
        let sent = seen.json();
        assert_eq!((&sent["bootstrap_host"], &sent["bootstrap_port"]), (&json!("127.0.0.1"), &json!(9000)));
        assert!(![7, 8, 9].map(Value::from).contains(&sent["bootstrap_room"]), "{text}");
    }
}

#[test]
fn a_port_that_nobody_knows_is_null() {
    let (prefill, decode) = (prefill(), decode());
    let line = command_line(&[&prefill], &[&decode], "none", &flags(&[]));
    let router = Router::start(&[], &line.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(router.post("/generate", BODY).status(), 200);
    assert_eq!(router.post("/generate", br#"{"text":["a","b"]}"#).status(), 200);
    wait_for(2, &[&prefill, &decode]);
    let sent = bodies(&decode);
    assert_eq!(sent[0].get("bootstrap_port"), Some(&Value::Null));
    assert_eq!(sent[1]["bootstrap_port"], json!([null, null]));
    assert_eq!(bodies(&prefill), sent);
}

#[test]
fn rooms_are_new_for_every_request_and_spread() {
    let (prefill, decode) = (prefill(), decode());
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    let mut client = router.client();
    for _ in 0..100 {
        assert_eq!(client.post("/generate", "", BODY).status(), 200);
    }
    wait_for(100, &[&prefill, &decode]);
    let drawn = rooms(&prefill);
    let different: HashSet<_> = drawn.iter().copied().collect();
    assert_eq!(different.len(), 100);
    assert_eq!(different, rooms(&decode).into_iter().collect());
    let high = drawn.iter().filter(|room| **room >= 1 << 62).count();
    assert!((20..=80).contains(&high), "{high} of 100 in the upper half");
}

#[test]
fn a_body_that_cannot_be_changed_is_refused_and_sent_to_nobody() {
    let (prefill, decode) = (prefill(), decode());
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    for body in ["", "null", "[1]", "{", r#"{"text":"a"}x"#, r#"{"text":"a""#] {
        router.post("/generate", body.as_bytes()).assert_refused(400, "body_not_an_object");
    }
    let body = br#"{"messages":[],"n":1000000000000000}"#;
    router.post("/v1/chat/completions", body).assert_refused(400, "too_many_answers");
    let posts = |worker: &Worker| worker.count("POST");
    assert_eq!((posts(&prefill), posts(&decode), router.loads()), (0, 0, vec![0, 0]));
}
