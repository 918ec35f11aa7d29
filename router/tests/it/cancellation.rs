//! Clients that vanish give back all that they held: load, tokens, permits, places in the queue, connections.

use std::io::Read;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::common::{Client, Conn, PATIENCE, Router, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"hello","stream":true,"sampling_params":{"max_new_tokens":100}}"#;
const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";
const CLIENTS: usize = 200;
/// Within this the books are even again.
const SETTLED: Duration = Duration::from_secs(10);
/// Within this a worker learns that nobody listens any more.
const NOTICED: Duration = Duration::from_secs(10);

/// When clients leave, against the first byte of their answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The worker is silent.
    Before,
    /// The worker begins just then.
    At,
    /// The worker has begun, and is silent.
    After,
    /// The worker has begun, and goes on.
    Amid,
}

/// Serves one request until the router hangs up.
fn serve(conn: &mut Conn, moment: Moment, begin: &Mutex<Receiver<()>>) {
    if moment == Moment::At {
        // One word for each request.
        let _ = begin.lock().expect("not poisoned").recv();
    }
    if moment != Moment::Before {
        conn.begin_stream();
        conn.chunk(TOKEN);
    }
    while moment == Moment::Amid && conn.chunk(TOKEN) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let read = conn.stream.read(&mut [0]);
    assert!(matches!(read, Ok(0) | Err(_)), "the router sent something");
}

/// A worker that tells when the router has hung up on each request.
fn worker(moment: Moment) -> (Worker, Sender<()>, Receiver<Instant>) {
    let (begin, when) = channel();
    let (left, noticed) = channel();
    let when = Mutex::new(when);
    let worker = Worker::start(move |conn, _| {
        serve(conn, moment, &when);
        let _ = left.send(Instant::now());
        false
    });
    (worker, begin, noticed)
}

/// What must be 0 when nobody is there.
fn held(router: &Router) -> Vec<(&'static str, f64)> {
    let gauges = [
        "smg_worker_requests_active",
        "smg_worker_tokens_active",
        "smg_worker_queued_prefill_tokens",
        "smg_router_admitted_requests",
        "smg_router_queue_depth",
    ];
    let shown =
        |name| (name, router.metric(&format!("{name}{{")).or_else(|| router.metric(&format!("{name} "))));
    let mut held: Vec<_> =
        gauges.map(shown).into_iter().map(|(name, value)| (name, value.expect(name))).collect();
    held.push(("load in /workers", router.loads().iter().sum::<u64>() as f64));
    held
}

/// All of it is 0 again in time.
fn assert_settles(router: &Router, since: Instant, case: &str) {
    loop {
        let held = held(router);
        if held.iter().all(|(_, value)| *value == 0.0) {
            return;
        }
        assert!(since.elapsed() < SETTLED, "{case}: still held {held:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn request(router: &Router) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    client
}

// vllm-project/router#215: each client that left while its answer was awaited stayed in the books for ever.
#[test]
fn clients_that_reset_leave_nothing_behind_whenever_they_do() {
    for moment in [Moment::Before, Moment::At, Moment::After, Moment::Amid] {
        let case = format!("{moment:?}");
        let (worker, begin, noticed) = worker(moment);
        let args = ["--max-concurrent-requests", "1000", "--request-timeout-secs", "60"];
        let router = Router::start(&[worker.url()], &args);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| request(&router)).collect();
        wait_until("all to be with the worker", || worker.count("POST") == CLIENTS);
        assert_eq!(router.loads(), [CLIENTS as u64], "{case}");
        assert_eq!(router.metric("smg_router_admitted_requests "), Some(CLIENTS as f64), "{case}");
        if matches!(moment, Moment::After | Moment::Amid) {
            for client in &mut clients {
                client.reader.head().expect("a head");
                assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
            }
        }
        let leaving = Instant::now();
        for client in clients {
            if moment == Moment::At {
                begin.send(()).expect("the worker is there");
            }
            client.reset();
        }
        let left = Instant::now();
        assert_settles(&router, left, &case);
        for number in 0..CLIENTS {
            let at = noticed.recv_timeout(PATIENCE);
            let at = at.unwrap_or_else(|_| panic!("{case}: {number} of the connections were closed"));
            let late = at.saturating_duration_since(left);
            assert!(late < NOTICED, "{case}: a worker heard of it {late:?} later");
            assert!(at > leaving, "{case}: not before");
        }
        assert_eq!(router.post("/nowhere", b"").status(), 404, "{case}: the router is well");
    }
}

// vllm-project/router#215
#[test]
fn clients_that_leave_while_their_request_is_tried_again_leave_nothing_behind() {
    let worker = Worker::start(|conn, _| {
        conn.answer("503 Service Unavailable", "Retry-After: 20\r\n", b"{}");
        true
    });
    let args = ["--max-concurrent-requests", "1000", "--disable-circuit-breaker"];
    let router = Router::start(&[worker.url()], &args);
    let clients: Vec<_> = (0..50).map(|_| request(&router)).collect();
    wait_until("all to have been refused once", || worker.count("POST") == 50);
    wait_until("all to wait", || router.metric("smg_router_admitted_requests ") == Some(50.0));
    clients.into_iter().for_each(Client::reset);
    assert_settles(&router, Instant::now(), "between two attempts");
    assert_eq!(worker.count("POST"), 50, "nobody asks for them any more");
}

// A place in the queue is held by a connection, not by a promise.
#[test]
fn clients_that_leave_the_queue_do_not_hold_up_those_behind_them() {
    let (release, when) = channel::<()>();
    let when = Mutex::new(when);
    let worker = Worker::start(move |conn, request| {
        if request.body == b"first" {
            let _ = when.lock().expect("not poisoned").recv();
        }
        conn.answer("200 OK", "", b"{}");
        true
    });
    let router = Router::start(&[worker.url()], &["--max-concurrent-requests", "1", "--queue-size", "200"]);
    let send = |body: &[u8]| {
        let mut client = router.client();
        client.send_post("/generate", "", body);
        client
    };
    let waiting = |number: f64| {
        wait_until("the queue", || router.metric("smg_router_queue_depth ") == Some(number));
    };
    let mut first = send(b"first");
    wait_until("the first to be in flight", || worker.count("POST") == 1);
    let gone: Vec<_> = (0..100).map(|_| send(b"gone")).collect();
    waiting(100.0);
    let mut last = send(b"last");
    waiting(101.0);
    gone.into_iter().for_each(Client::reset);
    waiting(1.0);
    release.send(()).expect("the worker is there");
    assert_eq!(first.receive().status(), 200);
    assert_eq!(last.receive().status(), 200);
    let bodies: Vec<_> = worker.seen().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, [&b"first"[..], b"last"]);
    assert_settles(&router, Instant::now(), "after the queue");
}

// An upload that is cut off is no request.
#[test]
fn clients_that_reset_within_their_upload_reach_no_worker() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--max-concurrent-requests", "1000"]);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = router.client();
            let half = match number % 3 {
                0 => "Content-Length: 100\r\n\r\nhalf",
                1 => "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
                _ => "Content-Le",
            };
            client.send(format!("POST /generate HTTP/1.1\r\nHost: router\r\n{half}"));
            client
        })
        .collect();
    let uploading = (CLIENTS - CLIENTS / 3) as f64;
    wait_until("the uploads to have begun", || {
        router.metric("smg_router_admitted_requests ") == Some(uploading)
    });
    clients.into_iter().for_each(Client::reset);
    assert_settles(&router, Instant::now(), "within the upload");
    assert_eq!(worker.seen().len(), 0);
}
