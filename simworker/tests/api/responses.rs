//! `/v1/responses` over an engine.

use protocol::chat;
use protocol::output::carries_output;
use protocol::tokenizer::{block_token, decode, encode, reply_block};
use serde_json::{Value, json};

use crate::client::{Answer, Worker, keys, prompt, words};

const PATH: &str = "/v1/responses";

fn reply(prompt: &[u32], tokens: u32) -> String {
    let block = reply_block(prompt);
    decode(&(0..tokens).map(|index| block_token(block, index)).collect::<Vec<_>>())
}

/// Names and data of the events of a stream that has no end but its end.
fn events(answer: &Answer) -> Vec<(String, Value)> {
    let event = |text: &str| {
        let (name, data) = text.split_once("\ndata: ").unwrap();
        (name.strip_prefix("event: ").unwrap().to_owned(), serde_json::from_str(data).unwrap())
    };
    answer.body.split_terminator("\n\n").map(event).collect()
}

#[test]
fn a_response() {
    let worker = Worker::start();
    let answer = worker.post(PATH, &json!({"model": "m", "input": "Why?", "max_output_tokens": 7}));
    let head = "id object created_at model output status usage parallel_tool_calls tool_choice tools error";
    assert!(keys(&answer.body).starts_with(&words(head)), "{}", answer.body);
    let json = answer.json();
    assert!(json["id"].as_str().unwrap().starts_with("resp_"));
    assert_eq!((&json["object"], &json["model"]), (&json!("response"), &json!("m")));
    // Room is kept for two tokens.
    assert_eq!(
        (&json["status"], &json["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let prompt = encode(&chat::render([("user", "Why?")]));
    assert_eq!(json["output"][0]["content"][0]["text"], reply(&prompt, 5));
    assert_eq!(
        json["usage"],
        json!({"input_tokens": prompt.len(), "output_tokens": 5, "total_tokens": prompt.len() + 5,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0}})
    );
    let open = worker.post(PATH, &json!({"input": "Why?"})).json();
    assert_eq!((&open["status"], &open["incomplete_details"]), (&json!("completed"), &Value::Null));
    assert_eq!(open["usage"]["input_tokens_details"]["cached_tokens"], prompt.len() - 1);
    let stop = &json["output"][0]["content"][0]["text"].as_str().unwrap()[6..9];
    let stopped = worker.post(PATH, &json!({"input": "Why?", "stop": stop})).json();
    assert_eq!(stopped["usage"]["output_tokens"], 3);
    assert_eq!(worker.post(PATH, &json!({"model": "m"})).status, 400);
}

#[test]
fn a_streamed_response() {
    let worker = Worker::start();
    let answer = worker.post(PATH, &json!({"input": "Why?", "max_output_tokens": 42, "stream": true}));
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    let all = events(&answer);
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let deltas = names.iter().filter(|name| **name == "response.output_text.delta").count();
    assert!(deltas > 0);
    let (before, after) = names.split_at(4);
    assert_eq!(
        before,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    assert_eq!(
        after[deltas..],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete"
        ]
    );
    for (number, (name, data)) in all.iter().enumerate() {
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(number)));
        assert_eq!(
            carries_output(data.to_string().as_bytes()),
            name == "response.output_text.delta",
            "{data}"
        );
    }
    let text = reply(&encode(&chat::render([("user", "Why?")])), 40);
    let joined: String = all.iter().filter_map(|(_, data)| data["delta"].as_str()).collect();
    assert_eq!(joined, text);
    let last = &all.last().unwrap().1["response"];
    assert_eq!(
        (&last["output"][0]["content"][0]["text"], &last["usage"]["output_tokens"]),
        (&json!(text), &json!(40))
    );
    let id = all[0].1["response"]["id"].as_str().unwrap();
    assert_eq!(worker.get(&format!("{PATH}/{id}")).json(), *last);
}

#[test]
fn a_response_can_be_had_again_and_continued() {
    let worker = Worker::start();
    let first = worker.post(PATH, &json!({"input": prompt(1, 50), "max_output_tokens": 12}));
    let id = first.json()["id"].as_str().unwrap().to_owned();
    let again = worker.get(&format!("{PATH}/{id}"));
    assert_eq!((again.status, &again.body), (200, &first.body));
    let cancelled = worker.post(&format!("{PATH}/{id}/cancel"), &json!({}));
    assert_eq!(cancelled.body, first.body, "it has ended");
    let past = first.json()["usage"]["total_tokens"].as_u64().unwrap();
    let next = worker.post(PATH, &json!({"input": "And then?", "previous_response_id": id})).json();
    assert_eq!(next["usage"]["input_tokens_details"]["cached_tokens"], past - 1);
    assert_eq!(next["previous_response_id"], id);

    let unstored = worker.post(PATH, &json!({"input": "a", "store": false, "max_output_tokens": 3})).json();
    let unstored = unstored["id"].as_str().unwrap().to_owned();
    let message = |id: &str| format!("Response with id '{id}' not found.");
    for answer in [
        worker.get(&format!("{PATH}/{unstored}")),
        worker.post(&format!("{PATH}/{unstored}/cancel"), &json!({})),
        worker.post(PATH, &json!({"input": "a", "previous_response_id": unstored})),
    ] {
        let error = json!({"message": message(&unstored), "type": "invalid_request_error",
            "param": "response_id", "code": 404});
        assert_eq!((answer.status, answer.json()), (404, json!({"error": error})));
    }
    assert_eq!(worker.post(&format!("{PATH}/{id}"), &json!({})).status, 405);
}

