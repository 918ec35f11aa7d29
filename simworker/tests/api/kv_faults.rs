//! KV events that do not get through as they should.

use protocol::tokenizer::{Token, block_token};
use serde_json::json;

use crate::client::Worker;
use crate::kv_subscriber::{Subscriber, replay, wait_for_replay_of};

/// A batch for the prompt, and none for the reply of one token.
fn generate(worker: &Worker, seed: u64) {
    let prompt: Vec<Token> = (0..10).map(|i| block_token(seed, i)).collect();
    let body = json!({"input_ids": prompt, "sampling_params": {"max_new_tokens": 1, "ignore_eos": true}});
    assert_eq!(worker.post("/generate", &body).status, 200);
    worker.wait_until_idle();
}

#[test]
fn lost_batches_leave_a_gap_that_a_replay_fills() {
    let worker = Worker::publishing(|_| (), &[]);
    let mut subscriber = Subscriber::of(&worker, 0);
    generate(&worker, 1);
    let before = subscriber.next();
    worker.control("PUT", "/workers/0/faults", r#"{"kv-events": {"value": "drop", "times": 2}}"#);
    (2..5).for_each(|seed| generate(&worker, seed));
    let after = subscriber.next();
    assert_eq!(after.seq, before.seq + 3);
    let all = replay(&worker.kv_endpoints().replay_endpoints[0], before.seq as u64, true);
    let numbers: Vec<i64> = all.iter().map(|told| told.seq - before.seq).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
}

#[test]
fn swapped_batches_are_told_after_the_next_one() {
    let worker = Worker::publishing(|_| (), &[]);
    let mut subscriber = Subscriber::of(&worker, 0);
    worker.control("PUT", "/workers/0/faults", r#"{"kv-events": {"value": "swap", "times": 1}}"#);
    (1..4).for_each(|seed| generate(&worker, seed));
    let told = [subscriber.next(), subscriber.next(), subscriber.next()];
    let first = told[1].seq;
    assert_eq!(told.map(|told| told.seq - first), [1, 0, 2]);
}

#[test]
fn a_worker_that_comes_back_counts_from_zero() {
    let worker = Worker::publishing(|_| (), &[]);
    let mut subscriber = Subscriber::of(&worker, 0);
    generate(&worker, 1);
    assert!(subscriber.next().seq > 0);
    drop(subscriber);
    let answer = worker.control("POST", "/workers/0/restart", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    // The one that says that the cache is empty.
    let endpoint = &worker.kv_endpoints().replay_endpoints[0];
    wait_for_replay_of(endpoint, 1);
    let mut again = Subscriber::of(&worker, 0);
    generate(&worker, 2);
    let told = again.next();
    let all = replay(endpoint, 0, true);
    let numbers: Vec<i64> = all.iter().map(|told| told.seq).collect();
    assert_eq!(numbers, (0..=told.seq).collect::<Vec<_>>(), "nothing is left of the former life");
}
