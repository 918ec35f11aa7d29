//! Time as it passes: what is added to the engine's own times, and what a worker says when it is late.

use std::io::Read;

use serde_json::json;
use simworker::config::LiveConfig;

use crate::client::{Worker, prompt, read};

/// The value of a series of the first worker.
fn series(worker: &Worker, name: &str) -> f64 {
    let text = worker.get("/metrics").body;
    let line =
        text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Engine seconds from arrival to end.
fn latency(live: LiveConfig, tokens: u32, stream: bool) -> f64 {
    let worker = Worker::with(|config| config.live = live);
    let params = json!({"max_new_tokens": tokens, "ignore_eos": true});
    let answer = worker.post("/generate", &json!({"text": "x", "sampling_params": params, "stream": stream}));
    let last = if stream { answer.events().pop().unwrap() } else { answer.json() };
    last["meta_info"]["e2e_latency"].as_f64().unwrap()
}

#[test]
fn frames_take_their_time_in_the_front_end() {
    let live = LiveConfig { token_overhead_ns: 50_000_000, ..LiveConfig::default() };
    let (usual, streamed) = (latency(LiveConfig::default(), 30, true), latency(live, 30, true));
    assert!(usual < 0.6, "{usual}");
    // 30 frames; the last ones wait for those before them.
    assert!((1.5..1.7).contains(&streamed), "{streamed}");
    assert!(latency(live, 30, false) < 0.6, "a whole answer has no frames");
}

#[test]
fn jitter_is_a_function_of_its_seed() {
    let with =
        |jitter, jitter_seed| latency(LiveConfig { jitter, jitter_seed, ..LiveConfig::default() }, 100, true);
    let (none, one) = (with(0.0, 1), with(0.3, 1));
    assert_eq!(one, with(0.3, 1));
    assert!(one != none && one != with(0.3, 2));
    assert!((one / none - 1.0).abs() < 0.1, "over 100 steps it evens out: {none} {one}");
}

#[test]
fn exact_latencies_are_the_engines() {
    let worker = Worker::start();
    let params = json!({"max_new_tokens": 50, "ignore_eos": true});
    let body = json!({"text": prompt(1, 500), "sampling_params": params, "stream": true});
    let events = worker.post("/generate", &body).events();
    let whole = events.last().unwrap()["meta_info"]["e2e_latency"].as_f64().unwrap();
    let first = series(&worker, "simworker_time_to_first_token_seconds_sum");
    let gaps = series(&worker, "simworker_inter_token_seconds_sum");
    assert_eq!(series(&worker, "simworker_inter_token_seconds_count"), 49.0);
    assert!((first + gaps - whole).abs() < 1e-6, "{first} + {gaps} = {whole}");
    let median = series(&worker, "simworker_inter_token_seconds{worker=\"0\",quantile=\"0.5\"}");
    assert!((median * 49.0 / gaps - 1.0).abs() < 0.02, "steps of one request last about the same: {median}");
    assert!(series(&worker, "simworker_frame_lag_seconds_count") >= 1.0);
    assert!(series(&worker, "simworker_pacer_lag_seconds_count") >= 49.0);
}

#[test]
fn a_worker_in_time_does_not_call_itself_late() {
    // A step takes a second here, of which 3 % are allowed.
    let worker = Worker::at_speed(0.01, |config| config.request_overhead_ns = 0);
    let texts: Vec<String> = (0..8).map(|seed| prompt(seed, 4)).collect();
    let body =
        json!({"text": texts, "sampling_params": {"max_new_tokens": 4, "ignore_eos": true}, "stream": true});
    let mut answer = String::new();
    worker.send("/generate", &body).read_to_string(&mut answer).unwrap();
    assert!(series(&worker, "simworker_frame_lag_seconds_count") >= 16.0);
    assert_eq!(series(&worker, "simworker_saturated{"), 0.0);
    assert_eq!(series(&worker, "simworker_saturated_seconds_total"), 0.0);
}

#[test]
fn many_tokens_are_said_again_as_they_were() {
    let worker = Worker::start();
    let body =
        json!({"text": "x", "sampling_params": {"max_new_tokens": 300, "ignore_eos": true}, "stream": true});
    let events = read(worker.send("/generate", &body)).events();
    let (last, before) = (&events[events.len() - 1], &events[events.len() / 2]);
    assert!(last["text"].as_str().unwrap().starts_with(before["text"].as_str().unwrap()));
    let ids = |event: &serde_json::Value| event["output_ids"].as_array().unwrap().clone();
    assert!(ids(last).starts_with(&ids(before)));
    assert_eq!((ids(last).len(), last["meta_info"]["completion_tokens"].as_u64()), (300, Some(300)));
}
