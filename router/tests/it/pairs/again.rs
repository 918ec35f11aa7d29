//! Tries that meet the one before at an engine, under the name that the client has given.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::legs::{Holding, PREFILLED, breaker, called_off, comes_before_the_end, errors, prefill, router};
use super::{flags, is_idle};
use crate::common::{Conn, Message, Worker, wait_until};

const NAMED: &[u8] = br#"{"text":"hello","rid":"mine"}"#;

/// How an engine refuses a second request of a name.
#[derive(Clone, Copy)]
enum Refusal {
    Status,
    /// Within an answer of success, as SGLang does to one that asks for a stream.
    Frame,
}

/// What an engine does when it is told to abort a request.
#[derive(Clone, Copy)]
enum Abort {
    Obeys,
    Ignores,
}

/// An engine that has a request until it is told to abort it, whatever becomes of the connection. It takes the first one up late:
/// it has been called off by then, which was in vain.
fn keeping(
    refusal: Refusal,
    abort: Abort,
    goes_on: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static,
) -> Worker {
    // The names that it has, and how often it was told to abort one.
    let state = Arc::new(Mutex::new((HashSet::new(), 0)));
    Worker::start(move |conn, request| {
        let rid = request.json()["rid"].as_str().expect("a name").to_owned();
        if request.first.starts_with("POST /abort_request ") {
            let told = {
                let (names, told) = &mut *state.lock().expect("not poisoned");
                *told += 1;
                if *told > 1 && matches!(abort, Abort::Obeys) {
                    names.remove(&rid);
                }
                *told
            };
            if told == 1 {
                wait_until("it to be taken up", || state.lock().expect("not poisoned").0.contains(&rid));
            }
            conn.answer("200 OK", "", b"");
            return true;
        }
        let told = state.lock().expect("not poisoned").1;
        if told == 0 {
            wait_until("it to be called off", || state.lock().expect("not poisoned").1 > 0);
            state.lock().expect("not poisoned").0.insert(rid);
            return false;
        }
        if state.lock().expect("not poisoned").0.insert(rid.clone()) {
            return goes_on(conn, request);
        }
        let body = format!(r#"{{"error":{{"message":"Duplicate request ID detected: {rid}"}}}}"#);
        match refusal {
            Refusal::Status => conn.answer("400 Bad Request", "", body.as_bytes()),
            Refusal::Frame => {
                conn.begin_stream();
                conn.chunk(format!("data: {body}\n\n").as_bytes());
                conn.end_stream();
            }
        }
        true
    })
}

/// A worker that fails at once at its first request, when `other` has it too, and answers later ones when `is_well`.
fn failing_once(other: &Arc<Worker>, is_well: &Arc<AtomicBool>) -> Worker {
    let (other, is_well) = (Arc::clone(other), Arc::clone(is_well));
    let has_failed = AtomicBool::default();
    Worker::start(move |conn, request| {
        if request.first.starts_with("POST /abort_request ") {
            conn.answer("200 OK", "", b"");
            return true;
        }
        if !has_failed.swap(true, Ordering::SeqCst) {
            wait_until("the other one to have it", || other.count("POST /generate") > 0);
            return false;
        }
        let has_come = comes_before_the_end(conn, || is_well.load(Ordering::SeqCst));
        if has_come {
            conn.answer("200 OK", "", PREFILLED.as_bytes());
        }
        has_come
    })
}

#[test]
fn a_try_that_meets_the_one_before_calls_it_off_again_and_is_made_anew() {
    for leg in ["prefill", "decode"] {
        for refusal in [Refusal::Status, Refusal::Frame] {
            let is_well = Arc::<AtomicBool>::default();
            let goes_on = Arc::clone(&is_well);
            let keeping = Arc::new(keeping(refusal, Abort::Obeys, move |conn, _| {
                goes_on.store(true, Ordering::SeqCst);
                conn.answer("200 OK", "", PREFILLED.as_bytes());
                true
            }));
            let failing = failing_once(&keeping, &is_well);
            let router = match leg {
                "prefill" => router(&[&keeping], &[&failing], &flags(&[])),
                _ => router(&[&failing], &[&keeping], &flags(&[])),
            };
            let answer = router.post("/generate", NAMED);
            assert_eq!((answer.status(), answer.header("x-router-attempts")), (200, Some("3")), "{leg}");
            assert_eq!(called_off(&keeping).len(), 2, "{leg}: once in vain");
            wait_until("the leases to end", || is_idle(&router));
            assert_eq!((breaker(&router, &keeping), errors(&router, &keeping)), (0.0, 0.0), "{leg}");
            assert_eq!(errors(&router, &failing), 1.0, "{leg}: once lost, and nothing else");
        }
    }
}

#[test]
fn a_client_is_never_told_of_a_name_that_only_the_router_has_used_twice() {
    let keeping =
        Arc::new(keeping(Refusal::Status, Abort::Ignores, |_, _| unreachable!("it keeps the first")));
    let failing = failing_once(&keeping, &Arc::default());
    let router = router(&[&keeping], &[&failing], &flags(&["--retry-max-retries", "3"]));
    let answer = router.post("/generate", NAMED);
    answer.assert_refused(502, "decode_connection_lost");
    assert_eq!(answer.header("x-router-attempts"), Some("3"));
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!((breaker(&router, &keeping), errors(&router, &keeping)), (0.0, 0.0));
}

#[test]
fn a_name_that_the_client_has_used_twice_is_told_to_it() {
    const BODY: &str = r#"{"error":{"message":"Duplicate request ID detected: mine"}}"#;
    for leg in ["prefill", "decode"] {
        let (refusing, holding) = (Worker::answering("400 Bad Request", "", BODY), Holding::silent());
        let router = match leg {
            "prefill" => router(&[&refusing], &[&holding.worker], &flags(&[])),
            _ => router(&[&holding.worker], &[&refusing], &flags(&[])),
        };
        let answer = router.post("/generate", NAMED);
        assert_eq!((answer.status(), answer.text().as_str()), (400, BODY), "{leg}");
        assert!(called_off(&refusing).is_empty(), "{leg}: that may be another client's");
    }
}

#[test]
fn a_mistake_of_the_clients_in_a_later_try_is_told_to_it_whole() {
    const BODY: &str = r#"{"error":{"message":"The input is longer than the context length."}}"#;
    let refusing = Arc::new(prefill());
    let has_lost = AtomicBool::default();
    let decode = Worker::start(move |conn, _| {
        if !has_lost.swap(true, Ordering::SeqCst) {
            return false;
        }
        conn.answer("400 Bad Request", "X-Kept: yes\r\n", BODY.as_bytes());
        true
    });
    let router = router(&[&refusing], &[&decode], &flags(&[]));
    for _ in 0..2 {
        let answer = router.post("/generate", br#"{"text":"hello"}"#);
        assert_eq!((answer.status(), answer.text().as_str()), (400, BODY));
        assert_eq!(answer.header("x-kept"), Some("yes"));
    }
    wait_until("the leases to end", || is_idle(&router));
}
