//! Pairs of engines whose ranks are chosen one by one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::listed;
use crate::common::{RankedEngine, Router, wait_until};

fn engine(mode: &str, ranks: std::ops::Range<u32>) -> RankedEngine {
    let engine = RankedEngine::start(ranks.clone());
    engine.say(json!({"served_model_name": "m", "dp_size": ranks.len(), "disaggregation_mode": mode,
        "disaggregation_bootstrap_port": 8998}));
    engine
}

/// The bodies of the requests, by their text.
fn bodies(engine: &RankedEngine) -> Vec<Value> {
    let seen = engine.worker.seen();
    let mut bodies: Vec<Value> = seen
        .iter()
        .filter(|request| request.first.starts_with("POST "))
        .map(|request| request.json())
        .collect();
    bodies.sort_by_key(|body| body["text"].to_string());
    bodies
}

// sgl-project/sglang#29725
#[test]
fn case_20_the_room_stands_for_the_prefill_rank_that_is_sent() {
    for (prefill, decode) in [(0..2, 0..2), (4..8, 0..1), (0..1, 0..2)] {
        let (prefill, decode) = (engine("prefill", prefill), engine("decode", decode));
        let (prefill_url, decode_url) = (prefill.url(), decode.url());
        let args = ["--pd-disaggregation", "--dp-aware", "--policy", "round_robin"];
        let args = [&args[..], &["--prefill", &prefill_url, "--decode", &decode_url]].concat();
        let router = Router::start(&[], &args);
        wait_until("both to be ready", || router.get("/readiness").status() == 200);
        let mut clients: Vec<_> = (0..16).map(|_| router.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let body = json!({"text": format!("hold {number:02}")}).to_string();
            client.send_post("/generate", "", body.as_bytes());
        }
        // Nobody decodes before there is a prompt's KV, so neither leg ends before both are there.
        wait_until("both legs", || [&prefill, &decode].iter().all(|engine| engine.sent().len() == 16));
        [&prefill, &decode].iter().for_each(|engine| engine.go.pass(16));
        for client in &mut clients {
            let answer = client.receive();
            assert_eq!(answer.status(), 200, "{}", answer.text());
        }
        let (computed, decoded) = (bodies(&prefill), bodies(&decode));
        assert_eq!((computed.len(), decoded.len()), (16, 16));
        assert_eq!((prefill.refused(), decode.refused()), (0, 0));
        let counts = [&prefill, &decode]
            .map(|engine| listed(&router).iter().filter(|url| url.starts_with(&engine.url())).count());
        for (sent, count) in [(&computed, counts[0]), (&decoded, counts[1])] {
            let ranks: BTreeSet<_> = sent.iter().map(|body| body["data_parallel_rank"].as_u64()).collect();
            assert_eq!((ranks.len(), ranks.contains(&None)), (count, count == 1), "{ranks:?}");
        }
        for (prefill, decode) in computed.iter().zip(&decoded) {
            assert_eq!(
                (&prefill["text"], &prefill["bootstrap_room"]),
                (&decode["text"], &decode["bootstrap_room"])
            );
            let room = prefill["bootstrap_room"].as_u64().expect("a number");
            let rank = prefill["data_parallel_rank"].as_u64();
            assert!(rank.is_none_or(|rank| room % counts[0] as u64 == rank % counts[0] as u64), "{prefill}");
            assert_eq!(decode["disagg_prefill_dp_rank"].as_u64(), rank, "{decode}");
            assert!(prefill.get("disagg_prefill_dp_rank").is_none(), "{prefill}");
        }
    }
}

/// A router that leaves the ranks of this pair to the engines.
fn router(prefill: &RankedEngine, decode: &RankedEngine) -> Router {
    let (prefill, decode) = (prefill.url(), decode.url());
    let router = Router::start(&[], &["--pd-disaggregation", "--prefill", &prefill, "--decode", &decode]);
    wait_until("both to be ready", || router.get("/readiness").status() == 200);
    router
}

