//! How workers go.

use std::net::TcpListener;

use serde_json::json;

use super::{
    BODY, Engine, add, add_ready, call, is_gone, listed, prompt, remove, router, series, shown, state,
};
use crate::common::worker::dead_url;
use crate::common::{Client, Router, wait_until};

/// A stream that its worker does not end before it is told to; its first event has come.
fn held_stream(router: &Router) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", br#"{"text":"hold","stream":true}"#);
    let head = client.reader.head().expect("a head").expect("not the end");
    assert_eq!((head.status(), client.reader.chunk().expect("an event")), (200, b"data: {}\n\n".to_vec()));
    client
}

fn assert_ends_well(client: &mut Client) {
    assert_eq!(client.reader.chunk().expect("an event"), b"data: [DONE]\n\n");
    assert_eq!(client.reader.chunk().expect("the end"), b"");
}

// ai-dynamo/dynamo#11646
#[test]
fn a_worker_that_leaves_ends_its_stream_and_is_forgotten() {
    let (old, new) = (Engine::start(), Engine::start());
    let router = router(&["--policy", "cache_aware", "--decision-headers"]);
    let id = add_ready(&router, &old.url());
    for topic in 0..30 {
        assert_eq!(router.post("/generate", prompt(&format!("topic{topic}")).as_bytes()).status(), 200);
    }
    let mut stream = held_stream(&router);
    add_ready(&router, &new.url());
    let chars = format!("smg_worker_index_chars{{worker=\"{}\"}}", old.url());
    let nodes = || router.metric("smg_router_index_nodes").expect("a gauge");
    let before = nodes();
    assert!(router.metric(&chars) > Some(5_000.0) && before >= 30.0, "it is believed to hold them");

    remove(&router, &id);
    wait_until("it to drain", || {
        let answer = router.post("/generate", prompt("topic0").as_bytes());
        assert_eq!(answer.status(), 200);
        new.requests() > 0
    });
    let served = old.requests();
    for _ in 0..10 {
        let answer = router.post("/generate", prompt("topic1").as_bytes());
        assert_eq!((answer.status(), old.requests()), (200, served), "nothing new goes there");
    }
    let leaving = shown(&router, &id);
    assert_eq!((&leaving["state"], &leaving["load"]), (&json!("draining"), &json!(1)));
    assert!(!series(&router, &old.url()).is_empty());

    old.go.open();
    assert_ends_well(&mut stream);
    wait_until("it to be gone", || is_gone(&router, &id));
    assert_eq!(listed(&router), [new.url()]);
    assert_eq!(series(&router, &old.url()), [] as [String; 0]);
    wait_until("its part of the index to be given back", || nodes() < before / 2.0);
    wait_until("its connections to be closed", || old.worker.open_at_peer() == 0);
}

#[test]
fn one_that_is_given_no_time_goes_at_once_and_its_stream_still_ends_well() {
    let engine = Engine::start();
    let router = router(&["--policy", "cache_aware"]);
    let id = add_ready(&router, &engine.url());
    let mut stream = held_stream(&router);
    let path = format!("/workers/{id}?drain_timeout_secs=0");
    assert_eq!(call(&router, "DELETE", &path, "").status(), 202);
    wait_until("it to be gone", || is_gone(&router, &id));
    assert_eq!(series(&router, &engine.url()), [] as [String; 0]);
    router.post("/generate", BODY).assert_refused(503, "no_workers");
    engine.go.open();
    assert_ends_well(&mut stream);
    assert_eq!(listed(&router), [] as [String; 0]);
    assert_eq!(series(&router, &engine.url()), [] as [String; 0], "the end of a stream brings nothing back");
    wait_until("its connections to be closed", || engine.worker.open_at_peer() == 0);
}

#[test]
fn one_that_takes_longer_than_it_is_given_goes_nevertheless() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add_ready(&router, &engine.url());
    let mut stream = held_stream(&router);
    let path = format!("/workers/{id}/drain?drain_timeout_secs=1");
    assert_eq!(call(&router, "POST", &path, "").status(), 202);
    assert_eq!(state(&router, &id), "draining");
    wait_until("it to be gone", || is_gone(&router, &id));
    engine.go.open();
    assert_ends_well(&mut stream);
}

#[test]
fn one_that_is_sent_away_twice_leaves_once() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add_ready(&router, &engine.url());
    let mut stream = held_stream(&router);
    remove(&router, &id);
    for (method, suffix) in [("DELETE", ""), ("POST", "/drain"), ("DELETE", "?drain_timeout_secs=0")] {
        let answer = call(&router, method, &format!("/workers/{id}{suffix}"), "");
        assert_eq!(answer.status(), 202, "{method} {suffix}");
        assert!(answer.text().contains("already"), "{}", answer.text());
    }
    assert_eq!(state(&router, &id), "draining", "the first word counts");
    engine.go.open();
    assert_ends_well(&mut stream);
    wait_until("it to be gone", || is_gone(&router, &id));
    let answer = call(&router, "DELETE", &format!("/workers/{id}"), "");
    assert_eq!((answer.status(), &answer.json()["code"]), (404, &json!("WORKER_NOT_FOUND")));
}

