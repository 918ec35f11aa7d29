//! One id for a request, the same at its worker and at its client.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::worker::dead_url;
use crate::common::{Message, Router, Worker};

const DEFAULT_HEADERS: [&str; 4] = ["X-Request-Id", "X-Correlation-Id", "X-Trace-Id", "Request-Id"];
const LONGEST: usize = 128;

/// The only id in a message.
fn id(message: &Message) -> String {
    let all = message.all("x-request-id");
    assert_eq!(all.len(), 1, "one id, not {all:?}");
    all[0].to_owned()
}

fn last(worker: &Worker) -> Message {
    worker.seen().pop().expect("the worker saw a request")
}

// vllm-project/production-stack#472: a proxy that makes an id of its own breaks its clients' traces.
#[test]
fn a_clients_id_reaches_the_worker_and_comes_back_whichever_header_carries_it() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    let mut client = router.client();
    let longest = "x".repeat(LONGEST);
    for name in DEFAULT_HEADERS {
        for name in [name.to_owned(), name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
            for sent in ["job-17.item-3", "00-4bf92f3577b34da6-01/a=b;c", "a%0ab%0d", &longest] {
                let answer = client.post("/v1/chat/completions", &format!("{name}: {sent}\r\n"), b"{}");
                assert_eq!(answer.status(), 200);
                assert_eq!((id(&answer), id(&last(&worker))), (sent.to_owned(), sent.to_owned()), "{name}");
                // The field itself is the client's, and passes like any other.
                assert_eq!(last(&worker).all(&name.to_ascii_lowercase()), [sent]);
            }
        }
    }
    let both = "Request-Id: last\r\nX-Correlation-Id: second\r\n";
    assert_eq!(id(&client.post("/generate", both, b"{}")), "second", "the first of the list counts");
}

// vllm-project/production-stack#472
#[test]
fn a_request_without_an_id_gets_one_that_worker_and_client_share() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    let mut client = router.client();
    let mut ids = HashSet::new();
    for (path, prefix) in [
        ("/v1/chat/completions", "chatcmpl-"),
        ("/v1/completions", "cmpl-"),
        ("/generate", "gnt-"),
        ("/v1/responses", "resp-"),
        ("/v1/embeddings", "req-"),
    ] {
        for _ in 0..20 {
            let answer = client.post(path, "", b"{}");
            let id = id(&answer);
            assert_eq!(self::id(&last(&worker)), id, "{path}");
            assert!(id.starts_with(prefix) && id.len() == prefix.len() + 24, "{path}: {id}");
            assert!(ids.insert(id), "an id came twice");
        }
    }
}

// vllm-project/vllm#10968: an id of a megabyte would be repeated on every line of the log.
#[test]
fn what_is_no_fit_id_is_replaced_by_one_that_is() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--max-header-bytes", "131072"]);
    let mut client = router.client();
    let (longer, huge) = ("x".repeat(LONGEST + 1), "y".repeat(100_000));
    for sent in [longer.as_str(), &huge, "", "two words", "a\tb", "caf\u{e9}", "\u{6253}"] {
        let shown: String = sent.chars().take(20).collect();
        let answer = client.post("/generate", &format!("X-Request-Id: {sent}\r\n"), b"{}");
        assert_eq!(answer.status(), 200, "{shown}");
        assert!(id(&answer).starts_with("gnt-"), "{shown}");
        assert_eq!(id(&answer), id(&last(&worker)), "{shown}");
    }
}

// vllm-project/production-stack#472
#[test]
fn every_attempt_at_a_request_has_its_id() {
    for sent in [Some("mine"), None] {
        let tries = AtomicUsize::new(0);
        let worker = Worker::start(move |conn, _| {
            let well = tries.fetch_add(1, Ordering::SeqCst) == 2;
            conn.answer(if well { "200 OK" } else { "503 Service Unavailable" }, "", b"{}");
            true
        });
        let router = Router::start(&[worker.url()], &["--retry-initial-backoff-ms", "1"]);
        let headers = sent.map_or(String::new(), |id| format!("X-Correlation-Id: {id}\r\n"));
        let answer = router.client().post("/generate", &headers, b"{}");
        assert_eq!((answer.status(), answer.header("x-router-attempts")), (200, Some("3")));
        let seen: HashSet<_> = worker.seen().iter().map(id).collect();
        assert_eq!(seen, HashSet::from([id(&answer)]), "the same id each time");
        assert!(sent.is_none_or(|sent| id(&answer) == sent));
    }
}

// vllm-project/production-stack#472
#[test]
fn the_routers_own_answers_carry_the_id_too() {
    let args = ["--disable-retries", "--disable-health-check", "--max-payload-size", "10"];
    let router = Router::start(&[dead_url()], &args);
    let ask = |path: &str, body: &[u8]| router.client().post(path, "X-Request-Id: mine\r\n", body);
    for (answer, status) in [
        (ask("/generate", b"{}"), 502),
        (ask("/generate", b"{\"text\":\"too long\"}"), 413),
        (ask("/nowhere", b"{}"), 404),
        (ask("/workers", b"{}"), 422),
        (ask("/health", b"{}"), 405),
    ] {
        assert_eq!((answer.status(), id(&answer).as_str()), (status, "mine"));
    }
}

// An engine that names requests itself must not make two ids of one.
#[test]
fn a_workers_own_id_does_not_stand_beside_the_clients() {
    let worker = Worker::start(|conn, _| {
        conn.answer("200 OK", "X-Request-Id: theirs\r\nX-Trace-Id: kept\r\n", b"{}");
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let answer = router.client().post("/generate", "X-Request-Id: mine\r\n", b"{}");
    assert_eq!(id(&answer), "mine");
    assert_eq!(answer.all("x-trace-id"), ["kept"]);
}

// W3C Trace Context: what is not understood is passed on as it is.
#[test]
fn the_trace_context_passes_as_it_is() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &[]);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = format!(
        "Traceparent: {parent}\r\nTracestate: a=1,b=\"2\"\r\nTracestate: c=3\r\nBaggage: tenant=7;p\r\n"
    );
    let answer = router.client().post("/v1/chat/completions", &headers, b"{}");
    assert_eq!(answer.status(), 200);
    let seen = last(&worker);
    assert_eq!(seen.all("traceparent"), [parent]);
    assert_eq!(seen.all("tracestate"), ["a=1,b=\"2\"", "c=3"]);
    assert_eq!(seen.all("baggage"), ["tenant=7;p"]);
}
