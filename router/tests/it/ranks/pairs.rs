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
