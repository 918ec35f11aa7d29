//! A slow GPU, a slow reader, a full queue, and a process that starts anew.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use simworker::config::Mode;

use super::{MODES, both, drain, stream};
use crate::client::{Worker, read};

#[test]
fn a_gpu_can_be_slow() {
    // In engine time, so that it does not matter how fast this machine is.
    let latency = |worker: &Worker| {
        let answer =
            worker.post("/generate", &json!({"text": "x", "sampling_params": {"max_new_tokens": 40}}));
        answer.json()["meta_info"]["e2e_latency"].as_f64().unwrap()
    };
    let worker = Worker::watched(Mode::Engine, &[]);
    let usual = latency(&worker);
    worker.control("PATCH", "/workers/0/faults", "{\"slow\": 4}");
    let slow = latency(&worker);
    worker.control("POST", "/workers/0/restart", "");
    let still_slow = latency(&worker);
    worker.control("PATCH", "/workers/0/faults", "{\"slow\": null}");
    let again = latency(&worker);
    for (of, factor) in [(slow, 4.0), (still_slow, 4.0), (again, 1.0)] {
        assert!((of / usual / factor - 1.0).abs() < 0.15, "{usual} {slow} {still_slow} {again}");
    }
}

#[test]
fn a_body_can_be_read_slowly() {
    both(&["slow-read=20000"], |worker| {
        let text = "a word ".repeat(600);
        let start = Instant::now();
        let answer =
            worker.post("/generate", &json!({"text": text, "sampling_params": {"max_new_tokens": 1}}));
        assert_eq!(answer.status, 200);
        assert!(start.elapsed() >= Duration::from_millis(200), "4,200 bytes at 20,000 a second");
    });
    // What is not read cannot be sent either.
    let worker = Worker::watched(Mode::Engine, &["slow-read=1000"]);
    let mut sending =
        worker.send_raw(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n");
    sending.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let stuck = sending.write_all(&vec![b' '; 60_000_000]).unwrap_err().kind();
    assert!(matches!(stuck, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{stuck}");
}

#[test]
fn requests_can_be_rejected_above_a_length_of_the_queue() {
    // At this speed a request takes three seconds into the queue, where two have room.
    let worker = Worker::watched_at(0.001, Mode::Engine, &["reject-above=2,retry-after=7"]);
    let mut waiting: Vec<TcpStream> = (0..3).map(|_| worker.send("/generate", &stream(9))).collect();
    // All of them have been looked at, and one was refused.
    let seen = worker.wait_to_see("one is refused", |seen| seen["totals"]["answered"] == 1);
    assert_eq!(seen["totals"]["requests"], 3);
    let faults = worker.control("GET", "/workers/0/faults", "").json();
    assert_eq!(faults["reject-above"][0]["hits"], 1);
    let refused = worker.post("/generate", &stream(9));
    assert_eq!((refused.status, refused.head.contains("retry-after: 7")), (503, true));
    assert!(refused.body.contains("reject-above"), "{}", refused.body);
    assert_eq!(worker.get("/health").status, 200);
    // Whoever leaves makes room.
    waiting.clear();
    worker.wait_to_see("they have left", |seen| seen["totals"]["client_left"] == 2);
    let _taken = worker.send("/generate", &stream(9));
    worker.wait_to_see("another is taken", |seen| seen["totals"]["requests"] == 6);
    let faults = worker.control("GET", "/workers/0/faults", "").json();
    assert_eq!(faults["reject-above"][0]["hits"], 2);
}

#[test]
fn a_restart_loses_connections_and_cache() {
    let worker = Worker::watched(Mode::Engine, &[]);
    let body = json!({"text": "a prompt that is longer than a few tokens", "sampling_params": {"max_new_tokens": 2}});
    let cached = || worker.post("/generate", &body).json()["meta_info"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(), 0);
    assert!(cached() > 0);
    let started = worker.get("/server_info").json()["startup_time"].as_f64().unwrap();
    let mut long = worker.send("/generate", &stream(4000));
    let mut first = [0; 12];
    long.read_exact(&mut first).unwrap();
    let answer = worker.control("POST", "/workers/0/restart?down=30ms", "").json();
    assert_eq!((&answer["boot"], &answer["listening"]), (&json!(2), &json!(false)));
    assert_eq!(drain(long).1, Err(ErrorKind::ConnectionReset));
    while TcpStream::connect(worker.address()).is_err() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(cached(), 0);
    assert!(worker.get("/server_info").json()["startup_time"].as_f64().unwrap() > started);
    worker.wait_until_idle();
}

#[test]
fn a_restart_forgets_responses() {
    let worker = Worker::watched(MODES[1], &[]);
    let id = worker.post("/v1/responses", &json!({})).json()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/responses/{id}");
    assert_eq!(worker.get(&path).status, 200);
    worker.control("POST", "/workers/0/restart", "");
    assert_eq!(worker.get(&path).status, 404);
    assert_eq!(read(worker.send("/v1/responses", &json!({}))).status, 200);
}