// SGLang refuses a rank that is not the one of the room ("follow_bootstrap_room conflict").
#[test]
fn the_room_stands_for_the_rank_that_a_client_names() {
    const EACH: usize = 8;
    let (prefill, decode) = (engine("prefill", 0..2), engine("decode", 0..2));
    let router = router(&prefill, &decode);
    let header = "X-Data-Parallel-Rank: 1\r\n";
    let cases = [
        (json!({"data_parallel_rank": 1}), ""),
        (json!({"routed_dp_rank": 1}), ""),
        (json!({"routed_dp_rank": 1, "data_parallel_rank": 0}), ""),
        (json!({}), header),
        (json!({"routed_dp_rank": 0}), header),
    ];
    for (body, header) in &cases {
        let mut body = body.clone();
        body["text"] = json!(["a", "b"]);
        for _ in 0..EACH {
            let mut client = router.client();
            client.send_post("/generate", header, body.to_string().as_bytes());
            assert_eq!(client.receive().status(), 200, "{body}");
        }
        wait_until("both legs", || [&prefill, &decode].iter().all(|engine| bodies(engine).len() == EACH));
        for engine in [&prefill, &decode] {
            let seen = engine.worker.take_seen();
            let seen: Vec<_> = seen.iter().filter(|request| request.first.starts_with("POST ")).collect();
            assert!(
                seen.iter()
                    .all(|request| request.header("x-data-parallel-rank").is_some() != header.is_empty())
            );
            for sent in seen.iter().map(|request| request.json()) {
                let names = ["data_parallel_rank", "routed_dp_rank"];
                assert!(names.iter().all(|name| sent.get(*name) == body.get(*name)), "{sent}");
                let rooms: Vec<u64> = serde_json::from_value(sent["bootstrap_room"].clone()).expect("rooms");
                assert!(rooms.len() == 2 && rooms.iter().all(|room| room % 2 == 1), "{sent}");
            }
        }
    }
}

#[test]
fn the_rank_that_a_client_names_does_not_go_to_a_prefill_engine_that_does_not_say_how_many_it_has() {
    let (prefill, decode) = (engine("prefill", 0..2), engine("decode", 0..2));
    prefill.say(json!({"served_model_name": "m", "disaggregation_mode": "prefill",
        "disaggregation_bootstrap_port": 8998}));
    let router = router(&prefill, &decode);
    let mut client = router.client();
    client.send_post("/generate", "X-Data-Parallel-Rank: 1\r\n", br#"{"text":"a","routed_dp_rank":1}"#);
    assert_eq!(client.receive().status(), 200);
    wait_until("both legs", || [&prefill, &decode].iter().all(|engine| bodies(engine).len() == 1));
    for (engine, is_sent) in [(&prefill, false), (&decode, true)] {
        let seen = engine.worker.take_seen();
        let sent = seen.iter().find(|request| request.first.starts_with("POST ")).expect("a request");
        let is_named =
            [sent.header("x-data-parallel-rank").is_some(), sent.json().get("routed_dp_rank").is_some()];
        assert_eq!(is_named, [is_sent; 2], "{}", sent.text());
    }
}

#[test]
fn a_rank_that_an_engine_of_a_pair_has_no_more_is_no_clients_affair() {
    for is_prefill in [true, false] {
        let (prefill, decode) = (engine("prefill", 0..4), engine("decode", 0..4));
        let (prefill_url, decode_url) = (prefill.url(), decode.url());
        let args = ["--pd-disaggregation", "--dp-aware", "--policy", "round_robin"];
        let unasked = ["--worker-info-interval-secs", "3600", "--health-check-interval-secs", "3600"];
        let args = [&args[..], &unasked, &["--prefill", &prefill_url, "--decode", &decode_url]].concat();
        let router = Router::start(&[], &args);
        wait_until("both to be ready", || listed(&router).len() == 8);
        let (changed, mode) = if is_prefill { (&prefill, "prefill") } else { (&decode, "decode") };
        changed.become_ranks(0..2);
        let mut info = RankedEngine::info(2);
        info["disaggregation_mode"] = json!(mode);
        info["disaggregation_bootstrap_port"] = json!(8998);
        changed.say(info);
        for _ in 0..8 {
            let answer = router.post("/generate", br#"{"text":"a"}"#);
            assert_eq!(answer.status(), 200, "{mode}: {}", answer.text());
        }
        assert!(changed.refused() > 0, "{mode}");
        assert_eq!(listed(&router).len(), 6, "{mode}");
        let rows = super::workers(&router);
        assert!(rows.iter().all(|row| row["circuit_breaker"] == "closed"), "{mode}: {rows:?}");
    }
}
