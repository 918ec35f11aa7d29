//! Where an answer ends: what a worker says of that, what the client is told, and what it sees when the end never came.

use std::io::{ErrorKind, Read};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::common::{Client, Conn, Message, Router, Worker, wait_until};

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;
const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";

/// What is said to be the length of so many bytes.
type Length = fn(usize) -> usize;

/// A worker that says of each answer how long it is, wrongly, and cuts it in chunks.
fn misstating(stated: Length, chunked_first: bool) -> Worker {
    Worker::start(move |conn, request| {
        let body = answer_to(&request.body);
        let length = format!("Content-Length: {}\r\n", stated(body.len()));
        let coding = "Transfer-Encoding: chunked\r\n";
        let [one, other] = if chunked_first { [coding, &length] } else { [&length, coding] };
        conn.write(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{one}{other}\r\n"));
        for part in body.chunks(body.len() / 2) {
            conn.chunk(part);
        }
        conn.end_stream();
        true
    })
}

fn answer_to(request: &[u8]) -> Vec<u8> {
    [b"data: the answer to ", request, b"\n\n"].concat()
}

/// Checks that exactly one thing tells where this ends, and that it ends there.
fn assert_whole(answer: &Message, expected: &[u8], case: &str) {
    assert_eq!(answer.status(), 200, "{case}: {}", answer.text());
    let (lengths, codings) = (answer.all("content-length"), answer.all("transfer-encoding"));
    assert_eq!(lengths.len() + codings.len(), 1, "{case}: {lengths:?} and {codings:?}");
    assert!(codings.iter().all(|coding| *coding == "chunked"), "{case}: {codings:?}");
    assert!(answer.body == expected, "{case}: {:?}", answer.text());
}

// RFC 9112, section 6.3: beside a transfer coding the length counts for nothing, and is not to be passed on.
#[test]
fn a_length_beside_chunks_goes_to_no_client() {
    let stated: [(&str, Length); 4] = [
        ("short", |length| length - 7),
        ("long", |length| length + 700),
        ("none", |_| 0),
        ("true", |length| length),
    ];
    for (name, stated) in stated {
        for chunked_first in [false, true] {
            let worker = misstating(stated, chunked_first);
            let router = Router::start(&[worker.url()], &[]);
            let mut client = router.client();
            for (path, stream) in [
                ("/generate", false),
                ("/generate", true),
                ("/abort_request", false),
                ("/v1/responses/x/cancel", false),
            ] {
                for number in 0..3 {
                    let case = format!("{name}, {path}, stream: {stream}, request {number}");
                    let sent = format!(r#"{{"text":"{number}","stream":{stream}}}"#);
                    let answer = client.post(path, "", sent.as_bytes());
                    assert_whole(&answer, &answer_to(sent.as_bytes()), &case);
                }
            }
            wait_until("the load to be released", || router.loads() == [0]);
            // Which stayed in step too, or it would have been closed.
            let posts = worker.count("POST");
            assert!(worker.connections() < posts, "{} for {posts} requests", worker.connections());
        }
    }
}

#[test]
fn a_length_beside_no_chunks_at_all_is_none_either() {
    let worker = Worker::start(|conn, _| {
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let mut client = router.client();
    for path in ["/generate", "/abort_request", "/generate"] {
        assert_whole(&client.post(path, "", b"{}"), b"", path);
    }
}

// RFC 9110, section 8.6: a list of the same number is that number.
#[test]
fn a_length_that_is_said_twice_is_told_once() {
    for fields in ["Content-Length: 5, 5\r\n", "Content-Length: 5\r\nContent-Length: 5\r\n"] {
        let worker = Worker::start(move |conn, _| {
            conn.write(format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello"));
            true
        });
        let router = Router::start(&[worker.url()], &[]);
        let mut client = router.client();
        for path in ["/generate", "/abort_request", "/generate"] {
            let answer = client.post(path, "", b"{}");
            assert_whole(&answer, b"hello", path);
            assert_eq!(answer.all("content-length"), ["5"], "{path}");
        }
    }
}

#[test]
fn lengths_that_contradict_each_other_are_no_answer() {
    for fields in
        ["Content-Length: 5, 6\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: x\r\n"]
    {
        let worker = Worker::start(move |conn, _| {
            conn.write(format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello!"));
            false
        });
        let router = Router::start(&[worker.url()], &["--disable-retries"]);
        let mut client = router.client();
        for path in ["/generate", "/abort_request"] {
            client.post(path, "", b"{}").assert_refused(502, "upstream_invalid_answer");
        }
        assert_eq!(router.loads(), [0], "{fields}");
    }
}

/// Asks as a client does to which the end of the connection is the end of the answer.
fn ask_old(router: &Router) -> Client {
    let mut client = router.client();
    let head = format!("POST /generate HTTP/1.0\r\nHost: router\r\nContent-Length: {}\r\n\r\n", STREAM.len());
    client.send([head.as_bytes(), STREAM].concat());
    client
}

/// All that comes, and the error at its end, if it is none that a close makes.
fn read_all(client: &mut Client) -> (String, Option<ErrorKind>) {
    let mut all = Vec::new();
    let end = client.stream.read_to_end(&mut all);
    (String::from_utf8(all).expect("text"), end.err().map(|error| error.kind()))
}

/// A worker that says this much once, and no more until the test drops what is returned, or the router leaves.
fn breaking(said: &'static [u8], hangs: bool) -> (Worker, std::sync::mpsc::Sender<()>) {
    let (go, when) = channel();
    let when = Mutex::new(when);
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
        conn.write(said);
        if hangs {
            let _ = conn.stream.read(&mut [0]);
        } else {
            // Otherwise the end might overtake the beginning.
            let _ = when.lock().expect("not poisoned").recv();
        }
        false
    });
    (worker, go)
}

// sgl-project/sglang#40391: on failure the client saw a clean end, so what was cut off looked whole.
#[test]
fn to_an_old_client_a_stream_that_breaks_off_is_a_reset() {
    let cases: [(&str, &[u8], &[&str]); 5] = [
        ("between chunks", b"", &[]),
        ("within a chunk", b"20\r\ndata: 2", &[]),
        ("before the last chunk's end", b"0\r\n", &[]),
        ("silence", b"", &["--stream-idle-timeout-secs", "0.5"]),
        ("the request's time", b"20\r\ndata: 2", &["--request-timeout-secs", "1"]),
    ];
    for (case, said, args) in cases {
        let (worker, go) = breaking(said, !args.is_empty());
        let router = Router::start(&[worker.url()], args);
        let mut client = ask_old(&router);
        if args.is_empty() {
            wait_until("the first token to be on its way", || {
                router.metric(r#"smg_worker_queued_prefill_tokens"#).is_some_and(|tokens| tokens == 0.0)
                    && worker.count("POST") == 1
            });
            let mut begun = [0; 1];
            client.stream.peek(&mut begun).expect("the answer begins");
            go.send(()).expect("the worker is there");
        }
        let (seen, error) = read_all(&mut client);
        assert!(seen.starts_with("HTTP/1.0 200") || seen.starts_with("HTTP/1.1 200"), "{case}: {seen}");
        assert!(seen.contains("data: {\"text\":\"a\"}"), "{case}: {seen}");
        assert!(!seen.contains("transfer-encoding"), "{case}: {seen}");
        assert_eq!(error, Some(ErrorKind::ConnectionReset), "{case}: it looks whole");
        wait_until("the load to be released", || router.loads() == [0]);
    }
}

#[test]
fn to_an_old_client_a_whole_stream_ends_with_a_close() {
    let worker = Worker::start(|conn: &mut Conn, _| {
        conn.begin_stream();
        (0..3).for_each(|_| assert!(conn.chunk(TOKEN)));
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    for _ in 0..20 {
        let (seen, error) = read_all(&mut ask_old(&router));
        let body = seen.split_once("\r\n\r\n").expect("a head").1;
        assert_eq!((body.as_bytes(), error), (TOKEN.repeat(3).as_slice(), None));
    }
}
