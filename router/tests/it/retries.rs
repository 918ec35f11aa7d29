//! When a request is tried again, on whom, and when not.

mod lost;
mod waits;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::worker::dead_url;
use crate::common::{Client, Conn, Latch, Message, Router, Worker, noise, wait_until};

const BODY: &[u8] = br#"{"text":"hello"}"#;

/// In turn, and without waiting long.
const QUICK: [&str; 6] =
    ["--policy", "round_robin", "--retry-initial-backoff-ms", "1", "--retry-max-backoff-ms", "20"];

/// Workers that answer as if they were one: by how many requests all of them got before.
struct Troupe {
    urls: Vec<String>,
    /// Who was asked, in order.
    asked: Arc<Mutex<Vec<usize>>>,
}

impl Troupe {
    /// `reply` gives status line and header fields.
    fn of(
        size: usize,
        reply: impl Fn(usize) -> (&'static str, &'static str) + Send + Sync + 'static,
    ) -> Self {
        let (asked, reply) = (Arc::<Mutex<Vec<usize>>>::default(), Arc::new(reply));
        let member = |place: usize| {
            let (asked, reply) = (Arc::clone(&asked), Arc::clone(&reply));
            Worker::start(move |conn, _| {
                let turn = {
                    let mut asked = asked.lock().expect("not poisoned");
                    asked.push(place);
                    asked.len() - 1
                };
                let (status, headers) = reply(turn);
                conn.answer(status, headers, format!("{{\"turn\":  {turn}}}").as_bytes());
                true
            })
        };
        Self { urls: (0..size).map(|place| member(place).url()).collect(), asked }
    }

    fn router(&self, args: &[&str]) -> Router {
        Router::start(&self.urls, &[&QUICK, args].concat())
    }

    /// Which waits for longer than a test should.
    fn patient_router(&self, args: &[&str]) -> Router {
        let patient = ["--retry-initial-backoff-ms", "1", "--retry-max-backoff-ms", "60000"];
        Router::start(&self.urls, &[&patient, args].concat())
    }

    fn asked(&self) -> Vec<usize> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

// sgl-project/sglang#39464: a full queue on one worker is tried on another that has room.
#[test]
fn the_statuses_of_the_default_set_are_tried_again_on_another_worker() {
    for status in ["408", "429", "500", "502", "503", "504"] {
        let troupe = Troupe::of(2, move |turn| (if turn == 0 { status } else { "200 OK" }, ""));
        let router = troupe.router(&[]);
        let answer = router.post("/generate", BODY);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "{\"turn\":  1}"), "{status}");
        assert_eq!(answer.header("x-router-attempts"), Some("2"), "{status}");
        assert_eq!(troupe.asked(), [0, 1], "{status}");
        wait_until("the loads to be released", || router.loads() == [0, 0]);
    }
}

#[test]
fn other_errors_are_answers() {
    for status in ["400", "401", "403", "404", "409", "413", "422", "501", "505"] {
        let troupe = Troupe::of(2, move |_| (status, "X-Reason: mine\r\n"));
        let answer = troupe.router(&[]).post("/generate", BODY);
        assert_eq!(
            (answer.status().to_string().as_str(), answer.text().as_str()),
            (status, "{\"turn\":  0}")
        );
        assert_eq!((answer.header("x-reason"), answer.header("x-router-attempts")), (Some("mine"), None));
        assert_eq!(troupe.asked(), [0], "{status}");
    }
}

#[test]
fn which_statuses_are_tried_again_is_the_operators_choice() {
    for (statuses, status, tries) in
        [(&["501"][..], "501", 2), (&["501"], "503", 1), (&[], "503", 1), (&["500", "503"], "503", 2)]
    {
        let troupe = Troupe::of(2, move |turn| (if turn == 0 { status } else { "200 OK" }, ""));
        let router = troupe.router(&[&["--retry-statuses"], statuses].concat());
        router.post("/generate", BODY);
        assert_eq!(troupe.asked().len(), tries, "{statuses:?} and {status}");
    }
    let troupe = Troupe::of(2, |_| ("503", ""));
    assert_eq!(troupe.router(&["--disable-retries"]).post("/generate", BODY).status(), 503);
    assert_eq!(troupe.asked(), [0]);
}

// mpfaffenberger/code_puppy#317: a client with retries of its own in front must not multiply without bound, and must see
// what the worker said about coming again.
#[test]
fn attempts_are_bounded_and_the_last_answer_comes_through_unchanged() {
    let troupe = Troupe::of(3, |turn| match turn {
        0 => ("429 Too Many Requests", ""),
        1 => ("500 Internal Server Error", "Content-Type: text/plain\r\n"),
        _ => ("503 Busy", "Retry-After: 7\r\nx-should-retry: false\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n"),
    });
    let answer = troupe.router(&["--retry-max-retries", "3"]).post("/generate", BODY);
    assert_eq!((answer.status(), answer.text().as_str()), (503, "{\"turn\":  2}"));
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    assert_eq!(answer.all("set-cookie"), ["a", "b"]);
    assert_eq!(answer.header("x-router-attempts"), Some("3"));
    assert_eq!(answer.header("x-router-error-code"), None, "it is the worker's answer");
    let mut asked = troupe.asked();
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 2], "each worker once");
}

