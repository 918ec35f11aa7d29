//! Several data-parallel ranks behind one port, alone and in pairs.

use serde_json::{Value, json};
use simworker_core::LoadBalance;

use crate::client::{Worker, prompt, read};
use crate::pair::{DECODE, PREFILL, Pair, generate};

fn ranked(ranks: u32) -> Worker {
    Worker::with(move |config| config.dp_size = ranks)
}

fn rank_of(answer: &Value) -> u64 {
    answer["meta_info"]["dp_rank"].as_u64().unwrap()
}

#[test]
fn a_rank_can_be_named_in_every_way() {
    let worker = ranked(4);
    let named = |key: &str, rank: i64| {
        let mut body = generate("x", 2);
        body[key] = rank.into();
        worker.post("/generate", &body)
    };
    assert_eq!(rank_of(&named("routed_dp_rank", 3).json()), 3);
    assert_eq!(rank_of(&named("data_parallel_rank", 2).json()), 2);
    let mut both = generate("x", 2);
    both["routed_dp_rank"] = 1.into();
    both["data_parallel_rank"] = 2.into();
    assert_eq!(rank_of(&worker.post("/generate", &both).json()), 1, "the new name counts");
    assert_eq!(rank_of(&worker.post_with("/generate", "X-Data-Parallel-Rank: 0", &both).json()), 0);
    for rank in [4, -1] {
        for key in ["routed_dp_rank", "data_parallel_rank"] {
            let answer = named(key, rank);
            assert_eq!(answer.status, 400);
            assert!(answer.body.contains("[0, 4)"), "{}", answer.body);
        }
        let header = format!("X-Data-Parallel-Rank: {rank}");
        let completion = json!({"prompt": "x", "max_tokens": 1});
        assert_eq!(worker.post_with("/v1/completions", &header, &completion).status, 400);
    }
}

#[test]
fn ranks_take_turns_and_share_no_cache() {
    let worker = ranked(3);
    let body = generate(&prompt(1, 300), 2);
    let answers: Vec<Value> = (0..6).map(|_| worker.post("/generate", &body).json()).collect();
    assert_eq!(answers.iter().map(rank_of).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
    let cached: Vec<u64> =
        answers.iter().map(|answer| answer["meta_info"]["cached_tokens"].as_u64().unwrap()).collect();
    assert_eq!(cached, [0, 0, 0, 299, 299, 299]);
}

#[test]
fn each_rank_has_its_own_load_and_metrics() {
    let worker = ranked(2);
    let mut body = generate("x", 100_000);
    body["routed_dp_rank"] = 1.into();
    let running = worker.send("/generate", &body);
    let loads = || worker.get("/v1/loads").json()["loads"].clone();
    worker.wait_for("it runs", |_| loads()[1]["num_running_reqs"] == 1);
    let all = loads();
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert_eq!((&all[0]["dp_rank"], &all[1]["dp_rank"]), (&json!(0), &json!(1)));
    assert_eq!(all[0]["num_running_reqs"], 0);
    let one = worker.get("/v1/loads?dp_rank=1").json()["loads"].clone();
    assert_eq!((one.as_array().unwrap().len(), &one[0]["dp_rank"]), (1, &json!(1)));
    assert_eq!(worker.get("/v1/loads?dp_rank=2").json()["loads"], json!([]));
    let text = worker.get("/v1/loads?format=prometheus").body;
    assert!(text.contains("sglang_num_running_reqs{dp_rank=\"1\"} 1\n"), "{text}");
    let metrics = worker.get("/metrics").body;
    for (rank, running) in [(0, 0), (1, 1)] {
        let is_row = |line: &&str| {
            line.starts_with("sglang:num_running_reqs{") && line.contains(&format!("dp_rank=\"{rank}\""))
        };
        assert!(metrics.lines().find(is_row).unwrap().ends_with(&format!(" {running}")), "{metrics}");
    }
    assert_eq!(metrics.matches("# TYPE sglang:num_running_reqs gauge").count(), 1);
    let info = worker.get("/server_info").json();
    assert_eq!(info["dp_size"], 2);
    assert_eq!(info["internal_states"].as_array().unwrap().len(), 2);
    drop(running);
    worker.wait_for("all ranks are idle", |_| loads()[1]["num_used_tokens"] == 0);
}

#[test]
fn decode_finds_the_prefill_rank_by_the_room() {
    let pair = Pair::with(&[], |config| config.dp_size = 4);
    for room in [4, 5, 6, 11] {
        let (prefill, decode) = pair.both("/generate", &generate("x", 3), room);
        assert_eq!(decode.status, 200, "{}", decode.body);
        assert_eq!(rank_of(&prefill.json()), room % 4);
    }
    // The decode side has ranks too, which take turns.
    let decode = pair.both("/generate", &generate("x", 3), 12).1.json();
    assert_eq!(rank_of(&decode), 0);
    let mut body = pair.join(&generate("x", 3), &json!(5));
    body["routed_dp_rank"] = 2.into();
    let answer = pair.post(PREFILL, "/generate", &body);
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("follow_bootstrap_room conflict"), "{}", answer.body);
}

#[test]
fn decode_asks_for_the_prefill_rank_where_rooms_do_not_tell() {
    let pair = Pair::with(&[], |config| {
        config.dp_size = 3;
        config.load_balance = Some(LoadBalance::RoundRobin);
    });
    for (turn, room) in (0..).zip([30, 31, 35, 30]) {
        let (prefill, decode) = pair.both("/generate", &generate("x", 3), room);
        assert_eq!(rank_of(&prefill.json()), turn % 3);
        assert_eq!(decode.status, 200, "{}", decode.body);
    }
    let asked = pair.bootstrap("POST", "/query_dp_ranks", &json!({"bootstrap_rooms": [31]}));
    assert_eq!(asked.json(), json!({"31": 1}));
}

#[test]
fn a_router_may_name_the_ranks_of_both_sides() {
    let pair = Pair::with(&[], |config| {
        config.dp_size = 3;
        config.load_balance = Some(LoadBalance::TotalRequests);
    });
    let mut prefill = pair.join(&generate("x", 3), &json!(7));
    let mut decode = prefill.clone();
    prefill["data_parallel_rank"] = 2.into();
    decode["data_parallel_rank"] = 1.into();
    decode["disagg_prefill_dp_rank"] = 2.into();
    let (prefill, decode) =
        (pair.send(PREFILL, "/generate", &prefill), pair.send(DECODE, "/generate", &decode));
    assert_eq!(rank_of(&read(prefill).json()), 2);
    assert_eq!(rank_of(&read(decode).json()), 1);
}

#[test]
fn a_decode_side_that_asks_the_wrong_rank_waits_in_vain() {
    let pair = Pair::with(&[], |config| config.dp_size = 2);
    let body = pair.join(&generate("x", 3), &json!(6));
    let mut wrong = body.clone();
    wrong["disagg_prefill_dp_rank"] = 1.into();
    wrong["routed_dp_rank"] = 0.into();
    let prefill = pair.send(PREFILL, "/generate", &body);
    pair.wait_for_queue(PREFILL, "prefill_bootstrap_queue_reqs", 1);
    let decode = pair.send(DECODE, "/generate", &wrong);
    pair.wait_for_queue(DECODE, "decode_transfer_queue_reqs", 1);
    pair.wait_for_queue(PREFILL, "prefill_bootstrap_queue_reqs", 1);
    drop((prefill, decode));
    pair.wait_until_idle();
}
