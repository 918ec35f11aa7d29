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
