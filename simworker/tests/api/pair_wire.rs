//! A pair over HTTP: one request, two legs, one answer.

use std::io::Read;

use serde_json::{Value, json};
use simworker::config::Health;
use simworker_core::Link;

use crate::client::{defaults, prompt, read};
use crate::pair::{DECODE, PREFILL, Pair, generate};

#[test]
fn a_pair_answers_as_one_worker_does() {
    let pair = Pair::start();
    let text = prompt(1, 700);
    let (prefill, decode) = pair.both("/generate", &generate(&text, 40), 7);
    assert_eq!((prefill.status, decode.status), (200, 200), "{} {}", prefill.body, decode.body);
    let (prefill, decode) = (prefill.json(), decode.json());
    assert_eq!(prefill["meta_info"]["finish_reason"], json!({"type": "length", "length": 0}));
    assert_eq!(prefill["meta_info"]["completion_tokens"], 1);
    assert_eq!(prefill["meta_info"]["prompt_tokens"], 700);
    assert_eq!(decode["meta_info"]["finish_reason"], json!({"type": "length", "length": 40}));
    assert_eq!(decode["meta_info"]["completion_tokens"], 40);
    assert_eq!(decode["meta_info"]["cached_tokens"], 0);
    let alone = crate::client::Worker::start().post("/generate", &generate(&text, 40)).json();
    assert_eq!(decode["text"], alone["text"]);
    assert_eq!(prefill["output_ids"][0], alone["output_ids"][0]);
    pair.wait_until_idle();
}

#[test]
fn decode_tells_what_prefill_found_in_its_cache() {
    let pair = Pair::start();
    let body = generate(&prompt(2, 500), 3);
    pair.both("/generate", &body, 1);
    let (prefill, decode) = pair.both("/generate", &body, 2);
    let cached = |answer: &Value| answer["meta_info"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(&prefill.json()), 499);
    assert_eq!(cached(&decode.json()), 499);
}

#[test]
fn both_sides_stream() {
    let pair = Pair::start();
    let mut body = generate(&prompt(3, 300), 20);
    body["stream"] = true.into();
    let (prefill, decode) = pair.both("/generate", &body, 3);
    let (prefill, decode) = (prefill.events(), decode.events());
    assert_eq!(prefill.last().unwrap()["meta_info"]["completion_tokens"], 1);
    let last = decode.last().unwrap();
    assert_eq!(last["meta_info"]["completion_tokens"], 20);
    assert_eq!(last["output_ids"].as_array().unwrap().len(), 20);
    let chat =
        json!({"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 5, "stream": true});
    let (_, decode) = pair.both("/v1/chat/completions", &chat, 4);
    let ends =
        decode.events().iter().filter(|event| event["choices"][0]["finish_reason"] == "length").count();
    assert_eq!(ends, 1);
    pair.wait_until_idle();
}

#[test]
fn each_item_of_a_batch_has_a_room() {
    let pair = Pair::start();
    let texts =
        json!({"text": ["one", "two words", "and three words"], "sampling_params": {"max_new_tokens": 4}});
    let mut body = pair.join(&texts, &json!([10, 20, 30]));
    body["bootstrap_host"] = json!(["127.0.0.1", "127.0.0.1", "127.0.0.1"]);
    body["bootstrap_port"] = json!([pair.bootstrap_port(), pair.bootstrap_port(), pair.bootstrap_port()]);
    let (prefill, decode) = (pair.send(PREFILL, "/generate", &body), pair.send(DECODE, "/generate", &body));
    let (prefill, decode) = (read(prefill).json(), read(decode).json());
    assert_eq!((prefill.as_array().unwrap().len(), decode.as_array().unwrap().len()), (3, 3));
    assert!(decode.as_array().unwrap().iter().all(|one| one["meta_info"]["completion_tokens"] == 4));

    let chat = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "n": 2});
    let (_, decode) = pair.both("/v1/chat/completions", &chat, vec![40, 41]);
    assert_eq!(decode.json()["choices"].as_array().unwrap().len(), 2);
    let completions = json!({"prompt": ["a", "b"], "max_tokens": 3});
    let (_, decode) = pair.both("/v1/completions", &completions, 50);
    assert_eq!(decode.json()["choices"].as_array().unwrap().len(), 2, "one room counts up");
    pair.wait_until_idle();
}

