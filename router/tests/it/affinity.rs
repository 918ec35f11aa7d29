//! What belongs together stays together: conversations, and requests with one key.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Value, json};

use crate::common::{Message, PATHS, Router, Worker};

/// One that only the command line knows.
const EXTRA: &str = "/v1/audio/transcriptions";

fn fleet(size: usize) -> (Vec<Worker>, Vec<String>) {
    let workers: Vec<_> = (0..size).map(|_| Worker::fixed("{}")).collect();
    let urls = workers.iter().map(Worker::url).collect();
    (workers, urls)
}

fn decided(answer: &Message) -> usize {
    assert_eq!(answer.status(), 200);
    answer.header("x-router-worker").expect("a decision").parse().expect("a number")
}

/// The turns of one conversation, each with all that was said before.
pub(crate) fn conversation(number: usize, turns: usize) -> Vec<Value> {
    let system = "You answer in one sentence and never guess. ".repeat(46);
    let mut messages = vec![json!({"role": "system", "content": system})];
    let mut requests = Vec::new();
    for turn in 0..turns {
        // A first question so long that what all conversations begin with is less than the threshold's share.
        let length = if turn == 0 { 450 } else { 10 };
        let said = format!("Conversation {number}, turn {turn}, {}", "of more words ".repeat(length));
        messages.push(match turn % 2 {
            0 => json!({"role": "user", "content": said}),
            _ => json!({"role": "user", "content": [{"type": "text", "text": said}]}),
        });
        requests.push(json!({"model": "m", "messages": messages, "tools": [], "stream": false}));
        messages.push(json!({"role": "assistant", "content": null, "tool_calls":
            [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": "c", "content": format!("result {turn}")}));
        messages.push(json!({"role": "assistant", "content": format!("Answer {turn} to {number}.")}));
    }
    requests
}

// sgl-project/sglang#26263, #27430: with the first message for the whole prompt, or none, hits fell from 96 % to 69 %.
#[test]
fn conversations_with_one_system_prompt_stay_each_on_its_worker() {
    // Enough that chance, which decides between idle workers, gives each of them some.
    const CONVERSATIONS: usize = 24;
    const TURNS: usize = 6;
    let (_workers, urls) = fleet(4);
    let router = Router::start(&urls, &["--policy", "cache_aware", "--decision-headers"]);
    let all: Vec<_> = (0..CONVERSATIONS).map(|number| conversation(number, TURNS)).collect();
    let mut places = vec![Vec::new(); CONVERSATIONS];
    for turn in 0..TURNS {
        for (number, requests) in all.iter().enumerate() {
            let answer = router.post("/v1/chat/completions", requests[turn].to_string().as_bytes());
            places[number].push(decided(&answer));
        }
    }
    let stayed = places.iter().flatten().zip(places.iter().flat_map(|place| vec![place[0]; TURNS]));
    let stayed = stayed.filter(|(at, home)| **at == *home).count();
    assert!(stayed * 10 > CONVERSATIONS * TURNS * 9, "{places:?}");
    let used: BTreeSet<_> = places.iter().flatten().collect();
    assert_eq!(used.len(), 4, "the common beginning does not draw all to one: {places:?}");
}

// vllm-project/router#85: on some paths the header did not reach the policy.
#[test]
fn one_key_is_one_worker_on_every_endpoint() {
    const KEYS: usize = 50;
    let (workers, urls) = fleet(8);
    let args = ["--policy", "consistent_hashing", "--decision-headers", "--extra-endpoints", EXTRA];
    let router = Router::start(&urls, &args);
    let mut client = router.client();
    let mut homes: BTreeMap<usize, HashSet<usize>> = BTreeMap::new();
    for (at, path) in PATHS.iter().chain([&EXTRA]).enumerate() {
        for key in 0..KEYS {
            let name = ["X-SMG-Routing-Key", "x-smg-routing-key", "X-Smg-ROUTING-key"][(at + key) % 3];
            // What else might be taken for a key differs each time.
            let fields =
                format!("{name}: session-{key}\r\nAuthorization: Bearer {at}\r\nCookie: c={at}-{key}\r\n");
            let body = format!(r#"{{"model":"m","text":"{path} {key}"}}"#);
            let answer = client.post(path, &fields, body.as_bytes());
            homes.entry(key).or_default().insert(decided(&answer));
        }
    }
    for (key, homes) in &homes {
        assert_eq!(homes.len(), 1, "session-{key} was at {homes:?}");
    }
    let used: HashSet<_> = homes.into_values().flatten().collect();
    assert!(used.len() >= 6, "50 keys are on {} of 8 workers only", used.len());
    let seen: usize = workers.iter().map(|worker| worker.count("POST")).sum();
    assert_eq!(seen, KEYS * (PATHS.len() + 1));
}

// vllm-project/router#85: a body that says nothing leaves the key.
#[test]
fn a_key_holds_whatever_the_body() {
    let (_workers, urls) = fleet(8);
    let router = Router::start(&urls, &["--policy", "consistent_hashing", "--decision-headers"]);
    let bodies: [&[u8]; 5] = [b"", b"not json", b"{}", br#"{"text":["a","b"]}"#, b"\xff\xfe"];
    for key in ["a", "b", "c", "d", "e", "f"] {
        let home = |body: &[u8]| {
            decided(&router.client().post("/generate", &format!("X-SMG-Routing-Key: {key}\r\n"), body))
        };
        let homes: HashSet<_> = bodies.iter().map(|body| home(body)).collect();
        assert_eq!(homes.len(), 1, "{key}");
    }
}

// vllm-project/production-stack#687: the tree of prefixes grew until the process was killed.
#[test]
fn long_documents_do_not_fill_the_memory() {
    const PROMPTS: usize = 2_500;
    const LENGTH: usize = 32_768;
    let (_workers, urls) = fleet(2);
    let args = [
        "--policy",
        "cache_aware",
        "--max-tree-size",
        "1000000",
        "--decision-headers",
        "--access-log",
        "off",
    ];
    let router = Router::start(&urls, &args);
    let before = router.resident_bytes();
    let mut client = router.client();
    let mut post = |number: usize| {
        let letters: String =
            crate::common::noise(number as u64, LENGTH / 2).iter().map(|b| format!("{b:02x}")).collect();
        decided(&client.post("/generate", "", format!(r#"{{"text":"{letters}"}}"#).as_bytes()))
    };
    let mut last = 0;
    for number in 0..PROMPTS {
        last = post(number);
    }
    assert_eq!(post(PROMPTS - 1), last, "the newest is still known");
    let grown = router.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "memory grew by {} MB of {} sent", grown >> 20, (PROMPTS * LENGTH) >> 20);
}

#[test]
fn keys_that_stick_are_counted_where_they_stick_under_the_gateways_names() {
    let (_workers, urls) = fleet(2);
    let args = ["--policy", "manual", "--assignment-mode", "min_group"];
    let router = Router::start(&urls, &args);
    for key in ["a", "b", "c", "d", "a"] {
        let headers = format!("X-SMG-Routing-Key: {key}\r\n");
        assert_eq!(router.client().post("/generate", &headers, b"{}").status(), 200);
    }
    assert_eq!(router.metric("smg_manual_policy_cache_entries "), Some(4.0));
    let branch = |name: &str| router.metric(&format!("smg_manual_policy_branch_total{{branch=\"{name}\"}}"));
    assert_eq!(["vacant", "occupied_hit"].map(branch), [Some(4.0), Some(1.0)]);
    for url in urls {
        let series = format!("smg_worker_routing_keys_active{{worker=\"{url}\"}}");
        assert_eq!(router.metric(&series), Some(2.0));
    }
}
