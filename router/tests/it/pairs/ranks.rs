//! Engines whose data-parallel ranks are chosen by the router.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::flags;
use super::legs::{PREFILLED, bodies, router, wait_for};
use crate::common::{Router, Worker, wait_until};

/// An engine of two ranks that says so.
pub(super) fn engine(mode: &'static str, method: &'static str) -> Worker {
    Worker::probed(move |conn, request| {
        if request.first.starts_with("GET /health ") {
            conn.answer("200 OK", "", b"");
        } else if request.first.starts_with("GET /server_info ") {
            let info = json!({
                "disaggregation_mode": mode, "dp_size": 2, "load_balance_method": method, "served_model_name": "m",
            });
            conn.answer("200 OK", "Content-Type: application/json\r\n", info.to_string().as_bytes());
        } else if request.first.starts_with("GET ") {
            conn.answer("404 Not Found", "", b"");
        } else {
            conn.answer("200 OK", "Content-Type: application/json\r\n", PREFILLED.as_bytes());
        }
        true
    })
}

fn wait_for_ranks(router: &Router, workers: &[&Worker]) {
    let is_known = |worker: &&Worker| {
        let rank = format!("smg_worker_requests_active{{worker=\"{}@1\"}}", worker.url());
        router.metric(&rank).is_some()
    };
    wait_until("the ranks to be known", || workers.iter().all(is_known));
}

fn by_room(worker: &Worker) -> HashMap<u64, Value> {
    let room = |body: &Value| body["bootstrap_room"].as_u64().expect("a number");
    bodies(worker).into_iter().map(|body| (room(&body), body)).collect()
}

// sgl-project/sglang#29725: a rank was named that contradicted the room, and 4 of 16 requests were refused.
#[test]
fn case_20_a_room_stands_for_the_rank_that_is_named() {
    const REQUESTS: usize = 16;
    for (field, other, args) in [
        ("data_parallel_rank", "routed_dp_rank", &["--dp-aware"][..]),
        ("routed_dp_rank", "data_parallel_rank", &["--dp-aware", "--dp-rank-field", "routed_dp_rank"]),
    ] {
        let prefill = engine("prefill", "follow_bootstrap_room");
        let decode = engine("decode", "round_robin");
        let router = router(&[&prefill], &[&decode], &flags(args));
        wait_for_ranks(&router, &[&prefill, &decode]);
        // What a client says of ranks is about a fleet that it does not know.
        let body = br#"{"text":"a","data_parallel_rank":7,"routed_dp_rank":8,"disagg_prefill_dp_rank":9}"#;
        let mut clients: Vec<_> = (0..REQUESTS).map(|_| router.client()).collect();
        for client in &mut clients {
            client.send_post("/generate", "X-Data-Parallel-Rank: 5\r\n", body);
        }
        for client in &mut clients {
            assert_eq!(client.receive().status(), 200);
        }
        wait_for(REQUESTS, &[&prefill, &decode]);
        let (at_prefill, at_decode) = (by_room(&prefill), by_room(&decode));
        assert_eq!(at_prefill.len(), REQUESTS);
        let mut counts = [0; 2];
        for (room, body) in &at_prefill {
            let rank = body[field].as_u64().expect("a rank");
            assert_eq!(room % 2, rank, "{body}");
            assert!(body.get(other).is_none() && body.get("disagg_prefill_dp_rank").is_none(), "{body}");
            let twin = &at_decode[room];
            assert_eq!(twin["disagg_prefill_dp_rank"], json!(rank));
            assert!(twin[field].as_u64().is_some_and(|rank| rank < 2) && twin.get(other).is_none(), "{twin}");
            counts[usize::try_from(rank).expect("small")] += 1;
        }
        assert_eq!(counts, [REQUESTS / 2; 2], "in turn");
        let seen = prefill.seen().into_iter().chain(decode.seen());
        assert!(seen.into_iter().all(|request| request.header("x-data-parallel-rank").is_none()));
    }
}

#[test]
fn a_batch_has_all_its_rooms_on_the_rank() {
    let (prefill, decode) = (engine("prefill", "auto"), engine("decode", "auto"));
    let router = router(&[&prefill], &[&decode], &flags(&["--dp-aware"]));
    wait_for_ranks(&router, &[&prefill, &decode]);
    for _ in 0..4 {
        assert_eq!(router.post("/generate", br#"{"text":["a","b","c"]}"#).status(), 200);
    }
    wait_for(4, &[&prefill, &decode]);
    for body in bodies(&prefill) {
        let rooms: Vec<u64> = serde_json::from_value(body["bootstrap_room"].clone()).expect("rooms");
        let rank = body["data_parallel_rank"].as_u64().expect("one rank for the batch");
        assert!(rooms.len() == 3 && rooms.iter().all(|room| room % 2 == rank), "{body}");
    }
}

#[test]
fn ranks_that_engines_choose_are_not_named() {
    let (prefill, decode) = (engine("prefill", "auto"), engine("decode", "auto"));
    let router = router(&[&prefill], &[&decode], &flags(&[]));
    assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200);
    wait_for(1, &[&prefill, &decode]);
    for worker in [&prefill, &decode] {
        let body = bodies(worker).pop().expect("a body");
        let names = ["data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank"];
        assert!(names.iter().all(|name| body.get(*name).is_none()), "{body}");
    }
}

// sgl-project/sglang#22740: fields that a router does not know were dropped.
#[test]
fn case_32_a_regular_engine_gets_every_body_as_it_came_but_for_the_rank() {
    for field in ["data_parallel_rank", "routed_dp_rank"] {
        let engine = engine("null", "round_robin");
        let router = Router::start(&[engine.url()], &flags(&["--dp-aware", "--dp-rank-field", field]));
        wait_for_ranks(&router, &[&engine]);
        for (case, path, body) in super::bodies::all() {
            engine.take_seen();
            assert_eq!(router.post(path, &body).status(), 200, "{case}");
            let seen = engine.take_seen().into_iter().find(|request| request.first.starts_with("POST "));
            let seen = seen.expect("a request");
            assert!(seen.first.starts_with(&format!("POST {path} ")), "{case}");
            let end = body.iter().rposition(|byte| *byte == b'}').expect("an object");
            let kept = body[..end].trim_ascii_end();
            let expected = |rank: u32| {
                let added = format!(",\"{field}\":{rank}");
                [kept, added.as_bytes(), &body[kept.len()..]].concat()
            };
            assert!([0, 1].map(expected).contains(&seen.body), "{case}: {}", seen.text());
            assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string().as_str()), "{case}");
        }
    }
}

#[test]
fn a_regular_engine_gets_the_rank_and_nothing_else_that_is_new() {
    let engine = engine("null", "round_robin");
    let router = Router::start(&[engine.url()], &flags(&["--dp-aware"]));
    wait_for_ranks(&router, &[&engine]);
    for _ in 0..4 {
        assert_eq!(router.post("/generate", br#"{"text":"a" , "x":1.50}"#).status(), 200);
    }
    let texts: Vec<_> = engine
        .seen()
        .iter()
        .filter(|request| request.first.starts_with("POST"))
        .map(|request| request.text())
        .collect();
    let of = |rank: u32| {
        texts
            .iter()
            .filter(|text| **text == format!(r#"{{"text":"a" , "x":1.50,"data_parallel_rank":{rank}}}"#))
            .count()
    };
    assert_eq!((of(0), of(1)), (2, 2), "{texts:?}");
    // What is no object goes on as it came.
    assert_eq!(router.post("/generate", b"nonsense").status(), 200);
    assert_eq!(engine.seen().pop().expect("a request").text(), "nonsense");
}