#[test]
fn no_worker_is_tried_twice_in_a_row_while_there_is_another() {
    let troupe = Troupe::of(3, |_| ("500", ""));
    // By itself this policy would give the same worker every time.
    let args = ["--policy", "consistent_hashing", "--disable-circuit-breaker"];
    let router = troupe.patient_router(&args);
    for key in 0..5 {
        troupe.asked.lock().expect("not poisoned").clear();
        let answer = router.client().post("/generate", &format!("X-SMG-Routing-Key: {key}\r\n"), BODY);
        assert_eq!(answer.header("x-router-attempts"), Some("5"), "the default");
        let asked = troupe.asked();
        let mut first: Vec<_> = asked[..3].to_vec();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2], "all others before one twice: {asked:?}");
        assert!(asked.windows(2).all(|pair| pair[0] != pair[1]), "{asked:?}");
        assert_eq!(asked.len(), 5);
    }
}

/// Header fields that both workers must see alike.
fn end_to_end(request: &Message) -> Vec<&(String, String)> {
    request.headers.iter().filter(|(name, _)| name != "host").collect()
}

// spring-cloud-gateway#580, envoyproxy/envoy#15211
#[test]
fn a_second_worker_gets_the_same_request() {
    let body = noise(7, 1 << 20);
    let failing: [fn(&mut Conn, &Message) -> bool; 2] = [
        |conn, _| {
            conn.answer("500 Internal Server Error", "", b"");
            true
        },
        |_, _| false,
    ];
    for fail in failing {
        let (first, second) = (Worker::start(fail), Worker::fixed("{}"));
        let router = Router::start(&[first.url(), second.url()], &QUICK);
        for given in [Some("X-Request-Id: mine\r\n"), None] {
            let headers = format!("X-Trace: t\r\nCookie: a=b\r\n{}", given.unwrap_or_default());
            while first.count("POST") == 0 {
                let answer = router.client().post("/generate?a=b%20c", &headers, &body);
                assert_eq!(answer.status(), 200);
                let sent = second.seen().pop().expect("a request");
                assert_eq!(sent.header("x-request-id"), answer.header("x-request-id"));
                assert!(given.is_none() || sent.header("x-request-id") == Some("mine"));
            }
            let (failed, served) =
                (first.take_seen().remove(0), second.take_seen().pop().expect("a request"));
            assert_eq!(failed.first, served.first);
            assert_eq!(end_to_end(&failed), end_to_end(&served));
            assert!(failed.body == body && served.body == body, "the bytes of the client");
        }
    }
}

#[test]
fn one_that_is_not_there_hands_on_the_same_request() {
    let second = Worker::fixed("{}");
    let router =
        Router::start(&[dead_url(), second.url()], &[&QUICK[..], &["--disable-health-check"]].concat());
    let body = noise(9, 1 << 20);
    let answer = router.post("/generate", &body);
    assert_eq!((answer.status(), answer.header("x-router-attempts")), (200, Some("2")));
    assert!(second.seen()[0].body == body);
}

// apache/shenyu#6414: one copy of a body however often it is sent.
#[test]
fn retries_do_not_multiply_the_memory_of_bodies() {
    const CLIENTS: usize = 8;
    const SIZE: usize = 8 << 20;
    let go = Latch::default();
    let when = go.clone();
    let failing = Worker::answering("500 Internal Server Error", "", "");
    let holding = Worker::start(move |conn, _| {
        when.wait();
        conn.answer("200 OK", "", b"{}");
        true
    });
    let router = Router::start(
        &[failing.url(), holding.url()],
        &[&QUICK[..], &["--disable-circuit-breaker"]].concat(),
    );
    let before = router.resident_bytes();
    let body = noise(3, SIZE);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| router.client()).collect();
    for client in &mut clients {
        client.send_post("/generate", "", &body);
    }
    wait_until("all to be held", || holding.count("POST") == CLIENTS);
    let grown = router.resident_bytes().saturating_sub(before);
    assert!(failing.count("POST") > 0, "some were tried twice");
    assert!(grown < (CLIENTS * SIZE) as u64 * 3 / 2, "{grown} bytes for {}", CLIENTS * SIZE);
    go.open();
    assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
}

#[test]
fn retries_stay_within_the_budget() {
    const REQUESTS: usize = 100;
    let troupe = Troupe::of(2, |_| ("500", ""));
    let args = ["--disable-circuit-breaker", "--retry-budget-percent", "20", "--retry-budget-min", "5"];
    let router = troupe.router(&args);
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        assert_eq!(router.post("/generate", BODY).status(), 500);
    }
    // What is counted is forgotten after ten seconds.
    let windows = 1 + usize::try_from(begun.elapsed().as_secs() / 10).expect("a short test");
    let retries = troupe.asked().len() - REQUESTS;
    assert!((20..=REQUESTS / 5 + 5 * windows).contains(&retries), "{retries} in {windows} windows");
    let exhausted = r#"smg_worker_retries_exhausted_total{worker_type="regular",endpoint="generate"}"#;
    assert_eq!(router.metric(exhausted), Some(REQUESTS as f64));
}

fn sent(router: &Router, body: &[u8]) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", body);
    client
}