#[test]
fn several_answers_to_each_prompt_of_a_list_need_one_room_for_each_prompt() {
    let pair = Pair::start();
    let chat = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "n": 3});
    let completions = json!({"prompt": ["a", "b"], "max_tokens": 3, "n": 3});
    let sampling = json!({"max_new_tokens": 3, "n": 3});
    let generate = json!({"text": ["a", "b"], "sampling_params": sampling});
    for (path, body, rooms) in [
        ("/v1/completions", &completions, json!([10, 11])),
        ("/generate", &generate, json!([10, 11])),
        ("/v1/chat/completions", &chat, json!([10])),
    ] {
        let mut both = pair.join(body, &rooms);
        let prompts = rooms.as_array().unwrap().len();
        both["bootstrap_host"] = vec!["127.0.0.1"; prompts].into();
        both["bootstrap_port"] = vec![pair.bootstrap_port(); prompts].into();
        let (prefill, decode) = (pair.send(PREFILL, path, &both), pair.send(DECODE, path, &both));
        for answer in [read(prefill), read(decode)] {
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            let answer = answer.json();
            let answers = answer["choices"].as_array().or(answer.as_array()).unwrap().len();
            assert_eq!(answers, prompts * 3, "{path}");
        }
        both["bootstrap_room"] = json!([10, 11, 12, 13]);
        assert_eq!(
            pair.post(DECODE, path, &both).status,
            400,
            "neither one for each prompt nor for each answer"
        );
    }
    // A room is in use by the answers to its prompt, and by them alone.
    let body = pair.join(&completions, &json!([10, 11]));
    let waiting = pair.send(PREFILL, "/v1/completions", &body);
    pair.wait_for_queue(PREFILL, "prefill_bootstrap_queue_reqs", 6);
    let again = pair.post(PREFILL, "/v1/completions", &pair.join(&completions, &json!([11, 12])));
    assert!(again.status == 400 && again.body.contains("room 11"), "{}", again.body);
    drop(waiting);
    pair.wait_until_idle();
}

#[test]
fn the_transfer_takes_its_time() {
    // 2000 tokens of 128 KiB take 2.62 s at 0.1 GB/s, and the prefill far less.
    let slow = Link { setup_ns: 500_000_000, bytes_per_second: 1e8 };
    let pair = Pair::with(&[], |config| {
        config.engine.handoff.link = slow;
        config.engine.chunked_prefill = None;
    });
    let expected_s = 0.5 + 2000.0 * defaults().engine.handoff.kv_bytes_per_token / 1e8;
    for (stream, room) in [(false, 5), (true, 6)] {
        let mut body = generate(&prompt(4 + room, 2000), 2);
        body["stream"] = stream.into();
        let (prefill, decode) = pair.both("/generate", &body, room);
        for answer in [prefill, decode] {
            let answer = if stream { answer.events().pop().unwrap() } else { answer.json() };
            let took_s = answer["meta_info"]["e2e_latency"].as_f64().unwrap();
            assert!(took_s >= expected_s, "{took_s} {expected_s}");
        }
    }
    let disaggregation = &pair.load(PREFILL, 0)["disaggregation"];
    assert!(
        disaggregation["kv_transfer_latency_ms"].as_f64().unwrap() >= expected_s * 990.0,
        "{disaggregation}"
    );
}

#[test]
fn nothing_is_streamed_while_the_kv_is_on_its_way() {
    let pair = Pair::with(&[], |config| {
        config.engine.handoff.link = Link { setup_ns: 0, bytes_per_second: 1e6 };
    });
    let mut native = generate(&prompt(7, 2000), 5);
    native["stream"] = true.into();
    let completion = json!({"prompt": prompt(8, 2000), "max_tokens": 5, "stream": true});
    let both = |path, body: &Value, room| {
        let body = pair.join(body, &json!(room));
        [PREFILL, DECODE].map(|worker| pair.send(worker, path, &body))
    };
    let native = both("/generate", &native, 5);
    let completion = both("/v1/completions", &completion, 6);
    pair.wait_for_queue(PREFILL, "prefill_inflight_queue_reqs", 2);
    let sent = |mut connection: &std::net::TcpStream| {
        connection.set_nonblocking(true).unwrap();
        let mut sent = [0; 4096];
        let length = connection.read(&mut sent).unwrap_or(0);
        String::from_utf8_lossy(&sent[..length]).into_owned()
    };
    assert!(native.iter().all(|connection| !sent(connection).contains("data:")), "at most a head");
    assert!(completion.iter().all(|connection| sent(connection).is_empty()), "its status is not known");
    drop((native, completion));
    pair.wait_until_idle();
}

