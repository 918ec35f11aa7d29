//! Replies that end early.

use protocol::tokenizer::{block_token, decode, encode, reply_block};
use serde_json::{Value, json};

use crate::client::{Worker, prompt};
use crate::pair::Pair;

const PROMPT: &str = "Hello, world";

fn ids(tokens: u32) -> Vec<u32> {
    let block = reply_block(&encode(PROMPT));
    (0..tokens).map(|index| block_token(block, index)).collect()
}

fn text(tokens: u32) -> String {
    decode(&ids(tokens))
}

/// The four characters of a token of the reply.
fn piece(index: u32) -> String {
    text(index + 1)[4 * index as usize..].to_owned()
}

/// A stop, how many tokens the reply has then, and the characters of it that are seen.
fn cases() -> Vec<(Value, Value, u32, usize)> {
    let (inside, across) = (piece(5)[1..3].to_owned(), piece(6)[2..].to_owned() + &piece(7)[..2]);
    let whole = piece(3);
    vec![
        (json!({"stop": inside}), json!(inside), 6, 21),
        (json!({"stop": across}), json!(across), 8, 26),
        (json!({"stop": [across, whole]}), json!(whole), 4, 12),
        (json!({"stop": [whole, across], "ignore_eos": true}), json!(whole), 4, 12),
        (json!({"stop": whole, "min_new_tokens": 6}), json!(whole), 4, 12),
        (json!({"stop": whole, "no_stop_trim": true}), json!(whole), 4, 16),
        (json!({"stop_token_ids": [ids(5)[4]]}), json!(ids(5)[4]), 5, 16),
        (json!({"stop_token_ids": [ids(5)[4], null], "no_stop_trim": true}), json!(ids(5)[4]), 5, 20),
        (json!({"stop_token_ids": [ids(5)[4], ids(9)[8]], "min_new_tokens": 5}), json!(ids(9)[8]), 9, 32),
        (json!({"stop": inside, "stop_token_ids": [ids(6)[5]]}), json!(inside), 6, 21),
        (json!({"stop": piece(19)[2..]}), json!(piece(19)[2..]), 20, 78),
    ]
}

/// The members as the OpenAI routes spell them.
fn openai(params: &Value) -> Value {
    let mut body = json!({"prompt": PROMPT, "max_tokens": 20});
    for (key, value) in params.as_object().unwrap() {
        body[if key == "min_new_tokens" { "min_tokens" } else { key }] = value.clone();
    }
    body
}

fn generate(params: &Value) -> Value {
    let mut params = params.clone();
    params["max_new_tokens"] = 20.into();
    json!({"text": PROMPT, "sampling_params": params})
}

#[test]
fn a_stop_ends_a_generation() {
    for overlap in [false, true] {
        let worker = Worker::with(|config| config.engine.overlap = overlap);
        for (params, matched, tokens, seen) in cases() {
            let answer = worker.post("/generate", &generate(&params)).json();
            assert_eq!(answer["text"], text(20)[..seen], "{params}");
            assert_eq!(
                answer["output_ids"],
                json!(ids(tokens)),
                "ids are told with those of the stop: {params}"
            );
            let meta = &answer["meta_info"];
            assert_eq!(meta["completion_tokens"], tokens, "{params}");
            assert_eq!(meta["finish_reason"], json!({"type": "stop", "matched": matched}), "{params}");
        }
        worker.wait_until_idle();
    }
}

