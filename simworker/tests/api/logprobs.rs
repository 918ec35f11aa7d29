//! Log-probabilities, and what else is told about tokens.

use protocol::tokenizer::{decode, encode};
use serde_json::{Value, json};

use crate::client::{Worker, keys, prompt, words};

fn generate(text: &str, more: Value) -> Value {
    let mut body = json!({"text": text, "return_logprob": true, "sampling_params": {"max_new_tokens": 4}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn the_text_of_tokens_is_told_on_demand() {
    let worker = Worker::start();
    let ask = |more| worker.post("/generate", &generate("some words here", more)).json()["meta_info"].clone();
    let bare = ask(json!({"logprob_start_len": 0, "top_logprobs_num": 2}));
    let more = json!({"logprob_start_len": 0, "top_logprobs_num": 2, "return_text_in_logprobs": true});
    let texts = ask(more);
    for (key, places) in [("input_token_logprobs", 5), ("output_token_logprobs", 4)] {
        assert_eq!(bare[key].as_array().unwrap().len(), places, "{key}");
        for (bare, with) in bare[key].as_array().unwrap().iter().zip(texts[key].as_array().unwrap()) {
            assert_eq!((&bare[0], &bare[1], &bare[2]), (&with[0], &with[1], &Value::Null));
            assert_eq!(with[2], decode(&[with[1].as_u64().unwrap() as u32]));
        }
    }
    let tops = texts["output_top_logprobs"].as_array().unwrap();
    for (top, made) in tops.iter().zip(texts["output_token_logprobs"].as_array().unwrap()) {
        assert_eq!(&top[0], made, "the token of the reply is the best");
        assert!(top[1][0].as_f64() < top[0][0].as_f64(), "{top}");
    }
}

#[test]
fn prompts_are_computed_from_where_their_logprobs_begin() {
    let worker = Worker::start();
    let text = prompt(3, 200);
    let cached = |more: Value| {
        worker.post("/generate", &generate(&text, more)).json()["meta_info"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    cached(json!({}));
    assert_eq!(cached(json!({})), 199);
    assert_eq!(cached(json!({"logprob_start_len": -1})), 199);
    assert_eq!(cached(json!({"logprob_start_len": 0})), 0);
    assert_eq!(cached(json!({"logprob_start_len": 120})), 120);
    assert_eq!(cached(json!({"logprob_start_len": 120, "return_logprob": false})), 199);
}

#[test]
fn incremental_frames_have_those_of_their_own_tokens() {
    for incremental in [false, true] {
        let worker = Worker::with(|config| config.incremental_streaming_output = incremental);
        let whole = worker.post("/generate", &generate("abc def", json!({"logprob_start_len": 0}))).json();
        let events = worker.post("/generate", &generate("abc def", json!({"stream": true}))).events();
        let of = |event: &Value| event["meta_info"]["output_token_logprobs"].as_array().unwrap().clone();
        let told: Vec<Value> =
            if incremental { events.iter().flat_map(of).collect() } else { of(events.last().unwrap()) };
        assert_eq!(json!(told), whole["meta_info"]["output_token_logprobs"]);
    }
}

#[test]
fn completions_have_them_in_lists() {
    let worker = Worker::start();
    let ask = |more: Value| {
        let mut body = json!({"prompt": "some words here", "max_tokens": 3});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let post = |body: &Value| worker.post("/v1/completions", body);
    let answer = post(&ask(json!({"logprobs": 2})));
    let (_, text) = answer.body.split_once("\"logprobs\":").unwrap();
    assert_eq!(
        keys(&text[..text.find("},\"finish").unwrap() + 1]),
        words("text_offset token_logprobs tokens top_logprobs")
    );
    let choice = answer.json()["choices"][0].clone();
    let logprobs = &choice["logprobs"];
    let tokens: Vec<&str> =
        logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), choice["text"].as_str().unwrap());
    assert_eq!(logprobs["text_offset"], json!([-1, -1, -1]));
    let top = logprobs["top_logprobs"][0].as_object().unwrap();
    assert_eq!((top.len(), &top[tokens[0]]), (2, &logprobs["token_logprobs"][0]));
    assert_eq!(
        post(&ask(json!({"logprobs": 0}))).json()["choices"][0]["logprobs"]["top_logprobs"],
        json!([])
    );

    let echo = post(&ask(json!({"logprobs": 1, "echo": true}))).json()["choices"][0].clone();
    let prompt_tokens = encode("some words here").len();
    assert_eq!(echo["text"], format!("some words here{}", choice["text"].as_str().unwrap()));
    assert_eq!(echo["logprobs"]["tokens"].as_array().unwrap().len(), prompt_tokens + 3);
    assert_eq!(
        (&echo["logprobs"]["token_logprobs"][0], &echo["logprobs"]["top_logprobs"][0]),
        (&Value::Null, &Value::Null)
    );

    let events = post(&ask(json!({"logprobs": 1, "echo": true, "stream": true}))).events();
    let joined = |key: &str| -> Vec<Value> {
        let of = |event: &Value| event["choices"][0]["logprobs"][key].as_array().cloned().unwrap_or_default();
        events.iter().flat_map(of).collect()
    };
    for key in ["tokens", "token_logprobs", "top_logprobs"] {
        assert_eq!(json!(joined(key)), echo["logprobs"][key], "{key}");
    }
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(text, echo["text"]);
}

#[test]
fn an_echo_is_the_prompt_of_each_choice() {
    let worker = Worker::start();
    let body = json!({"prompt": ["one two", "three"], "n": 2, "max_tokens": 1, "echo": true});
    let answer = worker.post("/v1/completions", &body).json();
    for (index, prompt) in [(0, "one two"), (1, "one two"), (2, "three"), (3, "three")] {
        assert!(answer["choices"][index]["text"].as_str().unwrap().starts_with(prompt), "{answer}");
    }
    let body = json!({"prompt": encode("one two"), "max_tokens": 1, "echo": true});
    let answer = worker.post("/v1/completions", &body).json();
    assert!(answer["choices"][0]["text"].as_str().unwrap().starts_with("one two"));
}

#[test]
fn chats_have_them_token_by_token() {
    let worker = Worker::start();
    let mut body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "logprobs": true, "top_logprobs": 2});
    let choice = worker.post("/v1/chat/completions", &body).json()["choices"][0].clone();
    let content = choice["logprobs"]["content"].as_array().unwrap();
    let text: String = content.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(choice["message"]["content"], text);
    for token in content {
        assert_eq!(token["bytes"], json!(token["token"].as_str().unwrap().as_bytes()));
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 2);
        assert_eq!(token["top_logprobs"][0]["logprob"], token["logprob"]);
    }
    body["stream"] = true.into();
    let events = worker.post("/v1/chat/completions", &body).events();
    let of =
        |event: &Value| event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    assert_eq!(events.iter().flat_map(of).collect::<Vec<_>>(), *content);
    body["logprobs"] = false.into();
    let events = worker.post("/v1/chat/completions", &body).events();
    assert!(events.iter().all(|event| event["choices"][0]["logprobs"].is_null()));
}

#[test]
fn cached_tokens_can_be_told_in_detail() {
    let worker = Worker::start();
    let text = prompt(4, 100);
    let chat = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 2});
    for (path, mut body) in
        [("/v1/completions", json!({"prompt": text, "max_tokens": 2})), ("/v1/chat/completions", chat)]
    {
        let before = worker.post(path, &body);
        assert!(before.json().get("sglext").is_none());
        body["return_cached_tokens_details"] = true.into();
        let answer = worker.post(path, &body).json();
        let tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap() - 1;
        let details = json!({"cached_tokens_details": {"device": tokens, "host": 0}});
        assert_eq!(answer["sglext"], details, "{path}");
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        let events = worker.post(path, &body).events();
        let [.., end, extension, usage] = events.as_slice() else { panic!("{events:?}") };
        assert!(end["choices"][0]["finish_reason"].is_string() && usage["usage"]["total_tokens"].is_u64());
        assert_eq!((&extension["sglext"], &extension["choices"]), (&details, &json!([])), "{path}");
    }
}

#[test]
fn the_tokens_of_the_prompt_are_told_on_demand() {
    let worker = Worker::start();
    let answer = worker.post("/generate", &generate("one two", json!({"return_prompt_token_ids": true})));
    assert_eq!(answer.json()["prompt_token_ids"], json!(encode("one two")));
}