#[test]
fn log_probabilities_come_from_the_side_that_has_them() {
    let pair = Pair::start();
    let mut body = generate("some words to be measured", 3);
    body["return_logprob"] = true.into();
    body["logprob_start_len"] = 0.into();
    body["top_logprobs_num"] = 2.into();
    body["token_ids_logprob"] = json!([5, 6]);
    let (prefill, decode) = pair.both("/generate", &body, 6);
    let (prefill, decode) = (&prefill.json()["meta_info"], &decode.json()["meta_info"]);
    let tokens = prefill["prompt_tokens"].as_u64().unwrap() as usize;
    let len = |meta: &Value, key: &str| meta[key].as_array().unwrap().len();
    for key in ["input_token_logprobs", "input_top_logprobs", "input_token_ids_logprobs"] {
        assert_eq!((len(prefill, key), len(decode, key)), (tokens, 0), "{key}");
    }
    for key in ["output_token_logprobs", "output_top_logprobs", "output_token_ids_logprobs"] {
        assert_eq!((len(prefill, key), len(decode, key)), (1, 3), "{key}");
    }
    assert_eq!(prefill["input_token_logprobs"][0][0], Value::Null);
    assert_eq!(prefill["output_token_logprobs"][0], decode["output_token_logprobs"][0]);
    let alone = crate::client::Worker::start().post("/generate", &body).json()["meta_info"].clone();
    assert_eq!(alone["input_token_logprobs"], prefill["input_token_logprobs"]);
    assert_eq!(alone["output_top_logprobs"], decode["output_top_logprobs"]);
}

#[test]
fn a_client_that_goes_away_frees_either_side_in_every_state() {
    let pair = Pair::start();
    let body = pair.join(&generate(&prompt(5, 50), 100_000), &json!(8));
    let aborts: [&dyn Fn(usize, std::net::TcpStream); 2] =
        [&|_, connection| drop(connection), &|worker, connection| {
            pair.post(worker, "/abort_request", &json!({"abort_all": true}));
            assert_eq!(read(connection).json()["meta_info"]["finish_reason"]["type"], "abort");
        }];
    for abort in aborts {
        // Each side alone waits for the other.
        let prefill = pair.send(PREFILL, "/generate", &body);
        pair.wait_for_queue(PREFILL, "prefill_bootstrap_queue_reqs", 1);
        abort(PREFILL, prefill);
        pair.wait_until_idle();
        let decode = pair.send(DECODE, "/generate", &body);
        pair.wait_for_queue(DECODE, "decode_transfer_queue_reqs", 1);
        abort(DECODE, decode);
        pair.wait_until_idle();
        // The room is free again, and decoding can be aborted too. What the decode side has asked for before is none of
        // the next request's.
        let (prefill, decode) =
            (pair.send(PREFILL, "/generate", &body), pair.send(DECODE, "/generate", &body));
        pair.wait_until("it decodes", || pair.load(DECODE, 0)["num_running_reqs"] == 1);
        assert_eq!(read(prefill).status, 200);
        abort(DECODE, decode);
        pair.wait_until_idle();
    }
}

#[test]
fn health_checks_need_nobody() {
    let pair = Pair::with(&[], |config| config.wire.health = Health::Generation);
    for worker in [PREFILL, DECODE] {
        for path in ["/health", "/health_generate"] {
            assert_eq!(pair.get(worker, path).status, 200);
        }
        let mut body = generate("x", 3);
        body["bootstrap_host"] = "2.2.2.2".into();
        body["bootstrap_room"] = 0.into();
        let (first, second) = (pair.send(worker, "/generate", &body), pair.send(worker, "/generate", &body));
        assert_eq!((read(first).status, read(second).status), (200, 200), "and share their room");
    }
    pair.wait_until_idle();
}

#[test]
fn roles_are_told_wherever_a_router_looks() {
    let pair = Pair::start();
    for (worker, mode) in [(PREFILL, "prefill"), (DECODE, "decode")] {
        assert_eq!(pair.get(worker, "/model_info").json()["disaggregation_mode"], mode);
        let info = pair.get(worker, "/server_info").json();
        assert_eq!(info["disaggregation_mode"], mode);
        let balance = if mode == "prefill" { "follow_bootstrap_room" } else { "round_robin" };
        assert_eq!(info["load_balance_method"], balance);
        assert_eq!(pair.load(worker, 0)["disaggregation"]["mode"], mode);
        let metrics = pair.get(worker, "/metrics").body;
        assert!(metrics.contains(&format!("engine_type=\"{mode}\"")), "{metrics}");
    }
    assert_eq!(
        pair.get(PREFILL, "/server_info").json()["disaggregation_bootstrap_port"],
        pair.bootstrap_port()
    );
}

#[test]
fn first_tokens_do_not_wait_for_prefills_answer() {
    let pair = Pair::with(&["0:delay-head=2s"], |_| ());
    let body = pair.join(&generate(&prompt(6, 200), 5), &json!(9));
    let mut prefill = pair.send(PREFILL, "/generate", &body);
    assert_eq!(pair.post(DECODE, "/generate", &body).status, 200);
    prefill.set_nonblocking(true).unwrap();
    assert!(prefill.read(&mut [0; 1]).is_err(), "it is held back");
    prefill.set_nonblocking(false).unwrap();
    assert_eq!(read(prefill).status, 200);
}
