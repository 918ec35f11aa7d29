//! Answers that are made up, are lies or are garbage.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use serde_json::{Value, json};
use simworker::config::{Compat, Mode, WorkerConfig};

use super::{MODES, both, drain_for, stream};
use crate::client::Worker;

/// A stream of so many tokens on each route that has streams.
fn streams(tokens: u32) -> [(&'static str, Value); 4] {
    let chat = json!([{"role": "user", "content": "x"}]);
    [
        ("/generate", stream(tokens)),
        ("/v1/completions", json!({"prompt": "x", "max_tokens": tokens, "stream": true})),
        ("/v1/chat/completions", json!({"messages": chat, "max_tokens": tokens, "stream": true})),
        // Room is kept for two more.
        ("/v1/responses", json!({"input": "x", "max_output_tokens": tokens + 2, "stream": true})),
    ]
}

/// The data of all events of a stream.
fn events(body: &[u8]) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let mut splitter = protocol::sse::Splitter::default();
    let mut take = |event: protocol::sse::Event<'_>| events.push(event.data.to_vec());
    splitter.push(body, &mut take).unwrap();
    splitter.finish(&mut take).unwrap();
    events
}

#[test]
fn a_status_can_be_made_up_a_few_times_on_a_path() {
    both(&["status=503,times=1,retry-after=7,path=/generate,body={\"no\":1}"], |worker| {
        let tokens = json!({"prompt": "x"});
        assert_eq!(worker.post("/tokenize", &tokens).status, 200);
        let answer = worker.post("/generate", &stream(1));
        assert_eq!((answer.status, answer.body.as_str()), (503, "{\"no\":1}"));
        assert!(answer.head.contains("retry-after: 7\r\n"), "{}", answer.head);
        assert_eq!(worker.post("/generate", &stream(1)).status, 200);
        assert_eq!(worker.control("GET", "/workers/0/faults", "").json()["status"][0]["hits"], 1);
    });
}

#[test]
fn a_fault_may_be_one_workers_alone() {
    let worker = Worker::watched(MODES[1], &["1:status=500"]);
    assert_eq!(worker.post("/generate", &stream(1)).status, 200);
    assert_eq!(worker.second().post("/generate", &stream(1)).status, 500);
}

#[test]
fn health_can_flap() {
    both(&["health=good*2/bad/500"], |worker| {
        let seen: Vec<u16> = (0..6).map(|_| worker.get("/health").status).collect();
        assert_eq!(seen, [200, 200, 503, 500, 200, 200]);
    });
}

#[test]
fn loads_can_be_lies() {
    let set = |worker: &Worker, lie: Value| {
        assert_eq!(
            worker.control("PUT", "/workers/0/faults", &json!({ "loads": lie }).to_string()).status,
            200
        );
    };
    both(&[], |worker| {
        set(worker, json!("negative"));
        assert_eq!(worker.load()["num_running_reqs"], -1);
        set(worker, json!({"num_running_reqs": 77}));
        assert_eq!((&worker.load()["num_running_reqs"], &worker.load()["dp_rank"]), (&json!(77), &json!(0)));
        set(worker, json!("garbage"));
        assert!(serde_json::from_str::<Value>(&worker.get("/v1/loads").body).is_err());
        set(worker, json!(404));
        assert_eq!(worker.get("/v1/loads").status, 404);
        set(worker, json!("hang"));
        let hanging = worker.send_raw(b"GET /v1/loads HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(drain_for(hanging, Duration::from_millis(100)).1, Err(ErrorKind::WouldBlock));
        assert_eq!(worker.get("/health").status, 200);
    });
}

#[test]
fn loads_of_older_engines_can_be_lies() {
    let older = |config: &mut WorkerConfig| config.wire.compat = Compat::Older;
    let worker = Worker::watched_with(50.0, Mode::Engine, &["loads=negative"], older);
    assert_eq!(worker.get("/get_load").json()[0]["num_waiting_reqs"], -1);
}

#[test]
fn loads_can_be_frozen() {
    let worker = Worker::watched_at(1.0, Mode::Engine, &[]);
    let long = worker.send("/generate", &stream(5000));
    worker.wait_until_running(1);
    worker.control("PATCH", "/workers/0/faults", "{\"loads\":\"frozen\"}");
    drop(long);
    worker.wait_to_see("the client left", |seen| seen["totals"]["client_left"] == 1);
    let told = worker.load();
    assert_eq!(told["num_running_reqs"], 1);
    assert_eq!(worker.load()["timestamp"], told["timestamp"]);
    worker.control("PATCH", "/workers/0/faults", "{\"loads\":null}");
    worker.wait_until_idle();
}

#[test]
fn the_clock_of_loads_can_be_off() {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    for (skew, seconds) in [("+1000s", 1000.0), ("-1000s", -1000.0)] {
        let worker = Worker::watched(Mode::Engine, &[&format!("loads-skew={skew}")]);
        let told = worker.get("/v1/loads").json();
        let off = told["loads"][0]["timestamp"].as_f64().unwrap() - now();
        assert!((off - seconds).abs() < 100.0, "{skew}: {off}");
        assert_eq!(told["loads"][0]["num_running_reqs"], 0);
        worker.control("DELETE", "/workers/0/faults", "");
        let right = worker.get("/v1/loads").json();
        assert!((right["loads"][0]["timestamp"].as_f64().unwrap() - now()).abs() < 100.0);
        let (wrong, right) = (told["timestamp"].as_str().unwrap(), right["timestamp"].as_str().unwrap());
        assert_eq!(wrong > right, seconds > 0.0, "{wrong} {right}");
    }
}

#[test]
fn json_can_be_garbage() {
    both(&["garbage=json"], |worker| {
        let whole = worker.post("/generate", &json!({"text": "x"}));
        assert_eq!(whole.status, 200);
        assert!(whole.body.starts_with('{') && serde_json::from_str::<Value>(&whole.body).is_err());
        for (path, body) in streams(3) {
            let streamed = worker.post(path, &body);
            let events = events(streamed.body.as_bytes());
            assert!(events.len() > 1, "{path}");
            assert!(events.iter().all(|data| serde_json::from_slice::<Value>(data).is_err()), "{path}");
        }
    });
}

#[test]
fn events_can_be_garbage() {
    both(&["garbage=sse"], |worker| {
        let whole = worker.post("/generate", &json!({"text": "x"}));
        assert!(whole.json()["text"].is_string(), "a whole answer has no events");
        for (path, body) in streams(9) {
            let mut answer = Vec::new();
            worker.send(path, &body).read_to_end(&mut answer).unwrap();
            let count = |bytes: &[u8]| answer.windows(bytes.len()).filter(|window| *window == bytes).count();
            let text = String::from_utf8_lossy(&answer);
            assert!(count(b"200 OK") == 1 && count(b"\xff") > 0, "{path}: {text}");
            // One of three events has another name, and one lacks its end.
            let (renamed, named) = (count(b"date: "), count(b"data: "));
            assert!(renamed > 0 && named > 0 && named <= 2 * renamed + 1, "{path}: {text}");
            let ends = count(b"\n\n");
            assert!(ends < renamed + named && ends > 0, "{path}: {text}");
        }
    });
}
