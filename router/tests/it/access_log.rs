//! One line about each request, whatever becomes of it, and nothing in it that a client could have forged.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::worker::dead_url;
use crate::common::{Conn, Log, Message, Router, Worker, wait_for, wait_until};

const STREAM: &[u8] =
    br#"{"text":"a prompt to be remembered","stream":true,"sampling_params":{"max_new_tokens":2}}"#;
const PLAIN: &[u8] = br#"{"text":"a prompt to be remembered"}"#;

const TOKEN: &[u8] = b"data: {\"text\":\"a\",\"meta_info\":{\"completion_tokens\":1}}\n\n";
const LAST: &[u8] = b"data: {\"text\":\"ab\",\"meta_info\":{\"prompt_tokens\":30,\"completion_tokens\":2,\"cached_tokens\":12}}\n\ndata: [DONE]\n\n";

fn json(urls: &[String], args: &[&str]) -> (Router, Log) {
    Router::start_logged(urls, &[&["--access-log", "json"], args].concat())
}

/// The lines of the access log so far.
fn records(log: &Log) -> Vec<Value> {
    let lines = log.lines().into_iter().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(&line).expect("an object")).collect()
}

fn record_of(log: &Log, id: &str) -> Value {
    wait_for("the line", || records(log).into_iter().find(|record| record["request_id"] == id))
}

fn stream_of_two(conn: &mut Conn) {
    conn.begin_stream();
    conn.chunk(TOKEN);
    conn.chunk(LAST);
    conn.end_stream();
}

#[test]
fn a_line_tells_where_a_request_went_and_what_it_cost() {
    let worker = Worker::start(|conn, _| {
        stream_of_two(conn);
        true
    });
    let (router, log) = json(&[worker.url()], &["--policy", "cache_aware"]);
    for id in ["first", "second"] {
        let answer = router.client().post("/generate", &format!("X-Request-Id: {id}\r\n"), STREAM);
        assert_eq!(answer.status(), 200);
        let record = record_of(&log, id);
        let worker_url = worker.url();
        let bytes = TOKEN.len() + LAST.len();
        for (key, value) in [
            ("level", "info".into()),
            ("log", "access".into()),
            ("method", "POST".into()),
            ("path", "/generate".into()),
            ("stream", true.into()),
            ("status", 200.into()),
            ("end", "complete".into()),
            ("attempts", 1.into()),
            ("worker", worker_url.as_str().into()),
            ("policy", "cache_aware".into()),
            ("prompt_tokens", 30.into()),
            ("cached_tokens", 12.into()),
            ("output_tokens", 2.into()),
            ("bytes", bytes.into()),
        ] {
            assert_eq!(record[key], Value::clone(&value), "{key} of {record}");
        }
        let time = |key: &str| record[key].as_f64().expect("a time");
        assert!(time("ttft_ms") <= time("duration_ms"), "{record}");
        assert!(record["estimated_prompt_tokens"].as_u64() > Some(0), "{record}");
        assert_eq!(record.get("error_code"), None);
    }
    let (first, second) = (record_of(&log, "first"), record_of(&log, "second"));
    assert_eq!(first["matched_chars"], 0);
    assert_eq!((&second["reason"], &second["matched_chars"]), (&"cache_hit".into(), &second["prompt_chars"]));
    assert!(second["predicted_cached_tokens"].as_u64() > Some(0));
}

#[test]
fn what_no_index_was_asked_for_is_left_out() {
    let worker = Worker::fixed("{}");
    let (router, log) = json(&[worker.url()], &["--policy", "round_robin"]);
    router.client().post("/generate", "X-Request-Id: x\r\n", PLAIN);
    let record = record_of(&log, "x");
    assert_eq!(record["policy"], "round_robin");
    for key in ["matched_chars", "prompt_chars", "predicted_cached_tokens"] {
        assert_eq!(record.get(key), None, "{record}");
    }
}

