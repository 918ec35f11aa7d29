//! What the metrics say, against what the requests were.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use simworker::config::Mode;
use simworker_core::{EngineRole, PriorityConfig};

use crate::client::{PATIENCE, Worker, prompt, read};
use crate::page::Page;
use crate::pair::Pair;

fn generate(seed: u64, prompt_tokens: u32, tokens: u32) -> Value {
    json!({"text": prompt(seed, prompt_tokens), "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}

/// Looks at the page until it is as it should be.
fn wait_for(worker: &Worker, what: &str, as_it_should_be: impl Fn(&Page) -> bool) -> Page {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = Page::of(worker);
        if as_it_should_be(&page) {
            return page;
        }
        assert!(Instant::now() < deadline, "{what}: {page:#?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn steps_tokens_and_times_are_those_of_the_requests() {
    let worker = Worker::start();
    for _ in 0..2 {
        assert_eq!(worker.post("/generate", &generate(1, 100, 21)).status, 200);
    }
    let page = Page::of(&worker);
    let cases = [
        ("realtime_tokens_total", "mode=\"prefill_compute\"", 100.0 + 1.0),
        ("realtime_tokens_total", "mode=\"prefill_cache\"", 99.0),
        ("realtime_tokens_total", "mode=\"decode\"", 42.0),
        ("cuda_graph_passes_total", "mode=\"prefill_none\"", 2.0),
        ("cuda_graph_passes_total", "mode=\"decode_cuda_graph\"", 40.0),
        ("prompt_tokens_total", "is_streaming=\"false\"", 200.0),
        ("generation_tokens_total", "is_streaming=\"false\"", 42.0),
        ("num_requests_total", "is_streaming=\"false\"", 2.0),
        ("cached_tokens_total", "cache_source=\"device\"", 99.0),
        ("prompt_tokens_histogram_sum", "", 200.0),
        ("uncached_prompt_tokens_histogram_sum", "", 101.0),
        ("generation_tokens_histogram_sum", "", 42.0),
        ("inter_token_latency_seconds_count", "", 40.0),
    ];
    for (name, label, expected) in cases {
        assert_eq!(page.value(name, &[label]), expected, "{name} {label}");
    }
    // One request at a time: each decode step is a gap between two tokens, each prefill step a request's own.
    let busy = |category: &str| page.value("forward_execution_seconds_total", &[category]);
    let (extend, decode) = (busy("category=\"extend\""), busy("category=\"decode\""));
    assert!((decode - page.value("inter_token_latency_seconds_sum", &[])).abs() < 1e-6, "{decode}");
    let prefill = page.value("per_stage_req_latency_seconds_sum", &["stage=\"prefill_forward\""]);
    assert!((extend - prefill).abs() < 1e-6, "{extend} {prefill}");
    // What is neither is idle, and the three add up to the time there was.
    let idle = page.value("scheduler_idle_seconds_total", &[]);
    assert!(idle >= 0.006, "each request was on its way for 3 ms: {idle}");
    let occupancy = page.value("fwd_occupancy", &[]);
    let share = 100.0 * (extend + decode) / (extend + decode + idle);
    assert!((occupancy - share).abs() < 1e-6, "{occupancy} {share}");
    let later = wait_for(&worker, "idle time passes", |page| {
        page.value("scheduler_idle_seconds_total", &[]) > idle + 1.0
    });
    assert!(later.value("fwd_occupancy", &[]) < occupancy, "the share of a longer time is smaller");
}

#[test]
fn no_counter_falls_while_requests_come_and_go() {
    // A prefill of 8,000 tokens takes 0.6 s of engine time.
    let worker = Worker::at_speed(3.0, |_| ());
    let mut former =
        wait_for(&worker, "some idle time", |page| page.value("scheduler_idle_seconds_total", &[]) > 0.5);
    let prefill = worker.send("/generate", &generate(1, 8_000, 1));
    let mut idle_in_step = Vec::new();
    loop {
        let page = Page::of(&worker);
        page.assert_follows(&former);
        let counted = page.value("cuda_graph_passes_total", &["prefill_none"]);
        idle_in_step.push(page.value("scheduler_idle_seconds_total", &[]));
        former = page;
        if counted > 0.0 {
            break;
        }
    }
    assert_eq!(read(prefill).status, 200);
    let (longest, all) = (longest_run(&idle_in_step), idle_in_step.len());
    assert!(longest > all / 2, "most of this time a step was in progress: {longest} of {all}");
    let body = |seed| {
        json!({"text": prompt(seed, 500), "stream": seed % 2 == 0, "rid": format!("r{seed}"),
        "sampling_params": {"max_new_tokens": 20, "ignore_eos": true}})
    };
    let open: Vec<_> = (0..8).map(|seed| worker.send("/generate", &body(seed))).collect();
    worker.post("/abort_request", &json!({"rid": "r3"}));
    worker.get("/v1/loads");
    for connection in open {
        read(connection);
        let page = Page::of(&worker);
        page.assert_follows(&former);
        former = page;
    }
}

/// The most of the same values in a row.
fn longest_run(values: &[f64]) -> usize {
    values.chunk_by(|a, b| a == b).map(<[f64]>::len).max().unwrap_or_default()
}

#[test]
fn a_process_that_starts_anew_counts_from_nothing() {
    let speed = 50.0;
    let worker = Worker::watched_at(speed, Mode::Engine, &[]);
    worker.post("/generate", &generate(1, 2_000, 20));
    let idle = |page: &Page| page.value("scheduler_idle_seconds_total", &[]);
    let before = wait_for(&worker, "a former life", |page| idle(page) > 5.0);
    let began = Instant::now();
    worker.control("POST", "/workers/0/restart", "");
    let page = wait_for(&worker, "the next one", |page| idle(page) < 5.0 || began.elapsed().as_secs() > 5);
    let most = began.elapsed().as_secs_f64() * speed;
    assert!(idle(&page) <= most, "idle for {} s in {most} s: the former life is none of it", idle(&page));
    assert_eq!(page.value("fwd_occupancy", &[]), 0.0);
    assert_eq!(page.value("realtime_tokens_total", &["prefill_compute"]), 0.0);
    assert!(before.value("fwd_occupancy", &[]) > 0.0);
    worker.post("/generate", &generate(1, 2_000, 20));
    let after = Page::of(&worker);
    after.assert_follows(&page);
    assert!(after.value("fwd_occupancy", &[]) > 0.0);
}

#[test]
fn requests_may_stay_out_of_the_metrics() {
    let worker = Worker::start();
    let mut body = generate(1, 50, 3);
    body["log_metrics"] = false.into();
    worker.post("/generate", &body);
    let page = Page::of(&worker);
    assert!(page.find("num_requests_total", &[]).is_empty());
    assert_eq!(page.value("e2e_request_latency_seconds_count", &["\"false\""]), 0.0);
    assert_eq!(page.value("time_to_first_token_seconds_count", &["\"false\""]), 0.0);
    assert_eq!(page.value("realtime_tokens_total", &["decode"]), 3.0, "the scheduler counts its work");
    body["log_metrics"] = true.into();
    worker.post("/generate", &body);
    assert_eq!(Page::of(&worker).value("num_requests_total", &[]), 1.0);
    body["log_metrics"] = "no".into();
    assert_eq!(worker.post("/generate", &body).status, 400);
}

#[test]
fn routing_keys_of_those_that_run_are_counted() {
    let worker = Worker::start();
    let of = |seed, key: &str| {
        let mut body = generate(seed, 50, 60_000);
        body["routing_key"] = key.into();
        worker.send("/generate", &body)
    };
    let open = [of(1, "a"), of(2, "b"), of(3, "a")];
    worker.wait_until_running(3);
    wait_for(&worker, "two keys", |page| page.value("num_unique_running_routing_keys", &[]) == 2.0);
    drop(open);
}

#[test]
fn priorities_are_a_label_where_they_count() {
    let plain = Page::of(&Worker::start());
    assert!(plain.find("num_running_reqs", &["priority="]).is_empty());
    let worker = Worker::with(|config| {
        config.engine.max_running = 1;
        config.engine.queue.priority =
            Some(PriorityConfig { preempts_above: None, ..PriorityConfig::default() });
    });
    let of = |seed, tokens, priority: Value| {
        let mut body = generate(seed, 50, tokens);
        body["priority"] = priority;
        body
    };
    worker.post("/generate", &of(1, 3, 5.into()));
    worker.post("/generate", &of(2, 3, Value::Null));
    let open = [of(3, 60_000, 7.into()), of(4, 3, 5.into()), of(5, 3, Value::Null)];
    let mut connections = Vec::new();
    for (running, body) in open.iter().enumerate() {
        connections.push(worker.send("/generate", body));
        worker.wait_for("it is there", |load| load["num_waiting_reqs"] == running);
        worker.wait_until_running(1);
    }
    let value = |page: &Page, name: &str, priority: &str| {
        page.find(name, &[&format!(",priority=\"{priority}\"")]).first().map(|(_, value)| *value)
    };
    let page = wait_for(&worker, "two wait", |page| value(page, "num_queue_reqs", "") == Some(2.0));
    for (name, priority, expected) in [
        ("num_running_reqs", "", 1.0),
        ("num_running_reqs", "7", 1.0),
        ("num_running_reqs", "5", 0.0),
        ("num_queue_reqs", "5", 1.0),
        ("num_queue_reqs", "7", 0.0),
        ("num_queue_reqs", "None", 1.0),
        ("num_requests_total", "5", 1.0),
        ("num_requests_total", "", 1.0),
        ("generation_tokens_total", "5", 3.0),
        ("e2e_request_latency_seconds_count", "5", 1.0),
        ("time_to_first_token_seconds_count", "7", 1.0),
        ("queue_time_seconds_count", "", 2.0),
    ] {
        assert_eq!(value(&page, name, priority), Some(expected), "{name} of {priority:?}");
    }
    for (series, _) in page.counters().filter(|(series, _)| series.starts_with("sglang:")) {
        assert!(series.contains("priority=\""), "{series}");
    }
    drop(connections);
}

#[test]
fn transfers_are_counted_where_they_begin() {
    let pair = Pair::start();
    let (first, _) = pair.both("/generate", &crate::pair::generate(&prompt(1, 2_000), 3), 7);
    assert_eq!(first.status, 200);
    let page = Page::parse(&pair.get(0, "/metrics").body);
    let sum = |name: &str| {
        assert_eq!(page.value(&format!("{name}_count"), &[]), 1.0, "{name}");
        page.value(&format!("{name}_sum"), &[])
    };
    let (ms, mb, gb_s) =
        (sum("kv_transfer_latency_ms"), sum("kv_transfer_total_mb"), sum("kv_transfer_speed_gb_s"));
    assert_eq!(mb, 2_000.0 * 131_072.0 / f64::from(1 << 20), "the preset has 131,072 bytes a token");
    assert!((gb_s - mb / 1024.0 / (ms / 1e3)).abs() < 1e-9, "{gb_s}");
    let last = pair.get(0, "/v1/loads").json()["loads"][0]["disaggregation"].clone();
    let told = |key: &str| last[key].as_f64().unwrap();
    assert!((told("kv_transfer_latency_ms") - ms).abs() < 1e-6, "{last}");
    assert!((told("kv_transfer_speed_gb_s") - gb_s).abs() < 1e-6, "{last}");
    let decode = Page::parse(&pair.get(1, "/metrics").body);
    assert!(decode.find("kv_transfer_total_mb_count", &[]).is_empty(), "the decode side has none");
    // A transfer to nobody is none.
    let lone = Worker::with(|config| config.engine.role = EngineRole::Prefill);
    assert_eq!(lone.get("/health_generate").status, 200);
    assert_eq!(Page::of(&lone).value("kv_transfer_total_mb_count", &[]), 0.0);
}
