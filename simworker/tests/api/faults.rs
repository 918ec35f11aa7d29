//! Each fault over a real socket, in both modes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use simworker::config::{Compat, Mode, WorkerConfig};

use crate::client::{Worker, read};

const MODES: [Mode; 2] = [Mode::Engine, Mode::Instant { interval_ns: 0 }];

fn stream(tokens: u32) -> Value {
    json!({"text": "x", "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}, "stream": true})
}

/// Does this to a worker of each kind with these faults.
fn both(faults: &[&str], act: impl Fn(&Worker)) {
    for mode in MODES {
        act(&Worker::watched(mode, faults));
    }
}

/// What came, and how it ended.
fn drain(mut connection: TcpStream) -> (String, Result<(), ErrorKind>) {
    let mut bytes = Vec::new();
    let end = connection.read_to_end(&mut bytes);
    (String::from_utf8(bytes).unwrap(), end.map(|_| ()).map_err(|error| error.kind()))
}

/// The same when nothing more is to be expected after a while.
fn drain_for(connection: TcpStream, patience: Duration) -> (String, Result<(), ErrorKind>) {
    connection.set_read_timeout(Some(patience)).unwrap();
    drain(connection)
}

fn chunks(text: &str) -> usize {
    text.matches("data: {").count()
}

/// The data of all chunks of a body that was cut.
fn body_bytes(text: &str) -> usize {
    let (_, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let mut sum = 0;
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        sum += size;
        rest = &after[size + 2..];
    }
    sum
}

#[test]
fn the_head_can_be_late() {
    both(&["delay-head=60ms"], |worker| {
        let start = Instant::now();
        assert!(!worker.post("/generate", &stream(2)).events().is_empty());
        assert!(start.elapsed() >= Duration::from_millis(60));
    });
}

#[test]
fn chunks_can_be_late() {
    // An engine merges what is ready while it waits; at this speed 400 tokens take longer than one delay.
    for (mode, tokens) in MODES.into_iter().zip([400, 4]) {
        let worker = Worker::watched(mode, &["delay-chunk=20ms"]);
        let start = Instant::now();
        worker.post("/generate", &stream(tokens)).events();
        assert!(start.elapsed() >= Duration::from_millis(40));
    }
}

#[test]
fn a_stream_can_fall_silent() {
    both(&["stall=2chunks"], |worker| {
        let (text, end) = drain_for(worker.send("/generate", &stream(50)), Duration::from_secs(1));
        assert_eq!((chunks(&text), end), (2, Err(ErrorKind::WouldBlock)));
        let seen = worker.wait_to_see("the stall is booked", |seen| seen["requests"][0]["end"] == "fault");
        assert_eq!(seen["requests"][0]["fault"], "stall");
    });
    both(&["stall=request"], |worker| {
        let (text, end) = drain_for(worker.send("/generate", &stream(5)), Duration::from_millis(100));
        assert_eq!((text.as_str(), end), ("", Err(ErrorKind::WouldBlock)));
    });
}

#[test]
fn a_connection_can_end_within_a_body() {
    for (fault, expected) in [("reset=333", Err(ErrorKind::ConnectionReset)), ("close=333", Ok(()))] {
        both(&[fault], |worker| {
            let (text, end) = drain(worker.send("/generate", &stream(50)));
            assert_eq!((body_bytes(&text), end), (333, expected), "{fault}: {text}");
            let seen = worker.seen();
            assert_eq!(
                (&seen["requests"][0]["end"], &seen["requests"][0]["sent_bytes"]),
                (&json!("fault"), &json!(333))
            );
        });
    }
}

#[test]
fn a_connection_can_end_after_the_head() {
    for (fault, expected) in [("reset=head", Err(ErrorKind::ConnectionReset)), ("close=head", Ok(()))] {
        both(&[fault], |worker| {
            for body in [stream(5), json!({"text": "x"})] {
                let (text, end) = drain(worker.send("/generate", &body));
                assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("\r\n\r\n"), "{fault}: {text}");
                assert_eq!(end, expected, "{fault}");
            }
        });
    }
}

#[test]
fn a_connection_can_end_without_an_answer() {
    let reset = Err(ErrorKind::ConnectionReset);
    for (fault, expected) in
        [("reset=arrival", reset), ("reset=request", reset), ("close=0", Ok(())), ("close=request", Ok(()))]
    {
        both(&[fault], |worker| {
            let (text, end) = drain(worker.send("/generate", &stream(5)));
            assert_eq!((text.as_str(), end), ("", expected), "{fault}");
        });
    }
}

#[test]
fn a_status_can_be_made_up_a_few_times_on_a_path() {
    both(&["status=503,times=1,retry-after=7,path=/generate,body={\"no\":1}"], |worker| {
        let tokens = json!({"prompt": "x"});
        assert_eq!(worker.post("/tokenize", &tokens).status, 200);
        let answer = worker.post("/generate", &stream(1));
        assert_eq!((answer.status, answer.body.as_str()), (503, "{\"no\":1}"));
        assert!(answer.head.contains("retry-after: 7\r\n"), "{}", answer.head);
        assert_eq!(worker.post("/generate", &stream(1)).status, 200);
        assert_eq!(worker.control("GET", "/workers/0/faults", "").json()["status"][0]["hits"], 1);
    });
}

#[test]
fn a_fault_may_be_one_workers_alone() {
    let worker = Worker::watched(MODES[1], &["1:status=500"]);
    assert_eq!(worker.post("/generate", &stream(1)).status, 200);
    assert_eq!(worker.second().post("/generate", &stream(1)).status, 500);
}

#[test]
fn connections_can_be_refused_and_taken_again() {
    both(&[], |worker| {
        let mut open = worker.send_raw(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut head = [0; 12];
        open.read_exact(&mut head).unwrap();
        for who in ["new", "all"] {
            let set = worker.control("PUT", "/workers/0/faults", &json!({ "refuse": who }).to_string());
            assert_eq!(set.status, 200);
            let refused = TcpStream::connect(worker.address()).expect_err("nobody listens").kind();
            assert_eq!(refused, ErrorKind::ConnectionRefused);
            if who == "new" {
                open.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
                open.read_exact(&mut head).unwrap();
            } else {
                let mut rest = Vec::new();
                assert_eq!(open.read_to_end(&mut rest).unwrap_err().kind(), ErrorKind::ConnectionReset);
            }
            assert_eq!(worker.control("DELETE", "/workers/0/faults", "").status, 200);
            assert_eq!(worker.get("/health").status, 200);
        }
    });
}

#[test]
fn idle_connections_can_be_closed() {
    both(&["idle-close=50ms"], |worker| {
        let (text, end) = drain(worker.send_raw(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"));
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert_eq!(end, Ok(()));
        // Nothing at all was asked on this one.
        assert_eq!(drain(worker.send_raw(b"")), (String::new(), Ok(())));
    });
}

#[test]
fn a_connection_can_be_closed_after_an_answer_that_did_not_say_so() {
    both(&["close-after-answer=on"], |worker| {
        for body in [stream(3), json!({"text": "x"})] {
            let body = body.to_string();
            let head =
                format!("POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
            let (text, end) = drain(worker.send_raw((head + &body).as_bytes()));
            assert!(
                text.starts_with("HTTP/1.1 200") && !text.to_lowercase().contains("connection:"),
                "{text}"
            );
            assert!(text.ends_with("0\r\n\r\n") || text.ends_with('}'), "{text}");
            assert_eq!(end, Ok(()));
        }
        assert_eq!(worker.seen()["totals"]["answered"], 2);
    });
}

#[test]
fn health_can_flap() {
    both(&["health=good*2/bad/500"], |worker| {
        let seen: Vec<u16> = (0..6).map(|_| worker.get("/health").status).collect();
        assert_eq!(seen, [200, 200, 503, 500, 200, 200]);
    });
}

#[test]
fn loads_can_be_lies() {
    let set = |worker: &Worker, lie: Value| {
        assert_eq!(
            worker.control("PUT", "/workers/0/faults", &json!({ "loads": lie }).to_string()).status,
            200
        );
    };
    both(&[], |worker| {
        set(worker, json!("negative"));
        assert_eq!(worker.load()["num_running_reqs"], -1);
        set(worker, json!({"num_running_reqs": 77}));
        assert_eq!((&worker.load()["num_running_reqs"], &worker.load()["dp_rank"]), (&json!(77), &json!(0)));
        set(worker, json!("garbage"));
        assert!(serde_json::from_str::<Value>(&worker.get("/v1/loads").body).is_err());
        set(worker, json!(404));
        assert_eq!(worker.get("/v1/loads").status, 404);
        set(worker, json!("hang"));
        let hanging = worker.send_raw(b"GET /v1/loads HTTP/1.1\r\nhost: x\r\n\r\n");
        assert_eq!(drain_for(hanging, Duration::from_millis(100)).1, Err(ErrorKind::WouldBlock));
        assert_eq!(worker.get("/health").status, 200);
    });
}

#[test]
fn loads_of_older_engines_can_be_lies() {
    let older = |config: &mut WorkerConfig| config.wire.compat = Compat::Older;
    let worker = Worker::watched_with(50.0, Mode::Engine, &["loads=negative"], older);
    assert_eq!(worker.get("/get_load").json()[0]["num_waiting_reqs"], -1);
}

#[test]
fn loads_can_be_frozen() {
    let worker = Worker::watched_at(1.0, Mode::Engine, &[]);
    let long = worker.send("/generate", &stream(5000));
    worker.wait_until_running(1);
    worker.control("PATCH", "/workers/0/faults", "{\"loads\":\"frozen\"}");
    drop(long);
    worker.wait_to_see("the client left", |seen| seen["totals"]["client_left"] == 1);
    let told = worker.load();
    assert_eq!(told["num_running_reqs"], 1);
    assert_eq!(worker.load()["timestamp"], told["timestamp"]);
    worker.control("PATCH", "/workers/0/faults", "{\"loads\":null}");
    worker.wait_until_idle();
}

#[test]
fn the_clock_of_loads_can_be_off() {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    for (skew, seconds) in [("+1000s", 1000.0), ("-1000s", -1000.0)] {
        let worker = Worker::watched(Mode::Engine, &[&format!("loads-skew={skew}")]);
        let told = worker.get("/v1/loads").json();
        let off = told["loads"][0]["timestamp"].as_f64().unwrap() - now();
        assert!((off - seconds).abs() < 100.0, "{skew}: {off}");
        assert_eq!(told["loads"][0]["num_running_reqs"], 0);
        worker.control("DELETE", "/workers/0/faults", "");
        let right = worker.get("/v1/loads").json();
        assert!((right["loads"][0]["timestamp"].as_f64().unwrap() - now()).abs() < 100.0);
        let (wrong, right) = (told["timestamp"].as_str().unwrap(), right["timestamp"].as_str().unwrap());
        assert_eq!(wrong > right, seconds > 0.0, "{wrong} {right}");
    }
}

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
fn json_can_be_garbage() {
    both(&["garbage=json"], |worker| {
        let whole = worker.post("/generate", &json!({"text": "x"}));
        assert_eq!(whole.status, 200);
        assert!(whole.body.starts_with('{') && serde_json::from_str::<Value>(&whole.body).is_err());
        let streamed = worker.post("/generate", &stream(3));
        let events = events(streamed.body.as_bytes());
        assert!(events.len() > 1);
        assert!(events.iter().all(|data| serde_json::from_slice::<Value>(data).is_err()));
    });
}

#[test]
fn events_can_be_garbage() {
    both(&["garbage=sse"], |worker| {
        let whole = worker.post("/generate", &json!({"text": "x"}));
        assert!(whole.json()["text"].is_string(), "a whole answer has no events");
        let mut connection = worker.send("/generate", &stream(9));
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).unwrap();
        let has = |bytes: &[u8]| answer.windows(bytes.len()).any(|window| window == bytes);
        assert!(has(b"200 OK") && has(b"date: {") && has(b"\xff"), "{}", String::from_utf8_lossy(&answer));
    });
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

/// The data of all events of a stream.
fn events(body: &[u8]) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    let mut splitter = protocol::sse::Splitter::default();
    let mut take = |event: protocol::sse::Event<'_>| events.push(event.data.to_vec());
    splitter.push(body, &mut take).unwrap();
    splitter.finish(&mut take).unwrap();
    events
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
