//! Pairs of simulated workers that die or fail to hand over, with many requests under way.

use std::thread::JoinHandle;

use serde_json::{Value, json};
use simworker::config::{HostConfig, Roles};

use super::{COMPLETIONS, Fleet, JSON, QUICK, WATCHFUL, config, is_healthy, number};
use crate::common::{Client, Router, wait_until};

const CLIENTS: usize = 60;
/// The workers of each role; prefill comes first.
const EACH: usize = 2;
/// An engine makes tokens so much faster than a real one: prompts take a while.
const SPEED: f64 = 8.0;

/// How an answer ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Nothing is missing.
    Complete,
    /// The router says that a leg failed.
    Failed { status: u16, code: String },
    /// A stream broke off after it had begun.
    Cut,
    /// A stream ended cleanly without being whole.
    Wrong(String),
}

/// So many workers of each role.
fn pairs(each: usize, speed: f64, faults: &[&str]) -> Fleet {
    let roles = Roles::Split { prefill: each as u32 };
    Fleet::of(HostConfig { workers: 2 * each as u32, speed, roles, ..config() }, faults)
}

/// A router that knows which are which.
fn router(fleet: &Fleet, args: &[&str]) -> Router {
    let urls: Vec<String> = fleet.0.urls().collect();
    let mut line = vec!["--pd-disaggregation".to_owned()];
    for (url, port) in urls.iter().zip(fleet.0.bootstrap_ports()) {
        match port {
            Some(port) => line.extend(["--prefill".to_owned(), url.clone(), port.to_string()]),
            None => line.extend(["--decode".to_owned(), url.clone()]),
        }
    }
    let line = line.iter().map(String::as_str).chain(args.iter().copied());
    Fleet::known(Router::start(&[], &line.collect::<Vec<_>>()))
}

/// Sends a request by itself, every other one as a stream, and reads its answer to the end.
fn ask(address: String, serial: usize) -> End {
    let prompt = format!("request {serial} says much; ").repeat(150);
    let is_streamed = serial.is_multiple_of(2);
    let body = json!({"model": "mock", "prompt": prompt, "max_tokens": 100, "ignore_eos": true, "stream": is_streamed});
    let mut client = Client::connect(&address);
    client.send_post(COMPLETIONS, JSON, body.to_string().as_bytes());
    let mut answer = client.reader.head().expect("a head").expect("not the end");
    if answer.status() != 200 || !is_streamed {
        let length = answer.header("content-length").expect("a whole answer").parse().expect("a number");
        answer.body = client.reader.exact(length).expect("all of it");
        return match answer.status() {
            200 if answer.json()["choices"][0]["finish_reason"] == "length" => End::Complete,
            200 => End::Wrong(answer.text()),
            status => {
                let code = answer.header("x-router-error-code").unwrap_or("none").to_owned();
                End::Failed { status, code }
            }
        };
    }
    let mut seen = Vec::new();
    loop {
        match client.reader.chunk() {
            Ok(chunk) if chunk.is_empty() => break,
            Ok(chunk) => seen.extend(chunk),
            Err(_) => return End::Cut,
        }
    }
    let seen = String::from_utf8(seen).expect("text");
    match seen.ends_with("data: [DONE]\n\n") && seen.contains(r#""finish_reason":"length""#) {
        true => End::Complete,
        false => End::Wrong(seen),
    }
}

/// Clients that are all on their way.
fn many(router: &Router) -> Vec<JoinHandle<End>> {
    let ask = |serial| {
        let address = router.address.clone();
        std::thread::spawn(move || ask(address, serial))
    };
    (0..CLIENTS).map(ask).collect()
}

/// The load of a worker by itself.
fn load(fleet: &Fleet, worker: usize) -> Value {
    Client::get(&fleet.0.addresses()[worker].to_string(), "/v1/loads").json()["loads"][0].clone()
}

