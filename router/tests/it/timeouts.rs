//! Limits of time, and answers that break off: what the client sees, and that nothing stays behind.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{Client, Conn, Message, PATIENCE, Router, Worker, wait_until};

const BODY: &[u8] = br#"{"text":"hello","stream":true}"#;
const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";

/// Tells when the router has hung up on a request that this began to answer.
fn worker(begin: impl Fn(&mut Conn) + Send + Sync + 'static) -> (Worker, Receiver<Instant>) {
    let (left, noticed) = channel();
    let worker = Worker::start(move |conn, _| {
        begin(conn);
        let read = conn.stream.read(&mut [0]);
        assert!(matches!(read, Ok(0) | Err(_)), "the router sent something");
        let _ = left.send(Instant::now());
        false
    });
    (worker, noticed)
}

fn request(router: &Router) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", BODY);
    client
}

fn assert_let_go(router: &Router, noticed: &Receiver<Instant>, case: &str) {
    let ended = Instant::now();
    let at = noticed.recv_timeout(PATIENCE).expect(case);
    assert!(at.saturating_duration_since(ended) < Duration::from_secs(10), "{case}");
    wait_until("the load to be released", || router.loads().iter().sum::<u64>() == 0);
}

/// Whether the rest of an answer ends as what was cut off does; what came of it before.
fn broken_rest(client: &mut Client, head: &Message, left: usize) -> (bool, Vec<u8>) {
    if head.header("transfer-encoding").is_none() {
        return (client.reader.exact(left).is_err(), Vec::new());
    }
    let mut rest = Vec::new();
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "it does not end");
        match client.reader.chunk() {
            Err(_) => return (true, rest),
            Ok(chunk) if chunk.is_empty() => return (false, rest),
            Ok(chunk) => rest.extend(chunk),
        }
    }
}

/// A listener that accepts nobody, with no room for anybody to wait.
struct Full {
    url: String,
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl Full {
    /// `None` where the system lets connections wait all the same.
    fn new() -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        rustix::net::listen(&listener, 0).expect("a listener may listen anew");
        let address = listener.local_addr().expect("an address");
        let mut waiting = Vec::new();
        for _ in 0..16 {
            match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                Ok(stream) => waiting.push(stream),
                Err(_) => {
                    return Some(Self {
                        url: format!("http://{address}"),
                        _listener: listener,
                        _waiting: waiting,
                    });
                }
            }
        }
        eprintln!("skipped: a full queue of connections does not hold anybody up here");
        None
    }
}

#[test]
fn a_worker_that_does_not_accept_in_time_is_a_504_and_another_is_tried() {
    let Some(full) = Full::new() else { return };
    let args = ["--connect-timeout-secs", "0.3", "--disable-health-check", "--policy", "round_robin"];
    let router =
        Router::start(std::slice::from_ref(&full.url), &[&args[..], &["--disable-retries"]].concat());
    let asked = Instant::now();
    router.post("/generate", BODY).assert_refused(504, "upstream_connect_timeout");
    assert!(asked.elapsed() > Duration::from_millis(250), "after {:?}", asked.elapsed());
    assert_eq!(router.loads(), [0]);

    let other = Worker::fixed("{}");
    let router = Router::start(&[full.url.clone(), other.url()], &args);
    for _ in 0..2 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    assert_eq!(router.loads(), [0, 0]);
}

#[test]
fn a_worker_that_does_not_begin_in_time_is_a_504_and_the_request_is_not_sent_again() {
    let (silent, noticed) = worker(|_| {});
    let other = Worker::fixed("{}");
    let args = ["--first-byte-timeout-secs", "0.5", "--policy", "round_robin", "--retry-max-retries", "5"];
    let router = Router::start(&[silent.url(), other.url()], &args);
    let asked = Instant::now();
    router.post("/generate", BODY).assert_refused(504, "upstream_first_byte_timeout");
    assert!(asked.elapsed() > Duration::from_millis(450), "after {:?}", asked.elapsed());
    assert_let_go(&router, &noticed, "the silent one");
    let seen = (silent.count("POST"), other.count("POST"));
    assert_eq!(seen, (1, 0), "the work may have been done");
}

