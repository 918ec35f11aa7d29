//! Health, information, loads and metrics: exact keys.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use simworker::config::{Compat, Health};

use crate::client::{Worker, keys, prompt, words};

#[test]
fn health() {
    let worker = Worker::start();
    for path in ["/health", "/health_generate", "/ready", "/ping"] {
        assert_eq!(worker.get(path).status, 200, "{path}");
    }
    assert_eq!(worker.get("/nowhere").status, 404);
    assert_eq!(worker.get("/generate").status, 405);
}

#[test]
fn health_by_generation_makes_tokens() {
    let worker = Worker::with(|config| config.wire.health = Health::Generation);
    let start = Instant::now();
    assert_eq!(worker.get("/health").status, 200);
    assert!(start.elapsed() >= Duration::from_secs(1), "the first look comes after a second");
    let metrics = worker.get("/metrics").body;
    let decoded = |line: &str| {
        line.starts_with("sglang:realtime_tokens_total{") && line.ends_with(",mode=\"decode\"} 1")
    };
    assert!(metrics.lines().any(decoded), "{metrics}");
    assert!(!metrics.contains("\nsglang:num_requests_total{"), "a probe is no request");
}

#[test]
fn an_engine_that_stands_still_is_not_healthy_at_once() {
    let worker = Worker::with(|config| config.wire.health = Health::Generation);
    assert_eq!(worker.post("/pause_generation", &json!({"mode": "in_place"})).status, 200);
    let pending = worker.open_health();
    pending.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    assert!(std::io::Read::read(&mut &pending, &mut [0; 1]).is_err(), "nothing after the first look");
    assert_eq!(worker.post("/continue_generation", &json!({})).status, 200);
    assert_eq!(crate::client::read(pending).status, 200);
}

#[test]
fn model_info() {
    let worker = Worker::start();
    let expected = words(
        "model_path served_model_name tokenizer_path is_generation preferred_sampling_params weight_version load_format \
         reasoning_parser tool_call_parser disaggregation_mode has_image_understanding has_audio_understanding model_type \
         architectures",
    );
    for path in ["/model_info", "/get_model_info"] {
        let answer = worker.get(path);
        assert_eq!(keys(&answer.body), expected, "{path}");
        assert_eq!(answer.json()["served_model_name"], "mock");
        assert_eq!(answer.json()["model_path"], "org/mock");
    }
}

#[test]
fn server_info_has_what_routers_read() {
    let worker = Worker::start();
    for path in ["/server_info", "/get_server_info"] {
        let info = worker.get(path).json();
        let read = "model_path served_model_name tp_size dp_size version max_total_num_tokens max_running_requests \
            disaggregation_mode page_size kv_events chunked_prefill_size max_prefill_tokens schedule_policy \
            load_balance_method disaggregation_bootstrap_port enable_dp_attention max_req_input_len status startup_time \
            internal_states frontend";
        for key in words(read) {
            assert!(info.get(&key).is_some(), "{path}: {key}");
        }
        assert_eq!(info["max_total_num_tokens"], 444_500);
        assert_eq!(info["max_req_input_len"], 131_066);
        assert_eq!(info["dp_size"], 1);
        assert_eq!(info["schedule_policy"], "fcfs");
        assert_eq!(info["internal_states"][0]["effective_max_running_requests_per_dp"], 2048);
        assert_eq!(info["internal_states"][0]["memory_usage"]["token_capacity"], 444_500);
    }
}

#[test]
fn models() {
    let worker = Worker::start();
    let list = worker.get("/v1/models");
    assert_eq!(keys(&list.body), ["object", "data"]);
    let card = worker.get("/v1/models/mock");
    assert_eq!(keys(&card.body), words("id object created owned_by root parent max_model_len"));
    assert_eq!(list.json()["data"][0], card.json());
    let unknown = worker.get("/v1/models/other/name");
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["error"]["code"], "model_not_found");
}

const CORE: &str = "timestamp dp_rank num_running_reqs num_waiting_reqs num_waiting_uncached_tokens num_used_tokens \
    num_total_tokens num_active_tokens num_prealloc_ready_tokens max_total_num_tokens max_running_requests token_usage \
    gen_throughput cache_hit_rate utilization total_prefill_uncached_tokens total_prefill_busy_us decode_moments";

