//! The bootstrap server's routes and their codes.

use serde_json::{Value, json};

use crate::pair::{ALL_RANKS, PREFILL, Pair};

#[test]
fn the_worker_and_its_ranks_are_told() {
    let pair = Pair::with(&[], |config| config.dp_size = 2);
    let info = pair.bootstrap("GET", ALL_RANKS, &Value::Null).json();
    assert_eq!((&info["dp_size"], &info["page_size"]), (&json!(2), &json!(1)));
    assert_eq!(info["follow_bootstrap_room"], true);
    assert_eq!(info["prefill_http_port"], pair.address(PREFILL).port());
    let rank = |rank: i64| {
        let path =
            format!("/route?prefill_dp_rank={rank}&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0");
        pair.bootstrap("GET", &path, &Value::Null)
    };
    let (first, second) = (rank(0).json(), rank(1).json());
    assert_eq!(first["rank_ip"], "127.0.0.1");
    assert_ne!(first["rank_port"], second["rank_port"], "each rank has a port of its own");
    assert_eq!(rank(2).status, 404);
    assert_eq!(pair.bootstrap("GET", "/route?prefill_dp_rank=0", &Value::Null).status, 400);
    assert_eq!(pair.bootstrap("GET", "/route", &Value::Null).status, 400);
    assert_eq!(pair.bootstrap("PUT", "/route", &json!({"rank_ip": "x"})).status, 400);
    assert_eq!(pair.bootstrap("POST", "/route", &json!({})).status, 405);
    assert_eq!(pair.bootstrap("GET", "/nowhere", &Value::Null).status, 404);
    let health = pair.bootstrap("GET", "/health", &Value::Null);
    assert_eq!((health.status, health.body.as_str()), (200, "OK"));
}

#[test]
fn the_ranks_of_rooms_can_be_told_and_asked() {
    let pair = Pair::start();
    let tell = |body: Value| pair.bootstrap("POST", "/register_dp_rank", &body);
    let told = tell(json!({"bootstrap_room": 77, "dp_rank": 3}));
    assert_eq!((told.status, told.body.as_str()), (200, "OK"));
    assert_eq!(tell(json!({"bootstrap_room": 77})).status, 400);
    let ask = |body: Value| pair.bootstrap("POST", "/query_dp_ranks", &body);
    assert_eq!(ask(json!({"bootstrap_rooms": [77, 78]})).json(), json!({"77": 3}));
    assert_eq!(ask(json!({"rooms": [77]})).status, 400);
}
