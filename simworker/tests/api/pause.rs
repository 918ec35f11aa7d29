//! `/pause_generation` and `/continue_generation`.

use serde_json::{Value, json};

use crate::client::{Worker, prompt, read};

fn generate(seed: u64, tokens: u32) -> Value {
    json!({"text": prompt(seed, 50), "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}

#[test]
fn requests_stay_and_go_on() {
    for mode in ["in_place", "retract"] {
        let worker = Worker::start();
        let running = worker.send("/generate", &generate(1, 2_000));
        worker.wait_until_running(1);
        let answer = worker.post("/pause_generation", &json!({"mode": mode}));
        assert_eq!(answer.body, r#"{"message":"Generation paused successfully.","status":"ok"}"#);
        let late = worker.send("/generate", &generate(2, 3));
        let gauge = |name: &str| {
            let text = worker.get("/metrics").body;
            let line = text.lines().find(|line| line.starts_with(&format!("sglang:{name}{{"))).unwrap();
            line.rsplit(' ').next().unwrap().to_owned()
        };
        // The step that was in progress may still end.
        let tokens = || gauge("realtime_tokens_total");
        let before = tokens();
        assert_eq!(before, tokens(), "nothing is made meanwhile");
        let answer = worker.post("/continue_generation", &json!({}));
        assert_eq!(answer.body, r#"{"message":"Generation continued successfully.","status":"ok"}"#);
        let whole = read(running).json();
        assert_eq!(whole["meta_info"]["completion_tokens"], 2_000, "{mode}");
        assert_eq!(whole["meta_info"]["num_retractions"], u32::from(mode == "retract"), "{mode}");
        assert_eq!(read(late).json()["meta_info"]["completion_tokens"], 3);
        worker.wait_until_idle();
    }
}

#[test]
fn by_default_requests_are_aborted_and_new_ones_wait() {
    let worker = Worker::start();
    let running = worker.send("/generate", &generate(1, 60_000));
    worker.wait_until_running(1);
    assert_eq!(worker.post("/pause_generation", &json!({})).status, 200);
    assert_eq!(read(running).json()["meta_info"]["finish_reason"]["type"], "abort");
    let late = worker.send("/generate", &generate(2, 3));
    assert_eq!(worker.post("/continue_generation", &json!({})).status, 200);
    assert_eq!(read(late).json()["meta_info"]["completion_tokens"], 3);
    let wrong = worker.post("/pause_generation", &json!({"mode": "softly"}));
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("in_place"), "{}", wrong.body);
}

#[test]
fn a_pause_that_aborts_ends_all_that_wait_run_or_are_half_computed() {
    let worker = Worker::with(|config| {
        config.engine.max_running = 3;
        // A long prompt is between two of its parts most of the time.
        config.engine.prefill_interval.steps = 2_000;
    });
    let mut open: Vec<_> = (0..2).map(|seed| worker.send("/generate", &generate(seed, 60_000))).collect();
    worker.wait_until_running(2);
    let long = json!({"text": prompt(9, 60_000), "sampling_params": {"max_new_tokens": 5}});
    open.push(worker.send("/generate", &long));
    worker
        .wait_for("a part is computed", |load| load["total_prefill_uncached_tokens"].as_u64() > Some(8_000));
    open.extend((3..6).map(|seed| worker.send("/generate", &generate(seed, 60_000))));
    worker.wait_for("three wait", |load| load["num_waiting_reqs"] == 3);
    assert_eq!(worker.post("/pause_generation", &json!({"mode": "abort"})).status, 200);
    // Without another step: the pause lasts.
    for connection in open {
        let reason = read(connection).json()["meta_info"]["finish_reason"].clone();
        assert_eq!(reason["type"], "abort", "{reason}");
    }
    assert_eq!(worker.get("/flush_cache").status, 200, "nobody holds KV");
    let late = worker.send("/generate", &generate(7, 3));
    worker.post("/continue_generation", &json!({}));
    assert_eq!(read(late).json()["meta_info"]["completion_tokens"], 3);
}

#[test]
fn a_flush_in_a_pause_needs_free_kv_only() {
    let worker = Worker::start();
    let open: Vec<_> = (0..3).map(|seed| worker.send("/generate", &generate(seed, 3_000))).collect();
    worker.wait_until_running(3);
    worker.post("/pause_generation", &json!({"mode": "in_place"}));
    let busy = worker.get("/flush_cache");
    assert_eq!((busy.status, busy.body.as_str()), (400, "Flush cache failed.\n"), "they hold KV");
    worker.post("/pause_generation", &json!({"mode": "retract"}));
    // The step that was in progress may still have to end.
    crate::client::wait_until("the cache is flushed", || worker.get("/flush_cache").status == 200);
    let waits = worker.get("/flush_cache?timeout=0.02");
    let expected = (400, "Timed out waiting for idle state.");
    assert_eq!((waits.status, waits.body.as_str()), expected, "with a timeout it waits for idleness");
    worker.post("/continue_generation", &json!({}));
    for connection in open {
        let meta = read(connection).json()["meta_info"].clone();
        assert_eq!((&meta["completion_tokens"], &meta["num_retractions"]), (&json!(3_000), &json!(1)));
    }
}