#[test]
fn loads_have_the_sections_asked_for() {
    let worker = Worker::start();
    let cases = [
        ("", "memory disaggregation queues"),
        ("?include=all", "memory disaggregation queues"),
        ("?include=core", ""),
        ("?include=core,queues", "queues"),
        ("?include=memory,%20disagg&dp_rank=0", "memory disaggregation"),
        ("?include=spec,lora", ""),
    ];
    for (query, sections) in cases {
        let answer = worker.get(&format!("/v1/loads{query}"));
        assert_eq!(
            keys(&answer.body),
            words("timestamp version accelerator num_accelerators loads"),
            "{query}"
        );
        let (_, entry) = answer.body.split_once("\"loads\":[").unwrap();
        assert_eq!(keys(entry.trim_end_matches("]}")), words(&format!("{CORE} {sections}")), "{query}");
    }
    let all = worker.get("/v1/loads").json()["loads"][0].clone();
    assert_eq!(all["queues"], json!({"waiting":0,"grammar":0,"paused":0,"retracted":0,"prealloc_ready":0}));
    assert_eq!(all["disaggregation"]["mode"], "null");
    assert_eq!(all["decode_moments"], Value::Null, "nothing was decoded yet");
    assert_eq!(all["memory"]["kv_cache_gb"], 54.26);
}