#[test]
fn a_running_response_can_be_cancelled() {
    let worker = Worker::start();
    let body = json!({"input": "a", "request_id": "resp_mine", "max_output_tokens": 100_000, "stream": true});
    let running = worker.send(PATH, &body);
    worker.wait_until_running(1);
    assert_eq!(worker.get(&format!("{PATH}/resp_mine")).json()["status"], "in_progress");
    let cancelled = worker.post(&format!("{PATH}/resp_mine/cancel"), &json!({}));
    assert_eq!(cancelled.json()["status"], "cancelled");
    worker.wait_until_idle();
    let all = events(&crate::client::read(running));
    assert_eq!(all.last().unwrap().0, "response.failed", "its own client learns that it was aborted");
    assert_eq!(worker.get(&format!("{PATH}/resp_mine")).json()["status"], "cancelled");
}

#[test]
fn a_stream_that_the_engine_refuses_fails() {
    let worker = Worker::with(|config| config.engine.max_queued = Some(0));
    let whole = worker.post(PATH, &json!({"input": "a"}));
    let error = json!({"message": "The request queue is full.", "type": "Service Unavailable", "param": null, "code": 503});
    assert_eq!((whole.status, whole.json()), (503, json!({"error": error})));
    let streamed = worker.post(PATH, &json!({"input": "a", "stream": true}));
    let all = events(&streamed);
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        (streamed.status, names),
        (200, vec!["response.created", "response.in_progress", "response.failed"])
    );
    assert_eq!(
        all[2].1["response"]["error"],
        json!({"code": "server_error", "message": "The request queue is full."})
    );
}

fn status(worker: &Worker, id: &str) -> Value {
    worker.get(&format!("{PATH}/{id}")).json()["status"].clone()
}

#[test]
fn an_id_that_is_used_again_is_the_new_response() {
    let worker = Worker::start();
    let body = |input: &str| json!({"input": input, "request_id": "resp_a", "max_output_tokens": 9});
    worker.post(PATH, &body("one"));
    let second = worker.post(PATH, &body("another"));
    assert_eq!(worker.get(&format!("{PATH}/resp_a")).body, second.body);
    let mut long = body("a third");
    long["max_output_tokens"] = 100_000.into();
    let running = worker.send(PATH, &long);
    worker.wait_until_running(1);
    assert_eq!(status(&worker, "resp_a"), "in_progress");
    assert_eq!(worker.post(&format!("{PATH}/resp_a/cancel"), &json!({})).json()["status"], "cancelled");
    worker.wait_until_idle();
    drop(running);
}

#[test]
fn cancelling_ends_one_response_and_no_other() {
    let worker = Worker::start();
    let body = |id: &str| json!({"input": "a", "request_id": id, "max_output_tokens": 100_000});
    let text = json!({"text": "b", "rid": "resp_a2", "sampling_params": {"max_new_tokens": 100_000, "ignore_eos": true}});
    let running = [
        worker.send(PATH, &body("resp_a")),
        worker.send(PATH, &body("resp_ab")),
        worker.send("/generate", &text),
    ];
    worker.wait_until_running(3);
    worker.post(&format!("{PATH}/resp_a/cancel"), &json!({}));
    worker.wait_until_running(2);
    let [cancelled, _others @ ..] = running;
    assert_eq!(crate::client::read(cancelled).json()["status"], "failed", "its own client has an end");
    assert_eq!(status(&worker, "resp_a"), "cancelled");
    assert_eq!(
        (status(&worker, "resp_ab"), worker.load()["num_running_reqs"].clone()),
        (json!("in_progress"), json!(2))
    );
}

#[test]
fn what_comes_to_nothing_does_not_stay_in_progress() {
    let full = Worker::with(|config| config.engine.max_queued = Some(0));
    for stream in [false, true] {
        full.post(PATH, &json!({"input": "a", "request_id": "resp_a", "stream": stream}));
        let told = full.get(&format!("{PATH}/resp_a")).json();
        assert_eq!(
            (&told["status"], &told["error"]["message"]),
            (&json!("failed"), &json!("The request queue is full."))
        );
    }
    let next = full.post(PATH, &json!({"input": "a", "previous_response_id": "resp_a"}));
    assert_eq!(next.status, 404, "there is nothing to continue");
    let worker = Worker::start();
    for stream in [false, true] {
        let body =
            json!({"input": "a", "request_id": "resp_b", "max_output_tokens": 100_000, "stream": stream});
        let running = worker.send(PATH, &body);
        worker.wait_until_running(1);
        assert_eq!(status(&worker, "resp_b"), "in_progress");
        drop(running);
        worker.wait_until_idle();
        crate::client::wait_until("the client has left", || status(&worker, "resp_b") == "failed");
    }
}
