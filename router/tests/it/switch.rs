//! Requests under way while another policy takes over.

use serde_json::Value;

use crate::common::{Latch, Router, Worker, wait_for, wait_until};
use crate::reload::File;

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;
const PROMPT: &[u8] = br#"{"text":"a prompt that is long enough to be remembered by whoever has seen it"}"#;
const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// Tells the router of this policy and waits until it rules: then all of its reasons are shown, also this one, for which
/// nothing is decided here.
fn switch(router: &Router, file: &File, policy: &str, unused: &str, worker: &Worker) {
    file.say(policy, &[worker]);
    router.signal("HUP");
    let series = format!("smg_router_decisions_total{{policy=\"{policy}\",reason=\"{unused}\"}}");
    wait_until("the policy to rule", || router.metric(&series) == Some(0.0));
}

#[test]
fn a_decision_is_filed_under_the_policy_that_made_it() {
    let go = Latch::default();
    let when = go.clone();
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
        when.wait();
        conn.chunk(DONE);
        conn.end_stream();
        true
    });
    let file = File::new("cache_aware", &[&worker]);
    let (router, log) = Router::start_logged(&[], &["--config", &file.path(), "--access-log", "json"]);
    let policy_of = |id: &str| {
        let record = |line: &String| {
            serde_json::from_str(line).ok().filter(|record: &Value| record["request_id"] == id)
        };
        wait_for("the line", || log.lines().iter().find_map(record))["policy"].clone()
    };
    let mut client = router.client();
    client.send_post("/generate", "X-Request-Id: early\r\n", STREAM);
    client.reader.head().expect("a head");
    switch(&router, &file, "round_robin", "turn", &worker);
    go.open();
    for chunk in [TOKEN, DONE, b""] {
        assert_eq!(client.reader.chunk().expect("a chunk"), chunk);
    }
    assert_eq!(policy_of("early"), "cache_aware");
    assert_eq!(router.client().post("/generate", "X-Request-Id: late\r\n", STREAM).status(), 200);
    assert_eq!(policy_of("late"), "round_robin");
    for policy in ["cache_aware", "round_robin"] {
        let labels = r#"worker_type="regular",connection_mode="http",model="unknown""#;
        let series = format!("smg_worker_selection_total{{{labels},policy=\"{policy}\"");
        assert_eq!(router.metric(&series), Some(1.0), "{policy}");
    }
}

#[test]
fn what_no_worker_answered_is_not_believed_whoever_ruled_when_it_failed() {
    let go = Latch::default();
    let when = go.clone();
    let worker = Worker::start(move |conn, request| {
        if request.header("x-do") == Some("fail") {
            when.wait();
            return false;
        }
        conn.answer("200 OK", "", b"{}");
        true
    });
    let file = File::new("cache_aware", &[&worker]);
    let args = ["--config", &file.path(), "--decision-headers", "--disable-retries"];
    let router = Router::start(&[], &args);
    let mut client = router.client();
    client.send_post("/generate", "X-Do: fail\r\n", PROMPT);
    wait_until("it to be there", || router.loads() == [1]);
    switch(&router, &file, "round_robin", "turn", &worker);
    go.open();
    assert_eq!(client.receive().status(), 502);
    switch(&router, &file, "cache_aware", "warm_up", &worker);
    let first = router.post("/generate", PROMPT);
    assert_eq!(first.header("x-router-predicted-tokens"), Some("0"), "nobody has computed it");
    let second = router.post("/generate", PROMPT);
    assert_ne!(second.header("x-router-predicted-tokens"), Some("0"), "somebody has");
}
