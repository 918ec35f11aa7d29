//! `/generate`.

use protocol::tokenizer::{block_token, decode, encode, reply_block};
use serde_json::{Value, json};

use crate::client::{Worker, keys, prompt, words};

fn ask(text: &str, tokens: u32) -> Value {
    json!({"text": text, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}

fn stream(text: &str, tokens: u32) -> Value {
    let mut body = ask(text, tokens);
    body["stream"] = true.into();
    body
}

fn reply(prompt: &str, tokens: u32) -> (Vec<u32>, String) {
    let block = reply_block(&encode(prompt));
    let ids: Vec<u32> = (0..tokens).map(|i| block_token(block, i)).collect();
    let text = decode(&ids);
    (ids, text)
}

const META: &str = "id finish_reason prompt_tokens weight_version num_retractions reasoning_tokens completion_tokens \
    cached_tokens cached_tokens_details dp_rank e2e_latency response_sent_to_client_ts";

#[test]
fn a_whole_answer() {
    let worker = Worker::with(|config| config.wire.enable_metrics = false);
    let mut body = ask("Hello, world", 5);
    body["rid"] = "mine".into();
    let answer = worker.post("/generate", &body);
    assert_eq!(keys(&answer.body), ["text", "output_ids", "meta_info"]);
    let (_, meta) = answer.body.split_once("\"meta_info\":").unwrap();
    assert_eq!(keys(&meta[..meta.len() - 1]), words(META));
    let (ids, text) = reply("Hello, world", 5);
    let json = answer.json();
    assert_eq!((&json["output_ids"], &json["text"]), (&json!(ids), &json!(text)));
    assert!(text.starts_with(' '));
    let meta = &json["meta_info"];
    assert_eq!(meta["id"], "mine");
    assert_eq!(meta["finish_reason"], json!({"type": "length", "length": 5}));
    assert_eq!(meta["prompt_tokens"], encode("Hello, world").len());
    assert_eq!(meta["completion_tokens"], 5);
    assert_eq!(meta["cached_tokens_details"], json!({"device": 0, "host": 0}));
}

#[test]
fn a_repeated_prompt_is_cached_but_for_its_last_token() {
    let worker = Worker::start();
    let prompt = prompt(1, 300);
    let cached = || worker.post("/generate", &ask(&prompt, 4)).json()["meta_info"]["cached_tokens"].clone();
    assert_eq!(cached(), 0);
    assert_eq!(cached(), 299);
    let mut other = ask(&prompt, 4);
    other["extra_key"] = "tenant".into();
    assert_eq!(worker.post("/generate", &other).json()["meta_info"]["cached_tokens"], 0, "another namespace");
}

#[test]
fn a_next_turn_continues_the_reply() {
    let worker = Worker::start();
    let first = prompt(1, 100);
    let text = worker.post("/generate", &ask(&first, 20)).json()["text"].as_str().unwrap().to_owned();
    let next = format!("{first}{text} And now?");
    let answer = worker.post("/generate", &ask(&next, 1)).json();
    assert_eq!(answer["meta_info"]["cached_tokens"], 119, "all but the last sampled token has KV");
}

#[test]
fn text_and_ids_are_the_same_prompt() {
    let worker = Worker::start();
    let text = prompt(1, 64);
    worker.post("/generate", &ask(&text, 1));
    let body = json!({"input_ids": encode(&text), "sampling_params": {"max_new_tokens": 1}});
    let answer = worker.post("/generate", &body).json();
    assert_eq!(answer["meta_info"]["cached_tokens"], 63);
    assert_eq!(answer["meta_info"]["prompt_tokens"], 64);
}

#[test]
fn a_cumulative_stream_repeats_the_text() {
    let worker = Worker::start();
    let answer = worker.post("/generate", &stream("Hello, world", 40));
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    let events = answer.events();
    let (ids, text) = reply("Hello, world", 40);
    let mut last = 0;
    for event in &events {
        let count = event["meta_info"]["completion_tokens"].as_u64().unwrap() as usize;
        assert!(count > last, "every frame has something new");
        assert_eq!(event["output_ids"], json!(ids[..count]));
        assert_eq!(event["text"], text[..4 * count]);
        last = count;
    }
    assert_eq!(last, 40);
    let (end, before) = events.split_last().unwrap();
    assert!(before.iter().all(|event| event["meta_info"]["finish_reason"].is_null()));
    assert!(before.iter().all(|event| event["meta_info"].get("e2e_latency").is_none()));
    assert_eq!(end["meta_info"]["finish_reason"]["type"], "length");
    assert!(end["meta_info"]["e2e_latency"].as_f64().unwrap() > 0.0);
}

#[test]
fn with_overlap_each_token_has_its_own_frame() {
    // Slow, so that a reader is never a whole token late.
    let worker = Worker::at_speed(0.1, |config| config.engine.overlap = true);
    for tokens in 1..=3 {
        let events = worker.post("/generate", &stream("Hello, world", tokens)).events();
        let counts: Vec<&Value> =
            events.iter().map(|event| &event["meta_info"]["completion_tokens"]).collect();
        assert_eq!(json!(counts), json!((1..=tokens).collect::<Vec<_>>()));
    }
}

#[test]
fn an_incremental_stream_has_each_token_once() {
    let worker = Worker::with(|config| config.incremental_streaming_output = true);
    let events = worker.post("/generate", &stream("Hello, world", 40)).events();
    let text: String = events.iter().map(|event| event["text"].as_str().unwrap()).collect();
    let ids: Vec<u64> = events
        .iter()
        .flat_map(|e| e["output_ids"].as_array().unwrap())
        .map(|id| id.as_u64().unwrap())
        .collect();
    let expected = reply("Hello, world", 40);
    assert_eq!(text, expected.1);
    assert_eq!(ids, expected.0.iter().map(|id| u64::from(*id)).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["meta_info"]["completion_tokens"], 40);
}

#[test]
fn the_stream_interval_makes_fewer_frames() {
    // In real time a token takes 7 ms, so that a reader is hardly ever a whole interval late.
    let worker = Worker::at_speed(1.0, |config| config.stream_interval = 16);
    let events = worker.post("/generate", &stream("Hello, world", 40)).events();
    let counts: Vec<u64> =
        events.iter().map(|event| event["meta_info"]["completion_tokens"].as_u64().unwrap()).collect();
    let [first, rest @ ..] = counts.as_slice() else { panic!("no frames") };
    assert!(*first < 17, "the first token does not wait for the interval: {counts:?}");
    assert!(rest.len() <= 3 && rest.iter().all(|count| *count >= 17), "{counts:?}");
    assert_eq!(counts.last(), Some(&40));
}

#[test]
fn a_batch_is_a_list_and_its_stream_has_indices() {
    let worker = Worker::start();
    let mut body = json!({
        "text": ["one two", "three four five"], "rid": ["a", "b"],
        "sampling_params": [{"max_new_tokens": 2}, {"max_new_tokens": 3}],
    });
    let answers = worker.post("/generate", &body).json();
    let of = |index: usize, key: &str| answers[index]["meta_info"][key].clone();
    assert_eq!((of(0, "id"), of(1, "id")), (json!("a"), json!("b")));
    assert_eq!((of(0, "completion_tokens"), of(1, "completion_tokens")), (json!(2), json!(3)));
    assert_eq!(answers[1]["text"], reply("three four five", 3).1);
    body["stream"] = true.into();
    let events = worker.post("/generate", &body).events();
    for (index, text) in [(0, reply("one two", 2).1), (1, reply("three four five", 3).1)] {
        let last = events.iter().rfind(|event| event["index"] == index).unwrap();
        assert_eq!(last["text"], text);
        assert_eq!(last["meta_info"]["finish_reason"]["type"], "length");
    }
}

#[test]
fn each_prompt_of_a_batch_may_have_its_own_wishes() {
    let worker = Worker::start();
    let mut body = json!({
        "text": ["1+1=", "", "five words are in this"],
        "sampling_params": [{"max_new_tokens": 4}, {"max_new_tokens": 1}, {"max_new_tokens": 2}],
        "return_logprob": [true, false, true], "logprob_start_len": [0, null, -1],
        "top_logprobs_num": [2, 0, 0], "token_ids_logprob": [null, [1], [7, 8, 9]],
        "lora_path": ["adapter", null, "adapter"],
    });
    let answer = worker.post("/generate", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let whole = answer.json();
    body["stream"] = true.into();
    let events = worker.post("/generate", &body).events();
    for index in 0..3 {
        let last = events.iter().rfind(|event| event["index"] == index).unwrap();
        for meta in [&whole[index]["meta_info"], &last["meta_info"]] {
            let len = |key: &str| meta.get(key).and_then(Value::as_array).map(Vec::len);
            let [input, output] = [len("input_token_logprobs"), len("output_token_logprobs")];
            let (top, ids) = (meta.get("output_top_logprobs"), meta.get("output_token_ids_logprobs"));
            match index {
                0 => assert_eq!((input, output, ids), (Some(1), Some(4), None)),
                1 => assert_eq!((input, output, top, ids), (None, None, None, None)),
                _ => assert_eq!((input, output, top), (Some(0), Some(2), None)),
            }
            assert!(index != 0 || top.unwrap()[0].as_array().unwrap().len() == 2, "{meta}");
            assert!(index != 2 || ids.unwrap()[0].as_array().unwrap().len() == 3, "{meta}");
        }
    }
    assert_eq!(whole[1]["meta_info"]["prompt_tokens"], 1, "an empty text has its beginning");
}

#[test]
fn prompts_share_a_cache_by_their_own_adapters() {
    let worker = Worker::start();
    let text = prompt(5, 100);
    let ask = |body: Value| {
        let answers = worker.post("/generate", &body).json();
        let cached = answers.as_array().unwrap().iter().map(|one| one["meta_info"]["cached_tokens"].clone());
        cached.collect::<Vec<_>>()
    };
    for key in ["lora_path", "extra_key", "cache_salt"] {
        let of = |names: Value| {
            let mut body = json!({"text": [text, text], "sampling_params": {"max_new_tokens": 1}});
            body[key] = names;
            body
        };
        ask(of(json!([key, "b"])));
        assert_eq!(ask(of(json!([key, "c"]))), [99, 0], "{key}");
        assert_eq!(ask(of(json!("b"))), [99, 99], "{key}");
    }
}

#[test]
fn lists_of_wishes_are_as_long_as_the_batch() {
    let worker = Worker::start();
    let lists = [
        ("return_logprob", json!([true])),
        ("logprob_start_len", json!([0, 0, 0])),
        ("top_logprobs_num", json!([])),
        ("token_ids_logprob", json!([[1], [2], [3]])),
        ("lora_path", json!([null])),
        ("extra_key", json!(["a", "b", "c"])),
    ];
    for (key, list) in lists {
        let mut body = json!({"text": ["a", "b"], "sampling_params": {"max_new_tokens": 1}});
        body[key] = list;
        let answer = worker.post("/generate", &body);
        assert_eq!(answer.status, 400, "{key}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(key) && message.contains("2 prompts"), "{message}");
    }
}

#[test]
fn copies_hit_the_cache_of_the_first() {
    let worker = Worker::start();
    let body = json!({"text": prompt(1, 80), "sampling_params": {"max_new_tokens": 2, "n": 3}});
    let answers = worker.post("/generate", &body).json();
    let cached: Vec<&Value> =
        answers.as_array().unwrap().iter().map(|answer| &answer["meta_info"]["cached_tokens"]).collect();
    assert_eq!(cached, [79, 79, 79]);
}

#[test]
fn frames_say_from_the_first_on_what_was_cached() {
    let worker = Worker::at_speed(5.0, |_| ());
    let prompt = prompt(1, 300);
    worker.post("/generate", &ask(&prompt, 1));
    let events = worker.post("/generate", &stream(&prompt, 40)).events();
    assert!(events.len() > 1, "frames before the last are what this is about");
    for event in &events {
        let meta = &event["meta_info"];
        assert_eq!(meta["cached_tokens"], 299, "{event}");
        assert_eq!(meta["cached_tokens_details"], json!({"device": 299, "host": 0}));
    }
}

#[test]
fn each_of_a_batch_has_its_own_latency_in_engine_time() {
    let worker = Worker::at_speed(200.0, |_| ());
    let body = json!({
        "text": ["one two", "three four five"],
        "sampling_params": [{"max_new_tokens": 2}, {"max_new_tokens": 400}],
    });
    let answers = worker.post("/generate", &body).json();
    let [short, long] = [0, 1].map(|at| answers[at]["meta_info"]["e2e_latency"].as_f64().unwrap());
    // On this preset a prompt takes 10 ms and a token at least 10 ms, after an overhead of 3 ms.
    assert!((0.02..1.0).contains(&short), "{short}");
    assert!((4.0..6.0).contains(&long), "{long}");
}

#[test]
fn retractions_show_before_the_end() {
    let worker = Worker::at_speed(3.0, |config| {
        config.engine.kv_tokens = 600;
        config.engine.conservativeness = 0.1;
    });
    let body = json!({
        "text": [prompt(1, 100), prompt(2, 100)], "stream": true, "sampling_params": {"max_new_tokens": 250},
    });
    let events = worker.post("/generate", &body).events();
    let of = |index: u32| events.iter().filter(move |event| event["index"] == index).collect::<Vec<_>>();
    let retracted = [of(0), of(1)]
        .into_iter()
        .find(|events| events.last().unwrap()["meta_info"]["num_retractions"] == 1)
        .expect("600 tokens do not hold twice 350");
    assert_eq!(retracted[0]["meta_info"]["num_retractions"], 0);
    let (_, before) = retracted.split_last().unwrap();
    assert!(before.iter().any(|event| event["meta_info"]["num_retractions"] == 1));
}

#[test]
fn a_wrong_sampling_parameter_is_named() {
    let worker = Worker::start();
    let cases = [
        (json!({"max_new_tokens": "x"}), "sampling_params.max_new_tokens"),
        (json!({"ignore_eos": 3}), "sampling_params.ignore_eos"),
        (json!([{"max_new_tokens": 1}, {"stop": 3}]), "sampling_params[1].stop"),
        (json!("hot"), "sampling_params"),
    ];
    for (params, name) in cases {
        let answer = worker.post("/generate", &json!({"text": ["a", "b"], "sampling_params": params}));
        assert_eq!(answer.status, 400, "{params}");
        // What the route declares is checked by the framework, whose errors are flat.
        let message = match (name, answer.json()) {
            ("sampling_params", json) => json["message"].as_str().unwrap().to_owned(),
            (_, json) => json["error"]["message"].as_str().unwrap().to_owned(),
        };
        assert!(message.starts_with(&format!("{name}: ")), "{message}");
    }
    let nulls = json!({"max_new_tokens": 1, "ignore_eos": null, "n": null});
    assert_eq!(worker.post("/generate", &json!({"text": "a", "sampling_params": nulls})).status, 200);
}

#[test]
fn errors_are_400_with_a_native_body() {
    let worker = Worker::with(|config| config.engine.context_len = 100);
    let cases = [
        ("no prompt", "{}".to_owned()),
        ("two prompts", r#"{"text":"a","input_ids":[1]}"#.to_owned()),
        ("empty prompt", r#"{"input_ids":[]}"#.to_owned()),
        ("an empty prompt in a batch", r#"{"input_ids":[[1],[]]}"#.to_owned()),
        ("wrong budget", r#"{"text":"a","sampling_params":{"max_new_tokens":-1}}"#.to_owned()),
        ("wrong rank", r#"{"text":"a","routed_dp_rank":3}"#.to_owned()),
        ("no parameters for the prompt", r#"{"text":"a","sampling_params":[]}"#.to_owned()),
        ("no parameters for a list of prompts", r#"{"text":["a"],"sampling_params":[]}"#.to_owned()),
        ("n too large", r#"{"text":"a","sampling_params":{"n":1000}}"#.to_owned()),
        ("rids and prompts differ", r#"{"text":["a","b"],"rid":["x"]}"#.to_owned()),
        ("input over the context", ask(&prompt(1, 100), 1).to_string()),
        ("total over the context", ask(&prompt(1, 60), 41).to_string()),
    ];
    for (case, body) in cases {
        let answer = worker.post_text("/generate", "application/json", &body);
        assert_eq!(answer.status, 400, "{case}: {}", answer.body);
        let json = answer.json();
        assert!(
            json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{case}: {json}"
        );
        assert_eq!((keys(&answer.body).len(), json["error"].as_object().unwrap().len()), (1, 1), "{case}");
    }
    let message = worker.post("/generate", &ask(&prompt(1, 100), 1)).json()["error"]["message"].to_string();
    assert!(message.contains("longer") && message.contains("100"), "{message}");
    worker.wait_until_idle();
}

#[test]
fn an_error_of_a_stream_is_a_frame() {
    let worker = Worker::with(|config| config.engine.context_len = 100);
    let answer = worker.post("/generate", &stream(&prompt(1, 200), 5));
    assert_eq!(answer.status, 200);
    let events = answer.events();
    assert_eq!(events.len(), 1);
    let error = &events[0]["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &json!(400)));
    assert_eq!(error["retryable"], false);
}

#[test]
fn a_full_queue_is_503_or_an_abort_frame() {
    let worker = Worker::with(|config| {
        config.engine.max_queued = Some(0);
    });
    let answer = worker.post("/generate", &ask("Hello", 5));
    assert_eq!(answer.status, 503);
    assert_eq!(keys(&answer.body), words("object message type param code"));
    let events = worker.post("/generate", &stream("Hello", 5)).events();
    assert_eq!(events[0]["meta_info"]["finish_reason"]["type"], "abort");
    assert_eq!(events[0]["meta_info"]["finish_reason"]["status_code"], 503);
}

#[test]
fn a_request_id_is_taken_while_it_is_in_flight() {
    let worker = Worker::start();
    let mut body = ask(&prompt(1, 20), 50_000);
    body["rid"] = "twice".into();
    let running = worker.send("/generate", &body);
    worker.wait_until_running(1);
    let answer = worker.post("/generate", &body);
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("Duplicate request ID"), "{}", answer.body);
    drop(running);
    worker.wait_until_idle();
    body["sampling_params"]["max_new_tokens"] = 1.into();
    assert_eq!(worker.post("/generate", &body).status, 200, "free again");
}