// The limit of the first byte is none of the whole answer.
#[test]
fn a_worker_that_has_begun_has_kept_the_limit_of_the_first_byte() {
    let worker = Worker::start(|conn, _| {
        conn.begin_stream();
        std::thread::sleep(Duration::from_millis(1200));
        conn.chunk(TOKEN);
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &["--first-byte-timeout-secs", "0.5"]);
    assert_eq!(router.post("/generate", BODY).body, TOKEN);
}

// sgl-project/sglang#40391: a worker that hung held its guards for ever, and the end looked clean.
#[test]
fn a_stream_that_falls_silent_ends_broken() {
    for framing in ["Transfer-Encoding: chunked", "Content-Length: 1000", "X-Framing: to the end"] {
        let (worker, noticed) = worker(move |conn| {
            conn.write(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n\r\n"));
            for _ in 0..3 {
                if framing.starts_with('T') {
                    conn.chunk(TOKEN);
                } else {
                    conn.write(TOKEN);
                }
            }
        });
        let router = Router::start(&[worker.url()], &["--stream-idle-timeout-secs", "0.6"]);
        let mut client = request(&router);
        let head = client.reader.head().expect("a head").expect("not the end");
        let begun = Instant::now();
        let (broken, rest) = broken_rest(&mut client, &head, 1000);
        let lasted = begun.elapsed();
        assert!(broken, "{framing}: a clean end");
        assert!(head.header("content-length").is_some() || rest == TOKEN.repeat(3), "{framing}: {rest:?}");
        assert!(
            lasted > Duration::from_millis(500) && lasted < Duration::from_secs(3),
            "{framing}: {lasted:?}"
        );
        assert_let_go(&router, &noticed, framing);
        assert_eq!(worker.count("POST"), 1, "{framing}: what has begun is not tried again");
    }
}

// Comments are what servers send to say that they are alive.
#[test]
fn a_stream_that_speaks_now_and_then_is_not_silent() {
    let worker = Worker::start(|conn, _| {
        conn.begin_stream();
        for _ in 0..8 {
            conn.chunk(b": ping\n\n");
            std::thread::sleep(Duration::from_millis(250));
        }
        conn.chunk(b"data: [DONE]\n\n");
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &["--stream-idle-timeout-secs", "1"]);
    let answer = router.post("/generate", BODY);
    assert_eq!(answer.text(), ": ping\n\n".repeat(8) + "data: [DONE]\n\n");
}

// The silence that counts is the worker's.
#[test]
fn a_client_that_pauses_is_not_taken_for_a_silent_worker() {
    const CHUNKS: usize = 1024;
    const CHUNK: usize = 65_536;
    let worker = Worker::start(|conn, _| {
        conn.begin_stream();
        let chunk = vec![b'x'; CHUNK];
        (0..CHUNKS).for_each(|_| assert!(conn.chunk(&chunk), "the router let go"));
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &["--stream-idle-timeout-secs", "0.5"]);
    let mut client = request(&router);
    client.reader.head().expect("a head");
    std::thread::sleep(Duration::from_millis(1500));
    let mut length = 0;
    loop {
        let chunk = client.reader.chunk().expect("a chunk");
        if chunk.is_empty() {
            break;
        }
        length += chunk.len();
    }
    assert_eq!(length, CHUNK * CHUNKS);
    wait_until("the load to be released", || router.loads() == [0]);
}

// A worker that always has something to say never falls silent; streams.rs has one that does.
#[test]
fn the_request_timeout_ends_a_stream_that_would_go_on_for_ever() {
    let (worker, noticed) = worker(|conn| {
        conn.begin_stream();
        while conn.chunk(TOKEN) {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let router = Router::start(&[worker.url()], &["--request-timeout-secs", "1"]);
    let sent = Instant::now();
    let mut client = request(&router);
    let head = client.reader.head().expect("a head").expect("not the end");
    let (broken, rest) = broken_rest(&mut client, &head, 0);
    let lasted = sent.elapsed();
    assert!(broken && rest.starts_with(TOKEN));
    assert!(lasted > Duration::from_millis(900) && lasted < Duration::from_secs(4), "{lasted:?}");
    assert_let_go(&router, &noticed, "the talkative one");
}

// sgl-project/sglang#40391: on failure the client saw a clean end, so what was cut off looked whole.
#[test]
fn an_answer_that_breaks_off_ends_broken_in_every_framing() {
    const FIRST: &[u8] = b"data: 1\n\n";
    const TO_THE_END: &str = "without a length";
    let cases: [(&str, &str); 6] = [
        ("between chunks", "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"),
        ("within a chunk", "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n20\r\ndata: 2"),
        ("within a chunk's size", "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n2"),
        ("within the end", "Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n"),
        ("short of its length", "Content-Length: 100\r\n\r\ndata: 1\n\n"),
        (TO_THE_END, "X-Framing: none\r\n\r\ndata: 1\n\n"),
    ];
    for (case, answer) in cases {
        for reset in [false, true] {
            if case == TO_THE_END && !reset {
                // That is how such an answer ends when it is whole.
                continue;
            }
            let case = format!("{case}, reset: {reset}");
            let (go, when) = channel::<()>();
            let when = Mutex::new(when);
            let worker = Worker::start(move |conn, _| {
                conn.write(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{answer}"));
                // A reset would overtake what the router has not read yet.
                let _ = when.lock().expect("not poisoned").recv();
                if reset {
                    let at_once = Some(Duration::ZERO);
                    rustix::net::sockopt::set_socket_linger(&conn.stream, at_once).expect("an option");
                }
                false
            });
            let router = Router::start(&[worker.url()], &[]);
            let mut client = request(&router);
            let head = client.reader.head().expect("a head").expect("not the end");
            let chunked = head.header("transfer-encoding").is_some();
            let first = if chunked { client.reader.chunk() } else { client.reader.exact(FIRST.len()) };
            assert_eq!((head.status(), first.expect("the first event").as_slice()), (200, FIRST), "{case}");
            go.send(()).expect("the worker is there");
            let (broken, rest) = broken_rest(&mut client, &head, 100 - FIRST.len());
            assert!(broken, "{case}: it ends as if it were whole");
            assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"), "{case}: an end is made up");
            wait_until("the load to be released", || router.loads() == [0]);
            assert_eq!(worker.count("POST"), 1, "{case}: what has begun is not tried again");
        }
    }
}
