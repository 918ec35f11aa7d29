//! Prefill workers that are not where they were, or not as they were.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{Answer, open_at, read};
use crate::fake_prefill::{ClosedPort, FakePrefill, Layout};
use crate::pair::{ALL_RANKS, DECODE, Pair, generate, message};

/// A request for a decode worker with this room of this prefill worker.
fn of(pair: &Pair, prefill: &FakePrefill, room: u64) -> Value {
    let mut body = pair.join(&generate("x", 3), &json!(room));
    body["bootstrap_port"] = prefill.port.into();
    body
}

#[test]
fn a_rank_that_refuses_connections_is_looked_up_again() {
    let (pair, prefill, closed) = (Pair::start(), FakePrefill::start(), ClosedPort::new());
    prefill.set(Layout { start: None, ranks: vec![closed.port()] });
    prefill.set_later(3, Layout { start: None, ranks: vec![prefill.port] });
    assert_eq!(pair.post(DECODE, "/generate", &of(&pair, &prefill, 1)).status, 200);
    assert_eq!((prefill.seen("prefill_dp_rank=-1").len(), prefill.seen("/kv").len()), (3, 1));
    pair.wait_until_idle();
}

#[test]
fn a_rank_that_refuses_connections_for_ever_is_lost() {
    let (pair, prefill, closed) = (Pair::start(), FakePrefill::start(), ClosedPort::new());
    prefill.set(Layout { start: None, ranks: vec![closed.port()] });
    let answer = pair.post(DECODE, "/generate", &of(&pair, &prefill, 1));
    assert_eq!(answer.status, 500);
    assert!(message(&answer).to_lowercase().contains("lost connection"), "{}", answer.body);
    pair.wait_until_idle();
}

#[test]
fn a_layout_with_other_ranks_is_noticed() {
    let (pair, prefill, closed) = (Pair::start(), FakePrefill::start(), ClosedPort::new());
    let port = prefill.port;
    prefill.set(Layout { start: Some(1), ranks: vec![port] });
    assert_eq!(pair.post(DECODE, "/generate", &of(&pair, &prefill, 1)).status, 200);
    // The port of the former rank is another one's now, and room 3 is on the second of two ranks.
    prefill.set(Layout { start: Some(2), ranks: vec![closed.port(), port] });
    assert_eq!(pair.post(DECODE, "/generate", &of(&pair, &prefill, 3)).status, 200);
    let asked = prefill.seen("/kv");
    assert_eq!(asked.last().unwrap()["start"], 2, "{asked:?}");
    assert!(!prefill.seen("prefill_dp_rank=1").is_empty(), "its own rank was asked for");
    // And back to fewer.
    prefill.set(Layout { start: Some(3), ranks: vec![port] });
    assert_eq!(pair.post(DECODE, "/generate", &of(&pair, &prefill, 5)).status, 200);
    pair.wait_until_idle();
}

#[test]
fn signs_of_life_tell_of_another_start() {
    let (pair, prefill) = (Pair::start(), FakePrefill::start());
    let port = prefill.port;
    prefill.set(Layout { start: Some(1), ranks: vec![port] });
    assert_eq!(pair.post(DECODE, "/generate", &of(&pair, &prefill, 1)).status, 200);
    let asked = prefill.seen("prefill_dp_rank=-1").len();
    prefill.set(Layout { start: Some(2), ranks: vec![port, port] });
    pair.wait_until("the layout is asked for", || prefill.seen("prefill_dp_rank=-1").len() > asked);
    assert_eq!(pair.post(DECODE, "/generate", &of(&pair, &prefill, 3)).status, 200);
    assert_eq!(prefill.seen("/kv").len(), 2, "no call went to the former layout");
}

#[test]
fn a_rank_hands_off_to_those_who_mean_its_present_start() {
    let pair = Pair::start();
    let start = |answer: &Answer| {
        let line = answer.head.lines().find_map(|line| line.strip_prefix("x-simworker-start: "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let first = start(&pair.bootstrap("GET", "/health", &Value::Null));
    let rank = "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0";
    let rank = pair.bootstrap("GET", rank, &Value::Null);
    assert_eq!(start(&rank), first);
    let port = rank.json()["rank_port"].as_u64().unwrap() as u16;
    assert_eq!(pair.control("POST", "/workers/0/restart", &Value::Null).status, 200);
    pair.wait_until("the ranks have registered again", || {
        std::net::TcpStream::connect(("127.0.0.1", pair.bootstrap_port())).is_ok()
            && pair.bootstrap("GET", ALL_RANKS, &Value::Null).status == 200
    });
    assert_ne!(start(&pair.bootstrap("GET", "/health", &Value::Null)), first);
    let body = json!({"room": 1, "tokens": 1, "start": first}).to_string();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(read(open_at(address, "POST", "/kv", "application/json", &body)).status, 410);
}