#[test]
fn a_stop_ends_streams_and_nothing_of_it_is_seen_before() {
    // Slow enough for frames of single tokens.
    let worker = Worker::at_speed(5.0, |_| ());
    for (params, matched, tokens, seen) in cases() {
        let mut body = generate(&params);
        body["stream"] = true.into();
        let events = worker.post("/generate", &body).events();
        let whole = &text(20)[..seen];
        for event in &events {
            let so_far = event["text"].as_str().unwrap();
            assert!(whole.starts_with(so_far), "{params}: {so_far} of {whole}");
        }
        let last = events.last().unwrap();
        assert_eq!((&last["text"], &last["meta_info"]["completion_tokens"]), (&json!(whole), &json!(tokens)));
        let mut body = openai(&params);
        body["stream"] = true.into();
        let events = worker.post("/v1/completions", &body).events();
        let joined: String = events.iter().map(|e| e["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(joined, whole, "{params}");
        let last = &events.last().unwrap()["choices"][0];
        assert_eq!((&last["finish_reason"], &last["matched_stop"]), (&json!("stop"), &matched));
    }
}

#[test]
fn what_may_become_a_stop_is_held_back_until_it_does_not() {
    let worker = Worker::at_speed(0.5, |_| ());
    let stop = piece(2)[3..].to_owned() + &piece(3) + &piece(4) + "no";
    let mut body = generate(&json!({"stop": stop}));
    body["stream"] = true.into();
    let events = worker.post("/generate", &body).events();
    let counts: Vec<u64> =
        events.iter().map(|event| event["meta_info"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!([3, 4, 5].iter().all(|held| !counts.contains(held)), "{counts:?}");
    assert_eq!(events.last().unwrap()["text"], text(20));
    assert_eq!(events.last().unwrap()["meta_info"]["finish_reason"], json!({"type": "length", "length": 20}));
}

#[test]
fn the_openai_routes_stop_too() {
    let worker = Worker::start();
    for (params, matched, tokens, seen) in cases() {
        let answer = worker.post("/v1/completions", &openai(&params)).json();
        let choice = &answer["choices"][0];
        assert_eq!(choice["text"], text(20)[..seen], "{params}");
        assert_eq!((&choice["finish_reason"], &choice["matched_stop"]), (&json!("stop"), &matched));
        assert_eq!(answer["usage"]["completion_tokens"], tokens);
    }
    let chat = json!({"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 0});
    let whole = worker.post("/v1/chat/completions", &chat).json();
    let content = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(content.len() > 4 * 60, "0 is no budget to the newer name, so the end comes by itself");
    let (seen, stop) = (&content[..30], &content[30..40]);
    let mut body = chat;
    body["stop"] = stop.into();
    let choice = worker.post("/v1/chat/completions", &body).json()["choices"][0].clone();
    assert_eq!((&choice["message"]["content"], &choice["matched_stop"]), (&json!(seen), &json!(stop)));
    body["stream"] = true.into();
    let events = worker.post("/v1/chat/completions", &body).events();
    let joined: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(joined, seen);
    assert_eq!(events.last().unwrap()["choices"][0]["matched_stop"], stop);
}

#[test]
fn each_answer_and_each_prompt_has_its_own_stops() {
    let worker = Worker::start();
    let mut params = json!({"stop": piece(3), "n": 2, "max_new_tokens": 20});
    let answers = worker.post("/generate", &json!({"text": PROMPT, "sampling_params": params})).json();
    for answer in answers.as_array().unwrap() {
        assert_eq!(
            (&answer["text"], &answer["meta_info"]["completion_tokens"]),
            (&json!(text(3)), &json!(4))
        );
    }
    params["n"] = 1.into();
    let body = json!({"text": [PROMPT, PROMPT], "sampling_params": [params, {"max_new_tokens": 6}]});
    let answers = worker.post("/generate", &body).json();
    assert_eq!((&answers[0]["text"], &answers[1]["text"]), (&json!(text(3)), &json!(text(6))));
}

#[test]
fn a_budget_that_is_said_to_be_nothing_is_open() {
    let worker = Worker::start();
    let ask =
        |params: Value| worker.post("/generate", &json!({"text": PROMPT, "sampling_params": params})).json();
    let unsaid = ask(json!({}));
    assert_eq!(unsaid["meta_info"]["finish_reason"], json!({"type": "length", "length": 128}));
    let open = ask(json!({"max_new_tokens": null}));
    assert_eq!(open["meta_info"]["finish_reason"], json!({"type": "stop", "matched": 2}));
    let length = open["meta_info"]["completion_tokens"].as_u64().unwrap();
    let longer = ask(json!({"max_new_tokens": null, "min_new_tokens": 600}));
    assert!(length < 512 && longer["meta_info"]["completion_tokens"] == 600, "{length}");
}

#[test]
fn the_cache_keeps_what_was_computed_of_a_reply_that_stopped() {
    let worker = Worker::start();
    let first = prompt(7, 100);
    let block = reply_block(&encode(&first));
    let reply: Vec<u32> = (0..10).map(|index| block_token(block, index)).collect();
    let body =
        json!({"text": first, "sampling_params": {"max_new_tokens": 500, "stop_token_ids": [reply[9]]}});
    assert_eq!(worker.post("/generate", &body).json()["meta_info"]["completion_tokens"], 10);
    let next = first + &decode(&reply) + " and so on";
    let body = json!({"text": next, "sampling_params": {"max_new_tokens": 1}});
    let cached = worker.post("/generate", &body).json()["meta_info"]["cached_tokens"].as_u64().unwrap();
    assert!((109..=110).contains(&cached), "{cached}");
}

#[test]
fn a_stop_ends_the_reply_of_a_pair() {
    let pair = Pair::start();
    for (room, (stop, tokens)) in (1..).zip([(piece(0), 1), (piece(3), 4)]) {
        let (prefill, decode) = pair.both("/generate", &generate(&json!({"stop": stop})), room);
        let prefill = prefill.json()["meta_info"]["finish_reason"].clone();
        assert_eq!(prefill, json!({"type": "length", "length": 0}), "it makes no reply of its own");
        let decode = decode.json();
        assert_eq!(
            (&decode["text"], &decode["meta_info"]["completion_tokens"]),
            (&json!(text(tokens - 1)), &json!(tokens))
        );
        assert_eq!(decode["meta_info"]["finish_reason"], json!({"type": "stop", "matched": stop}));
    }
    pair.wait_until_idle();
}
