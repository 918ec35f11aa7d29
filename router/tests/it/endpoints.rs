//! Every path that is proxied, and those that are not.

use std::io::{ErrorKind, Read};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::common::worker::dead_url;
use crate::common::{Client, Latch, Message, PATIENCE, Router, Worker, wait_until};

const EXTRA: &str = "/v1/audio/transcriptions";

/// Every proxied path with a body of its kind; the prompt in place of `PROMPT`.
const PATHS: [(&str, &str); 10] = [
    ("/generate", r#"{"text":"PROMPT"}"#),
    ("/v1/chat/completions", r#"{"model":"m","messages":[{"role":"user","content":"PROMPT"}]}"#),
    ("/v1/completions", r#"{"model":"m","prompt":"PROMPT"}"#),
    ("/v1/embeddings", r#"{"model":"m","input":"PROMPT"}"#),
    ("/v1/classify", r#"{"model":"m","input":"PROMPT"}"#),
    ("/v1/rerank", r#"{"query":"PROMPT","documents":["a","b"]}"#),
    ("/rerank", r#"{"query":"PROMPT","documents":["a","b"]}"#),
    ("/v1/score", r#"{"query":"PROMPT","items":["a","b"]}"#),
    ("/v1/responses", r#"{"model":"m","input":"PROMPT"}"#),
    (EXTRA, r#"{"file":"PROMPT"}"#),
];

fn body(form: &str, prompt: &str) -> Vec<u8> {
    form.replace("PROMPT", &prompt.repeat(100)).into_bytes()
}

fn urls(workers: &[Worker]) -> Vec<String> {
    workers.iter().map(Worker::url).collect()
}

/// Answers each request when it has its turn.
fn held(go: &Latch) -> Worker {
    let go = go.clone();
    Worker::start(move |conn, _| {
        go.wait();
        conn.answer("200 OK", "", b"{}");
        true
    })
}

#[test]
fn every_path_is_proxied_as_it_came() {
    let worker = Worker::start(|conn, request| {
        conn.answer("200 OK", "Content-Type: x/y\r\n", request.first.as_bytes());
        true
    });
    let router = Router::start(&[worker.url()], &["--extra-endpoints", EXTRA, "/v1/x"]);
    for (path, form) in PATHS.iter().chain(&[("/v1/x", "not JSON \u{fffd}")]) {
        let sent = body(form, "word ");
        let answer = router.post(&format!("{path}?a=%20b"), &sent);
        assert_eq!((answer.status(), answer.text()), (200, format!("POST {path}?a=%20b HTTP/1.1")));
        assert_eq!(answer.header("content-type"), Some("x/y"));
        assert_eq!(worker.seen().last().expect("a request").body, sent, "{path}");
        let wrong = router.get(path);
        wrong.assert_refused(405, "method_not_allowed");
        assert_eq!(wrong.header("allow"), Some("POST"));
    }
    wait_until("the load to be released", || router.loads() == [0]);
}

#[test]
fn other_paths_and_methods_are_refused() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    let elsewhere = [
        EXTRA,
        "/",
        "/generate/",
        "/v1",
        "/v1/responses/",
        "/v1/responses/x/y",
        "/v1/responses//cancel",
        "/metrics",
    ];
    for path in elsewhere {
        router.post(path, b"{}").assert_refused(404, "not_found");
        router.get(path).assert_refused(404, "not_found");
    }
    for (method, path, allowed) in [
        ("POST", "/health", "GET, HEAD"),
        ("DELETE", "/workers", "GET, HEAD, POST"),
        ("POST", "/workers/x", "GET, HEAD, PUT, DELETE"),
        ("GET", "/workers/x/drain", "POST"),
        ("GET", "/abort_request", "POST"),
        ("POST", "/v1/responses/x", "GET, HEAD"),
        ("GET", "/v1/responses/x/cancel", "POST"),
        ("PUT", "/generate", "POST"),
    ] {
        let mut client = router.client();
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: router\r\nContent-Length: 0\r\n\r\n"));
        let refused = client.receive();
        refused.assert_refused(405, "method_not_allowed");
        assert_eq!(refused.header("allow"), Some(allowed), "{method} {path}");
    }
    assert_eq!(worker.seen().len(), 0);
}

// vllm-project/router#179
#[test]
fn load_counts_on_every_path_until_the_last_byte() {
    const WORKERS: usize = 8;
    const REQUESTS: usize = 40;
    let go = Latch::default();
    let workers: Vec<Worker> = (0..WORKERS).map(|_| held(&go)).collect();
    let args = ["--balance-abs-threshold", "2", "--balance-rel-threshold", "1", "--extra-endpoints", EXTRA];
    let router = Router::start(&urls(&workers), &[&["--policy", "cache_aware"], &args[..]].concat());
    for (path, form) in PATHS {
        let first = format!("POST {path} ");
        let shares = || workers.iter().map(|worker| worker.count(&first)).collect::<Vec<_>>();
        let mut clients: Vec<Client> = Vec::new();
        for number in 0..REQUESTS {
            let mut client = router.client();
            client.send_post(path, "", &body(form, &format!("shared by all on {path} ")));
            clients.push(client);
            if number == 0 {
                wait_until("the prefix to have an owner", || shares().iter().sum::<usize>() == 1);
            }
        }
        wait_until("all to be held", || shares().iter().sum::<usize>() == REQUESTS);
        let most = shares().into_iter().max().expect("workers");
        assert!(most <= 2 * REQUESTS / WORKERS, "{path}: {:?}", shares());
        assert_eq!(router.loads().iter().sum::<u64>(), REQUESTS as u64, "{path}");
        go.pass(REQUESTS);
        assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
        wait_until("the loads to be released", || router.loads() == [0; WORKERS]);
    }
}

fn decided(answer: &Message) -> usize {
    answer.header("x-router-worker").expect("a decision").parse().expect("a number")
}

// vllm-project/router#238
#[test]
fn one_overloaded_worker_does_not_cost_the_others_their_prefixes() {
    const HELD: usize = 9;
    let go = Latch::default();
    let holding = |_| {
        let go = go.clone();
        Worker::start(move |conn, request| {
            if request.header("x-hold").is_some() {
                go.wait();
            }
            conn.answer("200 OK", "", b"{}");
            true
        })
    };
    let workers: Vec<Worker> = (0..3).map(holding).collect();
    let args = ["--policy", "cache_aware", "--decision-headers", "--balance-abs-threshold", "8"];
    let router = Router::start(&urls(&workers), &args);
    let ask = |topic: &str| decided(&router.post("/generate", &body(PATHS[0].1, topic)));
    let hot = ask("hot ");
    let topic = (0..100).map(|number| format!("calm{number} ")).find(|topic| ask(topic) != hot);
    let calm = topic.expect("a draw for another worker");
    let owner = ask(&calm);
    let mut clients: Vec<Client> = (0..HELD).map(|_| router.client()).collect();
    for client in &mut clients {
        client.send_post("/generate", "X-Hold: 1\r\n", &body(PATHS[0].1, "hot "));
    }
    wait_until("the load", || router.loads()[hot] == HELD as u64);
    for _ in 0..10 {
        assert_eq!(ask(&calm), owner, "its own worker is idle");
        assert_ne!(ask("hot "), hot, "this one's is not");
    }
    go.open();
    assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
}

// THUDM/slime#2340
#[test]
fn an_abort_reaches_every_worker() {
    let workers: Vec<Worker> = (0..4)
        .map(|place| {
            let status = if place == 2 { "200 OK" } else { "400 Bad Request" };
            Worker::answering(status, "", "")
        })
        .collect();
    let router = Router::start(&urls(&workers), &[]);
    for (told, sent) in [&br#"{"rid":"x"}"#[..], br#"{"abort_all": true}"#].into_iter().enumerate() {
        let answer = router.post("/abort_request", sent);
        assert_eq!(answer.status(), 200, "one that knows it is enough");
        // The answer waits for none of the others.
        wait_until("all to be told", || workers.iter().all(|worker| worker.count("POST /abort") > told));
        for worker in &workers {
            let got = worker.seen().pop().expect("a request");
            assert_eq!((got.first.as_str(), got.body.as_slice()), ("POST /abort_request HTTP/1.1", sent));
            assert_eq!(got.header("x-request-id"), answer.header("x-request-id"));
        }
    }
}

#[test]
fn an_abort_does_not_wait_for_a_dead_worker_nor_for_a_permit() {
    let go = Latch::default();
    let held = held(&go);
    let live = Worker::start(|conn, request| {
        assert!(request.first.starts_with("POST /abort_request "), "{}", request.first);
        conn.answer("200 OK", "", b"");
        true
    });
    let args = ["--max-concurrent-requests", "1", "--queue-size", "0", "--policy", "round_robin"];
    let router = Router::start(&[held.url(), live.url(), dead_url()], &args);
    let mut running = router.client();
    running.send_post("/generate", "", b"{}");
    wait_until("the request to run", || held.count("POST /generate") == 1);
    let mut abort = router.client();
    abort.send_post("/abort_request", "", br#"{"rid":"x"}"#);
    wait_until("all to be told", || held.count("POST /abort") == 1 && live.count("POST /abort") == 1);
    go.open();
    assert_eq!([abort.receive().status(), running.receive().status()], [200, 200]);

    let router = Router::start(&[dead_url()], &[]);
    router.post("/abort_request", b"{}").assert_refused(502, "upstream_connect_failed");
    router.post("/generate", b"{}");
}

/// Knows this response, and nothing else.
fn storing(id: &'static str) -> Worker {
    Worker::start(move |conn, request| {
        let path = request.first.split(' ').nth(1).expect("a path");
        if path.trim_start_matches("/v1/responses/").split(['/', '?']).next() == Some(id) {
            conn.answer("200 OK", "X-Owner: yes\r\n", request.first.as_bytes());
        } else {
            conn.answer("404 Not Found", "X-Owner: no\r\n", b"{\"error\": \"mine\"}");
        }
        true
    })
}

#[test]
fn all_workers_are_asked_for_a_response_and_its_holder_answers() {
    let workers = [storing("resp_a"), storing("resp_b"), storing("resp_c")];
    let router = Router::start(&urls(&workers), &[]);
    for id in ["resp_a", "resp_b", "resp_c"] {
        let found = router.get(&format!("/v1/responses/{id}?include=x"));
        assert_eq!((found.status(), found.header("x-owner")), (200, Some("yes")));
        assert_eq!(found.text(), format!("GET /v1/responses/{id}?include=x HTTP/1.1"));
        let cancelled = router.post(&format!("/v1/responses/{id}/cancel"), b"{}");
        assert_eq!(cancelled.text(), format!("POST /v1/responses/{id}/cancel HTTP/1.1"));
        let asked = |what: &str| {
            let first = format!("{what} /v1/responses/{id}");
            workers.iter().all(|worker| worker.count(&first) == 1)
        };
        wait_until("all to be asked, once", || asked("GET") && asked("POST"));
    }
    let unknown = router.get("/v1/responses/resp_d");
    assert_eq!((unknown.status(), unknown.text().as_str()), (404, "{\"error\": \"mine\"}"));
    assert_eq!(unknown.header("x-owner"), Some("no"), "it is a worker's answer");
    assert_eq!(unknown.header("x-router-error-code"), None);
    assert!(workers.iter().all(|worker| worker.count("GET /v1/responses/resp_d ") == 1));
}

#[test]
fn a_response_is_found_behind_a_dead_worker() {
    let owner = storing("resp_a");
    let router = Router::start(&[dead_url(), owner.url()], &[]);
    assert_eq!(router.get("/v1/responses/resp_a").status(), 200);
    assert_eq!(router.get("/v1/responses/resp_b").status(), 404);
    let router = Router::start(&[dead_url()], &[]);
    router.get("/v1/responses/resp_a").assert_refused(502, "upstream_connect_failed");
}

// vllm-project/aibrix#1103, vllm-project/aibrix#781
#[test]
fn every_refusal_is_json_that_openais_clients_read_also_to_a_stream() {
    let silent = Worker::start(|conn, _| {
        let _ = conn.stream.read(&mut [0]);
        false
    });
    let (dead_urls, silent_urls) = ([dead_url()], [silent.url()]);
    let dead = ["--disable-health-check", "--disable-retries"];
    let cases: [(&[String], &[&str], u16, &str); 5] = [
        (&[], &[], 503, "no_workers"),
        (&dead_urls, &dead, 502, "upstream_connect_failed"),
        (&silent_urls, &["--first-byte-timeout-secs", "0.1"], 504, "upstream_first_byte_timeout"),
        (&silent_urls, &["--request-timeout-secs", "1"], 504, "upstream_timeout"),
        (&silent_urls, &["--max-payload-size", "10"], 413, "payload_too_large"),
    ];
    for (workers, args, status, code) in cases {
        let router = Router::start(workers, args);
        for stream in [true, false] {
            let sent = format!("{{\"messages\":[],\"stream\":{stream}}}");
            let refused = router.post("/v1/chat/completions", sent.as_bytes());
            refused.assert_refused(status, code);
            let address = workers.first().map_or("http://none", |url| url);
            assert!(!refused.text().contains(address.trim_start_matches("http://")));
        }
    }
}

/// Hears the question, and does not answer until it may.
fn silent(go: &Latch) -> Worker {
    let go = go.clone();
    Worker::start(move |_, _| {
        go.wait();
        false
    })
}

#[test]
fn one_yes_is_enough_while_others_are_silent() {
    let go = Latch::default();
    for place in 0..3 {
        let workers: Vec<Worker> = (0..3)
            .map(|other| if other == place { Worker::fixed("\"mine\"") } else { silent(&go) })
            .collect();
        let router = Router::start(&urls(&workers), &[]);
        let mut client = router.client();
        assert_eq!(client.post("/v1/responses/x/cancel", "", b"{}").text(), "\"mine\"");
        wait_until("all to be asked", || workers.iter().all(|worker| worker.count("POST") == 1));
    }
    go.open();
}

#[test]
fn many_workers_are_asked_in_turns_and_one_yes_does_not_wait_for_all() {
    const AT_ONCE: usize = 32;
    const WORKERS: usize = AT_ONCE + 8;
    let go = Latch::default();
    let mut workers = vec![Worker::fixed("\"mine\"")];
    workers.extend((1..WORKERS).map(|_| held(&go)));
    let router = Router::start(&urls(&workers), &["--threads", "1"]);
    let asked = || workers.iter().map(|worker| worker.count("POST /abort")).sum::<usize>();
    assert_eq!(router.post("/abort_request", b"{}").text(), "\"mine\"");
    // The others do not answer. Whoever else was to be asked at once has been by the time of a later answer.
    wait_until("as many to be asked as may be", || asked() == AT_ONCE + 1);
    for _ in 0..5 {
        assert_eq!(router.get("/health").status(), 200);
    }
    assert_eq!(asked(), AT_ONCE + 1);
    go.open();
    wait_until("all to be told", || asked() == WORKERS);
    assert!(workers.iter().all(|worker| worker.count("POST /abort") == 1));
}

#[test]
fn a_worker_that_says_no_at_length_is_not_listened_to_for_long() {
    const LONG: usize = 2 << 20;
    for (status, heard) in [("404 Not Found", false), ("200 OK", true)] {
        let worker = Worker::start(move |conn, _| {
            conn.answer(status, "", &[b'x'; LONG]);
            true
        });
        let router = Router::start(&[worker.url()], &[]);
        let answer = router.get("/v1/responses/x");
        match heard {
            true => assert_eq!(answer.body.len(), LONG),
            false => answer.assert_refused(502, "upstream_invalid_answer"),
        }
    }
}

#[test]
fn what_tells_most_is_passed_on() {
    // From the most telling one to the least.
    const ANSWERS: [&[&str]; 3] = [
        &["400 Bad Request", "403 Forbidden"],
        &["404 Not Found", "405 Not Allowed"],
        &["503 Busy", "429 Busy", "500 Oh"],
    ];
    for (rank, better) in ANSWERS.iter().enumerate() {
        let worse = ANSWERS[rank + 1..].iter().copied().flatten().copied();
        for (better, worse) in worse.flat_map(|worse| better.iter().map(move |better| (*better, worse))) {
            for order in [[better, worse], [worse, better]] {
                let workers = order.map(|status| Worker::answering(status, "", status));
                let mut all = urls(&workers);
                all.insert(0, dead_url());
                let router = Router::start(&all, &["--disable-health-check"]);
                assert_eq!(router.get("/v1/responses/x").text(), better, "{order:?}");
            }
        }
    }
}

#[test]
fn an_abort_is_delivered_although_its_client_has_left() {
    let go = Latch::default();
    let (heard, wanted) = channel();
    let workers: Vec<Worker> = (0..3)
        .map(|_| {
            let (go, heard) = (go.clone(), heard.clone());
            Worker::start(move |conn, _| {
                go.wait();
                conn.stream.set_nonblocking(true).expect("an option");
                let read = conn.stream.peek(&mut [0]);
                conn.stream.set_nonblocking(false).expect("an option");
                heard
                    .send(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
                    .expect("the test is there");
                conn.answer("200 OK", "", b"");
                true
            })
        })
        .collect();
    let router = Router::start(&urls(&workers), &[]);
    let mut client = router.client();
    client.send_post("/abort_request", "", br#"{"rid":"x"}"#);
    wait_until("all to be told", || workers.iter().all(|worker| worker.count("POST") == 1));
    client.reset();
    // Until that has been noticed.
    std::thread::sleep(Duration::from_millis(300));
    go.open();
    for _ in &workers {
        assert_eq!(wanted.recv_timeout(PATIENCE), Ok(true), "the router still waits for the answer");
    }
}

#[test]
fn asking_around_ends_with_the_requests_time() {
    let go = Latch::default();
    let workers = [silent(&go), storing("resp_a")];
    let router = Router::start(&urls(&workers), &["--request-timeout-secs", "1"]);
    let begun = Instant::now();
    router.get("/v1/responses/resp_b").assert_refused(504, "upstream_timeout");
    let took = begun.elapsed().as_secs_f64();
    assert!((0.9..4.0).contains(&took), "after {took} s");
    assert_eq!(router.get("/v1/responses/resp_a").status(), 200);
    go.open();
}