#[test]
fn one_that_is_registered_again_while_it_leaves_begins_anew() {
    let engine = Engine::start();
    let router = router(&["--policy", "cache_aware", "--decision-headers"]);
    let id = add_ready(&router, &engine.url());
    let ask = || {
        let answer = router.post("/generate", prompt("topic").as_bytes());
        (answer.status(), answer.header("x-router-predicted-tokens").map(str::to_owned))
    };
    ask();
    assert_ne!(ask(), (200, Some("0".to_owned())));
    let mut stream = held_stream(&router);
    remove(&router, &id);
    wait_until("it to drain", || router.post("/generate", BODY).status() == 503);
    assert_eq!(add_ready(&router, &engine.url()), id, "the same worker");
    assert_eq!(router.loads(), [0], "what runs there is the former one's");
    assert_eq!(ask(), (200, Some("0".to_owned())), "and so is what it held");
    engine.go.open();
    assert_ends_well(&mut stream);
    // The former one is done, which takes nothing from this one.
    for _ in 0..10 {
        assert_eq!((router.post("/generate", BODY).status(), router.loads()), (200, vec![0]));
        assert_eq!(state(&router, &id), "ready");
    }
    assert_eq!(listed(&router), [engine.url()]);
}

#[test]
fn one_that_is_unreachable_goes_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let router = router(&["--health-check-timeout-secs", "600"]);
    for url in [dead_url(), format!("http://{}", silent.local_addr().expect("an address"))] {
        let id = add(&router, &url);
        remove(&router, &id);
        wait_until("it to be gone", || is_gone(&router, &id));
        assert_eq!(series(&router, &url), [] as [String; 0]);
        // Nobody waits for it either.
        router.post("/generate", BODY).assert_refused(503, "no_workers");
    }
}

// ai-dynamo/dynamo#11646
#[test]
fn one_that_died_with_its_requests_can_be_removed() {
    let (dead, alive) = (Engine::start(), Engine::start());
    let router = router(&["--policy", "round_robin"]);
    let ids = [&dead, &alive].map(|engine| add_ready(&router, &engine.url()));
    while dead.requests() == 0 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    dead.worker.kill();
    remove(&router, &ids[0]);
    for _ in 0..10 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    wait_until("it to be gone", || is_gone(&router, &ids[0]));
    assert_eq!(series(&router, &dead.url()), [] as [String; 0]);
}

#[test]
fn what_still_runs_when_the_time_to_drain_is_over_is_told_of_and_goes_on() {
    let engine = Engine::start();
    let (router, log) = Router::start_logged(&[engine.url()], &[]);
    wait_until("the worker to be ready", || router.get("/readiness").status() == 200);
    let mut streams = [(); 2].map(|()| held_stream(&router));
    let answer =
        call(&router, "DELETE", &format!("/workers/{}?drain_timeout_secs=1", engine.worker.address), "");
    let message = answer.json()["message"].as_str().expect("a text").to_owned();
    assert!(message.contains("no new requests") && message.contains("after 1 s"), "{message}");
    let is_told =
        |line: &String| line.contains("WARN") && line.contains("goes on") && line.contains("running=2");
    wait_until("it to be told", || log.lines().iter().any(is_told));
    assert_eq!(listed(&router), [] as [String; 0]);
    engine.go.open();
    streams.iter_mut().for_each(assert_ends_well);
}

// sgl-project/sglang#38524
#[test]
fn the_last_one_waits_for_its_successor_no_longer_than_it_has_time_to_drain() {
    for seconds in ["0", "1"] {
        let engine = Engine::start();
        let router = router(&[]);
        let id = add_ready(&router, &engine.url());
        // It does not come.
        add(&router, &dead_url());
        let answer = call(&router, "DELETE", &format!("/workers/{id}?drain_timeout_secs={seconds}"), "");
        let message = answer.json()["message"].as_str().expect("a text").to_owned();
        if seconds == "0" {
            assert!(message.starts_with("it gets no new requests"), "{message}");
        } else {
            assert!(message.contains("until then, 1 s at most, it gets new requests"), "{message}");
        }
        wait_until("it to be gone", || is_gone(&router, &id));
        router.post("/generate", BODY).assert_refused(503, "no_available_workers");
    }
}

#[test]
fn one_that_leaves_and_still_gets_requests_says_why() {
    let (engine, next) = (Engine::start(), Engine::unwell());
    let router = router(&[]);
    let id = add_ready(&router, &engine.url());
    let mut stream = held_stream(&router);
    let latter = add(&router, &next.url());
    remove(&router, &id);
    let worker = shown(&router, &id);
    assert_eq!(worker["state"], "draining");
    assert!(worker["reason"].as_str().expect("a reason").contains("still gets requests"), "{worker}");
    assert_eq!(router.post("/generate", BODY).status(), 200);
    next.get_well();
    wait_until("the successor", || state(&router, &latter) == "ready");
    wait_until("nothing to be said any more", || shown(&router, &id).get("reason").is_none());
    let served = engine.requests();
    for _ in 0..5 {
        assert_eq!((router.post("/generate", BODY).status(), engine.requests()), (200, served));
    }
    engine.go.open();
    assert_ends_well(&mut stream);
    wait_until("it to be gone", || is_gone(&router, &id));
}