fn breaker(fleet: &Fleet, router: &Router, worker: usize) -> Option<f64> {
    router.metric(&format!(r#"smg_worker_cb_state{{worker="http://{}"}}"#, fleet.0.addresses()[worker]))
}

/// How all of them ended. Nothing is left of them: no lease, and no request at those of the workers that live.
fn ends(fleet: &Fleet, router: &Router, clients: Vec<JoinHandle<End>>, living: &[usize]) -> Vec<End> {
    let ends: Vec<End> = clients.into_iter().map(|client| client.join().expect("an answer")).collect();
    wait_until("the leases to end", || router.loads().iter().all(|load| *load == 0));
    wait_until("the engines to be idle", || {
        living.iter().map(|worker| load(fleet, *worker)).all(|load| {
            let counts = ["num_running_reqs", "num_waiting_reqs"].map(|name| load[name].as_u64());
            counts == [Some(0), Some(0)]
        })
    });
    ends
}

/// The ends that are not complete are all like this, and fewer than half.
fn assert_mostly_complete(ends: &[End], is_allowed: impl Fn(&End) -> bool) {
    let others: Vec<&End> = ends.iter().filter(|end| **end != End::Complete).collect();
    assert!(others.iter().all(|end| is_allowed(end)), "{others:?}");
    assert!(others.len() < CLIENTS / 2, "{} of {CLIENTS}: {others:?}", others.len());
}

fn is_502_of(end: &End, leg: &str) -> bool {
    matches!(end, End::Failed { status: 502, code } if code.starts_with(leg))
}

#[test]
fn a_prefill_worker_that_dies_costs_no_client_its_answer_and_decode_no_trust() {
    let fleet = pairs(EACH, SPEED, &[]);
    let router = router(&fleet, &QUICK);
    let clients = many(&router);
    wait_until("prompts to be computed and tokens to be made", || {
        load(&fleet, 0)["num_waiting_reqs"].as_u64() > Some(3) && load(&fleet, 2)["num_running_reqs"] != 0
    });
    fleet.control("PUT", "/workers/0/faults", r#"{"die":"on"}"#);
    let ends = ends(&fleet, &router, clients, &[1, 2, 3]);
    let tries = fleet.seen(0, COMPLETIONS).len() + fleet.seen(1, COMPLETIONS).len();
    assert!(tries > CLIENTS, "some were under way there: {tries} tries");
    assert_mostly_complete(&ends, |end| is_502_of(end, "prefill_"));
    assert_eq!([1, 2, 3].map(|worker| breaker(&fleet, &router, worker)), [Some(0.0); 3]);
}

#[test]
fn a_decode_worker_that_dies_cuts_what_has_begun_and_no_more() {
    let fleet = pairs(EACH, SPEED, &[]);
    let router = router(&fleet, &QUICK);
    let clients = many(&router);
    // Of both decode workers, in turn: what is made need not have come out yet.
    let begun = || router.metric("smg_router_ttft_seconds_count") >= Some(8.0);
    wait_until("tokens to be made and seen", || {
        begun() && load(&fleet, EACH)["num_running_reqs"].as_u64() > Some(3)
    });
    fleet.control("PUT", &format!("/workers/{EACH}/faults"), r#"{"die":"on"}"#);
    let ends = ends(&fleet, &router, clients, &[0, 1, 3]);
    assert_mostly_complete(&ends, |end| *end == End::Cut || is_502_of(end, "decode_"));
    assert!(ends.contains(&End::Cut), "some had begun");
    assert_eq!([0, 1, 3].map(|worker| breaker(&fleet, &router, worker)), [Some(0.0); 3]);
}

#[test]
fn a_prefill_worker_that_cannot_hand_over_is_alone_to_blame() {
    let fleet = pairs(EACH, SPEED, &["0:kv-fail=on"]);
    let router = router(&fleet, &[&QUICK[..], &["--cb-failure-threshold", "3"]].concat());
    let ends = ends(&fleet, &router, many(&router), &[0, 1, 2, 3]);
    assert_mostly_complete(&ends, |end| is_502_of(end, "prefill_"));
    assert!(fleet.seen(0, COMPLETIONS).len() >= 3, "it had its chance");
    assert_ne!(breaker(&fleet, &router, 0), Some(0.0));
    assert_eq!([1, 2, 3].map(|worker| breaker(&fleet, &router, worker)), [Some(0.0); 3]);
}

// ai-dynamo/dynamo#11646
#[test]
fn a_prefill_worker_that_was_started_anew_is_believed_to_hold_nothing() {
    let text = "a prompt that is long enough to be remembered ".repeat(40);
    let prompt = json!({"model": "mock", "prompt": text, "max_tokens": 4}).to_string();
    let quick: &[&str] = &["--worker-info-interval-secs", "0.2"];
    for (down, args) in [("?down=3s", &WATCHFUL[..]), ("", quick)] {
        let fleet = pairs(1, super::SPEED, &[]);
        let router = router(&fleet, &[args, &["--policy", "cache_aware", "--decision-headers"]].concat());
        // Whether the prompt is believed to be in a cache, and whether it was.
        let ask = || {
            let answer = router.post(COMPLETIONS, prompt.as_bytes());
            let cached = || answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
            let hit = || (number(&answer, "x-router-predicted-tokens") > 0, cached().unwrap_or(0) > 0);
            (answer.status() == 200).then(hit)
        };
        assert_eq!(ask(), Some((false, false)), "{down}");
        assert_eq!(ask(), Some((true, true)), "{down}");
        fleet.control("POST", &format!("/workers/0/restart{down}"), "");
        if down.is_empty() {
            // Asking all the time shows that for once nothing is believed to be there.
            wait_until("its cache to be taken for empty", || ask().is_some_and(|(believed, _)| !believed));
        } else {
            wait_until("the worker to be out", || !is_healthy(&router, 0));
            wait_until("the worker to be back", || is_healthy(&router, 0));
            assert_eq!(ask(), Some((false, false)), "its cache is gone, and so is the belief");
        }
        wait_until("both to fill again", || ask() == Some((true, true)));
    }
}
