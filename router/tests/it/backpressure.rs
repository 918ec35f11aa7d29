//! A client that does not read holds back its own worker, and nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Conn, Router, Worker, wait_until};

const CLIENTS: usize = 4;
/// What each answer offers, as fast as it is taken.
const OFFER: u64 = 1 << 30;
const PIECE: usize = 1 << 16;
/// How much the router may grow.
const BOUND: u64 = 32 << 20;
const BODY: &[u8] = br#"{"text":"hello","stream":true}"#;

/// A worker with a very long answer for those who ask for `/generate`, and a short one for others.
struct Spring {
    worker: Worker,
    written: Arc<AtomicU64>,
    /// Long answers that are over, one way or the other.
    over: Arc<AtomicUsize>,
}

impl Spring {
    fn new(framing: &'static str) -> Self {
        let (written, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
        let (counter, ended) = (Arc::clone(&written), Arc::clone(&over));
        let worker = Worker::start(move |conn, request| {
            if !request.first.starts_with("POST /generate ") {
                conn.answer("200 OK", "", b"{}");
                return true;
            }
            pour(conn, framing, &counter);
            ended.fetch_add(1, Ordering::SeqCst);
            false
        });
        Self { worker, written, over }
    }
}

/// Waits until nothing has been taken for half a second.
fn wait_for_standstill(written: &AtomicU64) {
    let mut last = (0, Instant::now());
    wait_until("the worker to be held back", || {
        let now = written.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
        now > 0 && last.1.elapsed() > Duration::from_millis(500)
    });
}

fn pour(conn: &mut Conn, framing: &str, written: &AtomicU64) {
    conn.write(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n\r\n"));
    let chunked = framing.starts_with("Transfer-Encoding");
    let piece = vec![b'x'; PIECE];
    for _ in 0..OFFER / PIECE as u64 {
        let taken = if chunked { conn.chunk(&piece) } else { conn.write(&piece) };
        if !taken {
            return;
        }
        written.fetch_add(PIECE as u64, Ordering::SeqCst);
    }
}

fn request(router: &Router) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    client
}

// streams.rs has the bare bound; here, that others are served meanwhile and that the connections close.
#[test]
fn clients_that_do_not_read_hold_back_their_own_workers_only() {
    for framing in ["Transfer-Encoding: chunked", "Content-Length: 1073741824", "X-Framing: to the end"] {
        let spring = Spring::new(framing);
        // One thread, so that the others are served by the one that those who do not read are on.
        let router = Router::start(&[spring.worker.url()], &["--threads", "1"]);
        let before = router.resident_bytes();
        let clients: Vec<_> = (0..CLIENTS).map(|_| request(&router)).collect();
        wait_until("all to be in flight", || router.loads() == [CLIENTS as u64]);
        wait_for_standstill(&spring.written);
        let grown = router.resident_bytes().saturating_sub(before);
        assert!(grown < BOUND, "{framing}: memory grew by {} MB", grown >> 20);
        let written = spring.written.load(Ordering::SeqCst);
        assert!(written < OFFER / 4, "{framing}: {} MB were taken for nobody", written >> 20);

        for _ in 0..50 {
            let asked = Instant::now();
            assert_eq!(router.post("/v1/completions", b"{}").status(), 200, "{framing}");
            assert!(asked.elapsed() < Duration::from_secs(10), "{framing}: others wait");
        }
        assert_eq!(spring.over.load(Ordering::SeqCst), 0, "{framing}: they are held back, not given up");
        let leaving = Instant::now();
        drop(clients);
        wait_until("the workers to learn of it", || spring.over.load(Ordering::SeqCst) == CLIENTS);
        assert!(leaving.elapsed() < Duration::from_secs(10), "{framing}: after {:?}", leaving.elapsed());
        wait_until("the loads to be released", || router.loads() == [0]);
    }
}

#[test]
fn a_client_that_reads_again_gets_all_of_it_in_order() {
    const LENGTH: usize = 24 << 20;
    let whole = Arc::new(crate::common::noise(21, LENGTH));
    let offered = Arc::clone(&whole);
    let written = Arc::<AtomicU64>::default();
    let counter = Arc::clone(&written);
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        for piece in offered.chunks(PIECE) {
            assert!(conn.chunk(piece));
            counter.fetch_add(piece.len() as u64, Ordering::SeqCst);
        }
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let mut client = request(&router);
    wait_for_standstill(&written);
    assert!(written.load(Ordering::SeqCst) < LENGTH as u64, "it was held back");
    assert!(client.receive().body == *whole, "something is missing, or in another place");
    wait_until("the load to be released", || router.loads() == [0]);
}
