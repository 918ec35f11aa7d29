//! Both sides of a report.

use super::*;

fn rank(dp_rank: u32) -> RankLoad {
    RankLoad {
        timestamp: 1.5,
        dp_rank,
        num_running_reqs: 3,
        num_waiting_reqs: 1,
        num_total_reqs: None,
        num_waiting_uncached_tokens: 2048,
        num_used_tokens: 9000,
        num_total_tokens: 11_100,
        num_active_tokens: 11_100,
        num_prealloc_ready_tokens: 0,
        max_total_num_tokens: 444_500,
        max_running_requests: 2048,
        token_usage: 0.02,
        gen_throughput: 812.5,
        cache_hit_rate: 0.41,
        utilization: 0.0,
        total_prefill_uncached_tokens: 5,
        total_prefill_busy_us: 6,
        decode_moments: None,
        memory: None,
        disaggregation: None,
        queues: None,
    }
}

fn response(ranks: u32) -> String {
    serde_json::to_string(&LoadsResponse {
        timestamp: "2026-01-01T00:00:00.000000+00:00".into(),
        version: "0".into(),
        accelerator: "A100".into(),
        num_accelerators: 1,
        dp_rank_count: None,
        loads: (0..ranks).map(rank).collect(),
        aggregate: None,
    })
    .unwrap()
}

#[test]
fn core_keys_and_their_order() {
    let text = response(1);
    let keys = "timestamp dp_rank num_running_reqs num_waiting_reqs num_waiting_uncached_tokens num_used_tokens \
        num_total_tokens num_active_tokens num_prealloc_ready_tokens max_total_num_tokens max_running_requests \
        token_usage gen_throughput cache_hit_rate utilization total_prefill_uncached_tokens \
        total_prefill_busy_us decode_moments";
    let (_, entry) = text.split_once("\"loads\":[{").unwrap();
    let written: Vec<&str> =
        entry.trim_end_matches("}]}").split(',').map(|m| m.split('"').nth(1).unwrap()).collect();
    assert_eq!(written, keys.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn what_is_written_is_read() {
    let one = LoadSummary::parse(response(1).as_bytes()).unwrap();
    assert_eq!((one.running, one.waiting, one.total_tokens), (3, 1, 11_100));
    assert_eq!((one.used_tokens, one.max_tokens, one.token_usage), (Some(9000), Some(444_500), Some(0.02)));
    let two = LoadSummary::parse(response(2).as_bytes()).unwrap();
    assert_eq!((two.running, two.total_tokens, two.token_usage), (6, 22_200, Some(0.02)));
    assert_eq!(two.gen_throughput, Some(1625.0));
}

#[test]
fn older_forms() {
    let legacy = r#"[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":700}]"#;
    let load = LoadSummary::parse(legacy.as_bytes()).unwrap();
    assert_eq!((load.running, load.waiting, load.total_tokens, load.token_usage), (3, 2, 700, None));
    let older = r#"{"dp_rank_count":1,"aggregate":{"total_reqs":4},
        "loads":[{"num_running_reqs":3,"num_waiting_reqs":1,"num_total_reqs":4,"num_used_tokens":60}]}"#;
    let load = LoadSummary::parse(older.as_bytes()).unwrap();
    assert_eq!((load.running, load.waiting, load.total_tokens), (3, 1, 60));
}

#[test]
fn each_rank_is_known_by_its_number_as_far_as_that_is_told() {
    let numbers = |body: &str| -> Vec<(Option<u32>, u64)> {
        let ranks = RankSummary::parse(body.as_bytes()).unwrap();
        ranks.iter().map(|rank| (rank.dp_rank, rank.load.total_tokens)).collect()
    };
    let entry = |rank: &str, tokens: u32| {
        format!(r#"{{{rank}"num_running_reqs":1,"num_waiting_reqs":0,"num_used_tokens":{tokens}}}"#)
    };
    let [four, five] = [entry(r#""dp_rank":4,"#, 40), entry(r#""dp_rank":5,"#, 50)];
    let expected = [(Some(5), 50), (Some(4), 40)];
    assert_eq!(numbers(&format!(r#"{{"loads":[{five},{four}]}}"#)), expected, "in the order of the report");
    let [untold, wrong] = [entry("", 7), entry(r#""dp_rank":-1,"#, 8)];
    assert_eq!(numbers(&format!(r#"{{"loads":[{untold},{wrong}]}}"#)), [(None, 7), (None, 8)]);
    let legacy = r#"{"num_reqs":5,"num_waiting_reqs":2,"num_tokens":700"#;
    let legacy = format!(r#"[{legacy}}},{legacy},"dp_rank":1}}]"#);
    assert_eq!(numbers(&legacy), [(None, 700), (Some(1), 700)]);
}

#[test]
fn unusable_reports_are_errors() {
    let cases = [
        ("no ranks", r#"{"loads":[]}"#),
        ("no ranks, older", "[]"),
        ("no tokens", r#"{"loads":[{"num_running_reqs":3,"num_waiting_reqs":1}]}"#),
        ("negative", r#"{"loads":[{"num_running_reqs":-3,"num_waiting_reqs":1,"num_used_tokens":1}]}"#),
        ("another answer", r#"{"status":"ok"}"#),
        ("not JSON", "<html>"),
    ];
    for (case, body) in cases {
        assert!(LoadSummary::parse(body.as_bytes()).is_err(), "{case}");
    }
}