#[test]
fn every_ending_has_its_one_line() {
    let worker = Worker::start(|conn, request| match request.header("x-do") {
        Some("refuse") => {
            conn.answer("400 Bad Request", "", b"{}");
            true
        }
        Some("break") => {
            conn.begin_stream();
            conn.chunk(TOKEN);
            false
        }
        Some("hang") => hang(conn),
        Some("begin and hang") => {
            conn.begin_stream();
            conn.chunk(TOKEN);
            hang(conn)
        }
        _ => {
            stream_of_two(conn);
            true
        }
    });
    let (router, log) = json(&[worker.url()], &["--request-timeout-secs", "2", "--max-payload-size", "1000"]);
    let send = |id: &str, what: &str, body: &[u8]| {
        let mut client = router.client();
        client.send_post("/generate", &format!("X-Request-Id: {id}\r\nX-Do: {what}\r\n"), body);
        client
    };
    for (id, what, body) in [
        ("complete", "", STREAM),
        ("refused by the worker", "refuse", PLAIN),
        ("broken", "break", STREAM),
        ("too long", "", &[b' '; 2000][..]),
        ("silent", "hang", STREAM),
        ("stuck", "begin and hang", STREAM),
    ] {
        // What it got may have been cut off.
        let _ = send(&id.replace(' ', "-"), what, body).reader.message();
    }
    for (id, what) in [("gone-before", "hang"), ("gone-after", "begin and hang")] {
        let seen = worker.seen().len();
        let mut client = send(id, what, STREAM);
        wait_until("the request to arrive", || worker.seen().len() > seen);
        if what != "hang" {
            client.reader.head().expect("a head");
        }
    }
    let expected = [
        ("complete", Some(200), "complete", None),
        ("refused-by-the-worker", Some(400), "complete", None),
        ("broken", Some(200), "broken", None),
        ("too-long", Some(413), "refused", Some("payload_too_large")),
        ("silent", Some(504), "timed_out", Some("upstream_timeout")),
        ("stuck", Some(200), "timed_out", None),
        ("gone-before", None, "client_gone", None),
        ("gone-after", Some(200), "client_gone", None),
    ];
    for (id, status, end, code) in expected {
        let record = record_of(&log, id);
        assert_eq!(record["end"], end, "{record}");
        assert_eq!(record.get("status").and_then(Value::as_u64), status, "{record}");
        assert_eq!(record.get("error_code").and_then(Value::as_str), code, "{record}");
    }
    router.signal("TERM");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in log.into_lines().iter().filter(|line| line.starts_with('{')) {
        let record: Value = serde_json::from_str(line).expect("an object");
        *counts.entry(record["request_id"].as_str().expect("an id").to_owned()).or_default() += 1;
    }
    assert_eq!(counts.len(), expected.len());
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

/// Says nothing until the router gives up.
fn hang(conn: &mut Conn) -> bool {
    let _ = std::io::Read::read(&mut conn.stream, &mut [0]);
    false
}

#[test]
fn a_request_without_a_worker_has_a_line_too() {
    let dead = dead_url();
    for (urls, status, code) in
        [(vec![], 503, "no_workers"), (vec![dead.clone()], 502, "upstream_connect_failed")]
    {
        let (router, log) = json(&urls, &["--disable-retries", "--disable-health-check"]);
        let answer = router.client().post("/generate", "X-Request-Id: x\r\n", PLAIN);
        assert_eq!(answer.status(), status);
        let record = record_of(&log, "x");
        assert_eq!(record["bytes"], answer.body.len());
        assert_eq!((&record["status"], &record["error_code"]), (&status.into(), &code.into()), "{record}");
        assert_eq!(
            (&record["end"], &record["attempts"]),
            (&"refused".into(), &urls.len().into()),
            "{record}"
        );
    }
}

#[test]
fn a_request_that_was_retried_is_one_line_with_one_id() {
    let sick = Worker::start(|conn, _| {
        conn.answer("503 Service Unavailable", "", b"{}");
        true
    });
    let well = Worker::fixed("{}");
    let (router, log) = json(&[sick.url(), well.url()], &["--policy", "round_robin"]);
    let answer = router.client().post("/generate", "X-Request-Id: twice\r\n", PLAIN);
    assert_eq!((answer.status(), answer.header("x-request-id")), (200, Some("twice")));
    let ids = |worker: &Worker| {
        worker
            .seen()
            .iter()
            .map(|seen: &Message| seen.header("x-request-id").map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!((ids(&sick), ids(&well)), (vec![Some("twice".to_owned())], vec![Some("twice".to_owned())]));
    let record = record_of(&log, "twice");
    assert_eq!((&record["attempts"], &record["worker"]), (&2.into(), &well.url().into()), "{record}");
    assert_eq!(records(&log).len(), 1);
}

#[test]
fn no_id_forges_a_line() {
    let worker = Worker::fixed("{}");
    let (router, log) = json(&[worker.url()], &[]);
    let long = "x".repeat(20_000);
    let ids: [&[u8]; 6] = [
        b"",
        b"a%0ab%0d",
        b"\"}{\"end\":\"complete\"",
        b"two words\tand a tab",
        b"\xc3\xa4\x85\xff",
        long.as_bytes(),
    ];
    for (at, id) in ids.into_iter().enumerate() {
        let mut client = router.client();
        let mut head =
            format!("POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", PLAIN.len()).into_bytes();
        head.extend_from_slice(b"X-Request-Id: ");
        client.send([&head, id, b"\r\n\r\n", PLAIN].concat());
        let answer = client.receive();
        assert_eq!(answer.status(), 200);
        let told = answer.header("x-request-id").expect("an id").to_owned();
        assert!(
            (1..=128).contains(&told.len()) && told.bytes().all(|byte| byte.is_ascii_graphic()),
            "{told:?}"
        );
        assert_eq!(record_of(&log, &told)["status"], 200);
        assert_eq!(worker.seen()[at].all("x-request-id"), [told.as_str()], "worker, client and log agree");
        assert_eq!(records(&log).len(), at + 1);
    }
}

#[test]
fn text_is_for_people() {
    let worker = Worker::fixed("{}");
    let (router, log) = Router::start_logged(&[worker.url()], &["--policy", "round_robin"]);
    assert_eq!(router.client().post("/generate", "X-Request-Id: one\r\n", PLAIN).status(), 200);
    let line = wait_for("the line", || log.lines().into_iter().find(|line| line.contains("access:")));
    let (time, rest) = line.split_once("  INFO access: ").expect("time and level");
    assert!(time.len() == 24 && time.ends_with('Z') && time.contains('T'), "{time}");
    let words: Vec<_> = rest.trim_end().split(' ').collect();
    assert_eq!(&words[..3], ["request_id=one", "method=POST", "path=/generate"]);
    assert!(words.contains(&"status=200") && words.contains(&"end=complete"), "{line}");
    assert!(words.contains(&format!("worker={}", worker.url()).as_str()), "{line}");
    assert!(words.iter().all(|word| word.split('=').count() == 2), "{line}");
}

#[test]
fn there_are_no_lines_where_none_are_wanted() {
    for args in [["--access-log", "off"], ["--log-level", "warn"]] {
        let worker = Worker::fixed("{}");
        let (mut router, log) = Router::start_logged(&[worker.url()], &args);
        assert_eq!(router.post("/generate", PLAIN).status(), 200);
        router.signal("TERM");
        assert!(router.wait().success());
        let lines = log.into_lines();
        assert!(!lines.iter().any(|line| line.contains("access")), "{args:?}: {lines:?}");
    }
}
