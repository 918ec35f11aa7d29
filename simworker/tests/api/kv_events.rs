//! KV events at the wire.

use protocol::kv_events::{KvEvent, Medium, Shape, Stored, chain, salt_seed};
use protocol::tokenizer::{Token, block_token, reply_block};
use serde_json::json;

use crate::client::Worker;
use crate::kv_subscriber::{Subscriber, Told, replay};

fn tokens(seed: u64, len: u32) -> Vec<Token> {
    (0..len).map(|i| block_token(seed, i)).collect()
}

fn generate(worker: &Worker, prompt: &[Token], more: serde_json::Value) {
    let mut body = json!({"input_ids": prompt, "sampling_params": {"max_new_tokens": 9, "ignore_eos": true}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = worker.post("/generate", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

fn stored(told: &Told) -> Stored {
    match &told.events()[..] {
        [KvEvent::Stored(stored)] => stored.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn prompts_and_replies_are_told_with_their_names() {
    let worker = Worker::publishing(|config| config.engine.page_size = 4, &[]);
    let mut subscriber = Subscriber::of(&worker, 0);
    let prompt = tokens(1, 10);
    generate(&worker, &prompt, json!({"cache_salt": "tenantA"}));
    let (first, second) = (subscriber.next(), subscriber.next());
    assert_eq!((first.topic.as_slice(), second.seq), (&b"kv"[..], first.seq + 1));
    assert_eq!(first.batch().rank, Some(0), "also with one rank");
    assert!(first.batch().ts > 1.7e9, "seconds since the epoch");
    let (prompt_blocks, reply_blocks) = (stored(&first), stored(&second));
    assert_eq!(prompt_blocks.tokens, prompt[..8]);
    let digest = chain(Some(salt_seed("tenantA")), &prompt[..4]);
    assert_eq!(prompt_blocks.hashes, [digest.hash(), chain(Some(digest), &prompt[4..8]).hash()]);
    assert_eq!((prompt_blocks.parent, prompt_blocks.medium), (None, Some(Medium::Gpu)));
    assert_eq!(prompt_blocks.cache_salt.as_deref(), Some("tenantA"));
    let reply = reply_block(&prompt);
    let sequence: Vec<Token> = prompt.iter().copied().chain((0..8).map(|i| block_token(reply, i))).collect();
    assert_eq!(reply_blocks.tokens, sequence[8..16]);
    assert_eq!(reply_blocks.parent, prompt_blocks.hashes.last().copied());
    worker.post_text("/flush_cache", "", "");
    assert_eq!(subscriber.next().events(), [KvEvent::Cleared]);
}

#[test]
fn a_replay_has_what_was_told_from_the_start() {
    let worker = Worker::publishing(|_| (), &[]);
    let mut subscriber = Subscriber::of(&worker, 0);
    generate(&worker, &tokens(1, 10), json!({}));
    let live = [subscriber.next(), subscriber.next()];
    let endpoint = &worker.kv_endpoints().replay_endpoints[0];
    let from = live[0].seq as u64;
    assert_eq!(replay(endpoint, from, true), live);
    assert_eq!(replay(endpoint, from + 2, true), []);
    let all = replay(endpoint, 0, true);
    assert_eq!(all.len() as u64, (from + 2).min(50), "no more than are kept");
    assert_eq!(all[0].events(), [KvEvent::Cleared], "at the start, and at each flush");
    assert!(all.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1));
}

#[test]
fn each_rank_of_each_worker_has_its_own_port() {
    let first = Worker::publishing(|config| config.dp_size = 2, &[]);
    let ports = |worker: &Worker| -> Vec<u16> {
        let endpoints = &worker.kv_endpoints().endpoints;
        endpoints.iter().map(|endpoint| endpoint.rsplit_once(':').unwrap().1.parse().unwrap()).collect()
    };
    let info = first.get("/server_info").json();
    let base = ports(&first);
    assert_eq!(base[1], base[0] + 1);
    let (described, page) = (&info["kv_events"], &info["page_size"]);
    assert_eq!(described["publisher"], "zmq");
    assert_eq!(described["endpoint_host"], "127.0.0.1");
    assert_eq!(described["endpoint_port_base"], base[0]);
    assert_eq!((&described["topic"], &described["dp_size"]), (&json!("kv"), &json!(2)));
    assert_eq!(&described["block_size"], page);
    assert!(described["replay_endpoint_port_base"].is_u64());
    let mut one = Subscriber::of(&first, 1);
    generate(&first, &tokens(1, 10), json!({"routed_dp_rank": 1}));
    assert_eq!(one.next().batch().rank, Some(1));
    let second = first.second();
    assert!(ports(&second).iter().all(|port| !base.contains(port)));
}

#[test]
fn older_workers_write_arrays_and_replay_without_topic() {
    let older = |config: &mut simworker::config::WorkerConfig| {
        config.kv_events.iter_mut().for_each(|events| events.shape = Shape::Array);
    };
    let worker = Worker::publishing(older, &[]);
    let mut subscriber = Subscriber::of(&worker, 0);
    generate(&worker, &tokens(1, 10), json!({}));
    let told = subscriber.next();
    assert!(told.payload.windows(14).any(|bytes| bytes == b"\x97\xabBlockStored\x9a"), "{told:?}");
    let replayed = replay(&worker.kv_endpoints().replay_endpoints[0], told.seq as u64, false);
    assert_eq!(replayed[0].payload, told.payload);
}

#[test]
fn nothing_is_described_where_nothing_is_published() {
    let worker = Worker::start();
    let info = worker.get("/server_info").json();
    assert!(info["kv_events"].is_null() && info["kv_events_config"].is_null());
}