#[test]
fn wrong_queries_of_loads_are_bad_requests() {
    let worker = Worker::start();
    assert_eq!(worker.get("/v1/loads?dp_rank=1").json()["loads"], json!([]), "there is no such rank");
    assert_eq!(worker.get("/v1/loads?format=xml&include=all,x").status, 200, "as SGLang does");
    for query in ["include=everything", "include=core,x", "dp_rank=x"] {
        let answer = worker.get(&format!("/v1/loads?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.json()["object"], "error", "{query}");
    }
}

#[test]
fn loads_count_what_runs() {
    let worker = Worker::start();
    let body =
        json!({"text": prompt(1, 100), "sampling_params": {"max_new_tokens": 60_000, "ignore_eos": true}});
    let running = worker.send("/generate", &body);
    worker.wait_until_running(1);
    let load = worker.load();
    assert!(load["num_used_tokens"].as_u64().unwrap() >= 100, "{load}");
    assert_eq!(load["num_used_tokens"], load["num_total_tokens"]);
    let text = worker.get("/v1/loads?format=prometheus").body;
    assert!(text.contains("sglang_num_running_reqs{dp_rank=\"0\"} 1\n"), "{text}");
    drop(running);
}

#[test]
fn an_older_worker_tells_sums_and_has_the_older_route() {
    assert_eq!(Worker::start().get("/get_load").status, 404, "it is gone from current engines");
    let worker = Worker::with(|config| (config.wire.compat, config.dp_size) = (Compat::Older, 2));
    let mut body =
        json!({"text": prompt(1, 100), "sampling_params": {"max_new_tokens": 60_000, "ignore_eos": true}});
    body["routed_dp_rank"] = 1.into();
    let running = worker.send("/generate", &body);
    worker.wait_for_loads("one runs", |loads| loads["aggregate"]["total_running_reqs"] == 1);
    let answer = worker.get("/v1/loads?include=core");
    let top = "timestamp version accelerator num_accelerators dp_rank_count loads aggregate";
    assert_eq!(keys(&answer.body), words(top));
    let loads = answer.json();
    assert_eq!((&loads["dp_rank_count"], &loads["loads"][1]["num_total_reqs"]), (&json!(2), &json!(1)));
    let (_, aggregate) = answer.body.split_once("\"aggregate\":").unwrap();
    let sums = "total_running_reqs total_waiting_reqs total_reqs total_used_tokens total_tokens avg_token_usage \
        avg_throughput avg_utilization";
    assert_eq!(keys(&aggregate[..aggregate.len() - 1]), words(sums));
    let used = loads["loads"][1]["num_used_tokens"].as_u64().unwrap();
    assert_eq!(loads["aggregate"]["total_used_tokens"], used, "the other rank is idle");
    let answer = worker.get("/get_load");
    let (first, second) = answer.body.trim_matches(['[', ']']).split_once("},{").unwrap();
    assert_eq!(keys(&format!("{first}}}")), words("dp_rank num_reqs num_waiting_reqs num_tokens"));
    assert!(second.contains("\"num_reqs\":1,\"num_waiting_reqs\":0"), "{second}");
    drop(running);
}

#[test]
fn loads_are_of_the_last_report() {
    // A token takes about 10 ms, and a report comes every 15 tokens: what is told stays the same in between.
    let worker = Worker::at_speed(0.5, |_| ());
    let body =
        json!({"text": prompt(1, 100), "sampling_params": {"max_new_tokens": 60_000, "ignore_eos": true}});
    let running = worker.send("/generate", &body);
    worker.wait_until_running(1);
    let moments = |load: &Value| load["decode_moments"][0].as_f64().unwrap_or(0.0);
    let first = worker.load();
    worker.wait_for("another report", |load| moments(load) > moments(&first));
    let second = worker.load();
    assert_eq!(moments(&second) - moments(&first), 15.0, "{first} {second}");
    assert!(second["timestamp"].as_f64() > first["timestamp"].as_f64());
    drop(running);
}

#[test]
fn one_report_has_one_timestamp() {
    let worker = Worker::at_speed(0.5, |_| ());
    let body =
        json!({"text": prompt(1, 100), "sampling_params": {"max_new_tokens": 60_000, "ignore_eos": true}});
    let running = worker.send("/generate", &body);
    worker.wait_until_running(1);
    let looks: Vec<Value> = (0..60).map(|_| worker.load()).collect();
    let mut unchanged = 0;
    for pair in looks.windows(2) {
        if pair[0]["decode_moments"] == pair[1]["decode_moments"] {
            assert_eq!(pair[0], pair[1]);
            unchanged += 1;
        }
    }
    assert!(unchanged > 0, "a report lasts for 15 steps of 20 ms");
    drop(running);
}

#[test]
fn with_metrics_answers_tell_their_times() {
    let started = unix_seconds();
    let worker = Worker::start();
    let mut body =
        json!({"text": prompt(1, 500), "sampling_params": {"max_new_tokens": 11, "ignore_eos": true}});
    let answer = worker.post("/generate", &body);
    let (_, meta) = answer.body.split_once("\"meta_info\":").unwrap();
    let expected = "id finish_reason prompt_tokens weight_version num_retractions forward_entry_time \
        prefill_finished_time queue_time reasoning_tokens completion_tokens cached_tokens cached_tokens_details dp_rank \
        e2e_latency request_received_ts first_token_latency api_server_dispatch_finish_ts request_finished_ts \
        decode_throughput response_sent_to_client_ts";
    assert_eq!(keys(&meta[..meta.len() - 1]), words(expected));
    let meta = &answer.json()["meta_info"];
    let at = |key: &str| meta[key].as_f64().unwrap_or_else(|| panic!("{key}: {meta}"));
    let moments = [
        "request_received_ts",
        "api_server_dispatch_finish_ts",
        "forward_entry_time",
        "prefill_finished_time",
        "request_finished_ts",
    ]
    .map(at);
    assert!(moments.is_sorted() && moments[0] >= started, "{moments:?}");
    assert!(moments[4] <= unix_seconds(), "{moments:?}");
    // Spans are of the engine, which is fifty times as fast as the clock on the wall.
    let span = |from: usize, to: usize| (moments[to] - moments[from]) * 50.0;
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-3, "{a} {b}: {meta}");
    near(span(0, 1), 0.003);
    near(span(1, 2), at("queue_time"));
    near(span(0, 3), at("first_token_latency"));
    near(span(0, 4), at("e2e_latency"));
    near(10.0 / at("decode_throughput"), at("e2e_latency") - at("first_token_latency"));
    body["stream"] = true.into();
    let events = worker.post("/generate", &body).events();
    let has = |event: &Value, key: &str| event["meta_info"].get(key).is_some();
    assert!(events.iter().all(|event| has(event, "queue_time")));
    let (last, before) = events.split_last().unwrap();
    assert!(
        has(last, "request_finished_ts") && !before.iter().any(|event| has(event, "request_finished_ts"))
    );
    let silent = Worker::with(|config| config.wire.enable_metrics = false);
    let events = silent.post("/generate", &body).events();
    assert!(!events.iter().any(|event| has(event, "queue_time") || has(event, "request_received_ts")));
}

fn unix_seconds() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn metrics_follow_what_happened() {
    let worker = Worker::start();
    let body = json!({"text": prompt(1, 50), "sampling_params": {"max_new_tokens": 3}});
    worker.post("/generate", &body);
    worker.post("/generate", &body);
    let text = worker.get("/metrics").body;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("sglang:{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    let cases = [
        ("num_running_reqs", 0.0),
        ("num_queue_reqs", 0.0),
        ("token_usage", 0.0),
        ("num_used_tokens", 0.0),
        ("max_total_num_tokens", 444_500.0),
        ("prompt_tokens_total", 100.0),
        ("generation_tokens_total", 6.0),
        ("cached_tokens_total", 49.0),
        ("num_requests_total", 2.0),
        ("num_aborted_requests_total", 0.0),
        ("num_retracted_requests_total", 0.0),
        ("evicted_tokens_total", 0.0),
        ("cache_hit_rate", 0.98),
        ("num_retracted_reqs", 0.0),
        ("num_paused_reqs", 0.0),
        ("is_cuda_graph", 0.0),
    ];
    for (name, expected) in cases {
        assert_eq!(value(name), Some(expected), "{name}\n{text}");
    }
    assert!(value("gen_throughput").is_some());
    assert!(text.contains("# TYPE sglang:num_running_reqs gauge\n"));
    assert!(
        text.contains(
            "sglang:prompt_tokens_total{model_name=\"mock\",engine_type=\"unified\",is_streaming=\"false\"} "
        ),
        "{text}"
    );
}

#[test]
fn latencies_are_histograms_in_engine_time() {
    let worker = Worker::at_speed(200.0, |_| ());
    let mut body = json!({"text": prompt(1, 50), "sampling_params": {"max_new_tokens": 31}});
    worker.post("/generate", &body);
    body["stream"] = true.into();
    worker.post("/generate", &body);
    worker.post("/generate", &body);
    assert_eq!(worker.get("/health_generate").status, 200);
    let text = worker.get("/metrics").body;
    let value = |series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("sglang:{series} ")));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("{series}\n{text}"))
    };
    let usual = "model_name=\"mock\",engine_type=\"unified\"";
    for (name, streamed) in [("time_to_first_token_seconds", true), ("e2e_request_latency_seconds", false)] {
        for (is_streaming, count) in [(false, 1.0), (true, 2.0)] {
            let labels = format!("{usual},is_streaming=\"{is_streaming}\"");
            assert_eq!(value(&format!("{name}_count{{{labels}}}")), count, "{name}: a probe is no request");
            assert_eq!(value(&format!("{name}_bucket{{{labels},le=\"+Inf\"}}")), count);
            // A prompt takes about 14 ms, and each of the 30 further tokens 10 ms.
            let in_100_ms = if streamed { count } else { 0.0 };
            assert_eq!(value(&format!("{name}_bucket{{{labels},le=\"0.1\"}}")), in_100_ms, "{text}");
            assert_eq!(value(&format!("{name}_bucket{{{labels},le=\"1.0\"}}")), count);
        }
    }
    let between = |le: &str| value(&format!("inter_token_latency_seconds_bucket{{{usual},le=\"{le}\"}}"));
    assert_eq!((between("0.01"), between("0.015"), between("+Inf")), (0.0, 90.0, 90.0));
    let sum = value(&format!("inter_token_latency_seconds_sum{{{usual}}}"));
    assert!((0.9..1.1).contains(&sum), "{sum}");
    let ranks = "tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\"";
    assert_eq!(value(&format!("queue_time_seconds_count{{{usual},{ranks}}}")), 3.0);
    assert_eq!(text.matches("# TYPE sglang:time_to_first_token_seconds histogram\n").count(), 1);
}
