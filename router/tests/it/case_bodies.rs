//! Every shape of body, sent and answered in every way: the bytes are the same at both ends.

pub(crate) mod bodies;

use std::path::Path;
use std::sync::Arc;

use crate::common::{Client, Conn, Message, PATHS, Router, Worker, noise};
use bodies::BODIES;

/// A gzip member by hand: a proxy that undoes the coding, or does it anew, changes it.
const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV*I\xad(Q\xb2R\xcaH\xcd\xc9\xc9W@\"\x95j\xab\xc9\
    \x94\x03\x00z(Q\xd5T\x00\x00\x00";

/// How a client sends its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sending {
    Whole,
    UpperCase,
    LowerCase,
    Charset,
    Chunked,
    ByteByByte,
    ChunkedByteByByte,
    AfterContinue,
}

const SENDINGS: [Sending; 8] = [
    Sending::Whole,
    Sending::UpperCase,
    Sending::LowerCase,
    Sending::Charset,
    Sending::Chunked,
    Sending::ByteByByte,
    Sending::ChunkedByteByByte,
    Sending::AfterContinue,
];

/// How the worker frames its answer; asked for by `x-answer`.
const ANSWERS: [&str; 4] = ["buffered", "streamed", "gzip", "to the end"];

impl Sending {
    fn head(self, path: &str, length: usize, answer: &str) -> String {
        let framing = match self {
            Self::Chunked | Self::ChunkedByteByByte => "Transfer-Encoding: chunked".to_owned(),
            _ => format!("Content-Length: {length}"),
        };
        let kind = match self {
            Self::Charset => "application/json; charset=utf-8",
            _ => "application/json",
        };
        let mut fields =
            format!("Host: router\r\nContent-Type: {kind}\r\nX-Answer: {answer}\r\n{framing}\r\n");
        match self {
            Self::UpperCase => fields = in_case(&fields, str::to_ascii_uppercase),
            Self::LowerCase => fields = in_case(&fields, str::to_ascii_lowercase),
            Self::AfterContinue => fields += "Expect: 100-continue\r\n",
            _ => {}
        }
        format!("POST {path} HTTP/1.1\r\n{fields}\r\n")
    }

    fn send(self, client: &mut Client, path: &str, body: &[u8], answer: &str) {
        client.send(self.head(path, body.len(), answer));
        match self {
            Self::Chunked => send_chunks(client, body, 100),
            Self::ChunkedByteByByte => send_chunks(client, body, 1),
            Self::ByteByByte => body.iter().for_each(|byte| client.send([*byte])),
            Self::AfterContinue => {
                let go = client.reader.head().expect("an answer").expect("not the end");
                assert_eq!(go.status(), 100);
                client.send(body);
            }
            _ => client.send(body),
        }
    }
}

/// The fields with their names, and only those, in another case.
fn in_case(fields: &str, change: fn(&str) -> String) -> String {
    let lines = fields.lines().map(|line| {
        let (name, value) = line.split_once(':').expect("a field");
        format!("{}:{value}\r\n", change(name))
    });
    lines.collect()
}

fn send_chunks(client: &mut Client, body: &[u8], size: usize) {
    for piece in body.chunks(size) {
        client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
}

/// Sends back what it got, framed as it is asked to.
fn mirror() -> Worker {
    Worker::start(|conn, request| {
        let body = &request.body;
        match request.header("x-answer").expect("a wish") {
            "streamed" => {
                conn.begin_stream();
                body.chunks(50).for_each(|piece| assert!(conn.chunk(piece)));
                conn.end_stream();
                true
            }
            "gzip" => {
                conn.answer("200 OK", "Content-Encoding: gzip\r\nContent-Type: application/json\r\n", GZIP);
                true
            }
            "to the end" => {
                conn.write("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
                conn.write(body);
                false
            }
            _ => {
                conn.answer("200 OK", "Content-Type: application/json\r\n", body);
                true
            }
        }
    })
}

/// Sends the body in this way, and holds both ends against what was sent.
fn cross(router: &Router, worker: &Worker, case: &str, path: &str, body: &[u8]) {
    for sending in SENDINGS {
        for answer in ANSWERS {
            let case = format!("{case}, {sending:?}, {answer}");
            let mut client = router.client();
            sending.send(&mut client, path, body, answer);
            let answered = client.receive();
            let seen = worker.take_seen();
            assert_eq!(seen.len(), 1, "{case}");
            assert_request(&seen[0], sending, path, body, &case);
            assert_answer(&answered, answer, body, &case);
        }
    }
}

fn assert_request(seen: &Message, sending: Sending, path: &str, body: &[u8], case: &str) {
    assert_eq!(seen.first, format!("POST {path} HTTP/1.1"), "{case}");
    assert!(seen.body == body, "{case}: arrived changed");
    let kind =
        if sending == Sending::Charset { "application/json; charset=utf-8" } else { "application/json" };
    assert_eq!(seen.all("content-type"), [kind], "{case}");
    let lengths = seen.all("content-length");
    let right = lengths == [body.len().to_string()];
    let absent = lengths.is_empty() && seen.all("transfer-encoding") == ["chunked"];
    assert!(right || absent, "{case}: {lengths:?}");
    assert_eq!(seen.header("expect"), None, "{case}: the body is there already");
}

fn assert_answer(answered: &Message, way: &str, body: &[u8], case: &str) {
    assert_eq!(answered.status(), 200, "{case}");
    assert_eq!(answered.header("x-router-error-code"), None, "{case}");
    assert!(answered.body == if way == "gzip" { GZIP } else { body }, "{case}: returned changed");
    let coding = if way == "gzip" { vec!["gzip"] } else { Vec::new() };
    assert_eq!(answered.all("content-encoding"), coding, "{case}");
    let lengths = answered.all("content-length");
    match way {
        "streamed" | "to the end" => assert_eq!(lengths, Vec::<&str>::new(), "{case}"),
        _ => assert_eq!(lengths, [answered.body.len().to_string()], "{case}"),
    }
}

// sgl-project/sglang#22740, #9875, #9690, #12860: typed parsing drops fields, or refuses what the engine would take.
#[test]
fn every_shape_of_body_crosses_unchanged_in_every_way_of_sending_it() {
    let worker = mirror();
    let router = Router::start(&[worker.url()], &[]);
    for (case, path, body) in BODIES {
        serde_json::from_str::<serde_json::Value>(body).expect(case);
        cross(&router, &worker, case, path, body.as_bytes());
    }
    assert_eq!(router.loads(), [0]);
}

// The same with the bodies that lie beside the repository, where they do.
#[test]
fn the_reference_bodies_cross_unchanged_in_every_way_of_sending_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/requests");
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no reference bodies beside the repository");
        return;
    };
    let worker = mirror();
    let router = Router::start(&[worker.url()], &[]);
    let mut crossed = 0;
    for file in files.map(|file| file.expect("a file").path()) {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let Some(number) = name.strip_suffix(".json").and_then(|stem| stem.split('-').next()?.parse().ok())
        else {
            continue;
        };
        let body = std::fs::read(&file).expect("a body");
        cross(&router, &worker, &name, bodies::path_of_reference(number), &body);
        crossed += 1;
    }
    assert!(crossed > 0, "no body in {}", folder.display());
}

/// What no JSON parser takes, or none gives back as it was.
fn unreadable() -> Vec<(&'static str, Vec<u8>)> {
    let nested = |open: &str, close: &str| [open.repeat(10_000), close.repeat(10_000)].concat().into_bytes();
    let text = |bytes: &[u8]| [br#"{"model":"m","text":""#, bytes, br#"","stream":true}"#].concat();
    vec![
        ("empty", Vec::new()),
        ("blanks", b" \r\n\t".to_vec()),
        ("not JSON", b"{ model: 'm', ".to_vec()),
        ("cut off", br#"{"messages":[{"role":"user","content":"a"#.to_vec()),
        ("two values", br#"{"text":"a"}{"text":"b"}"#.to_vec()),
        ("no object", b"null".to_vec()),
        ("nested lists", nested("[", "]")),
        ("nested objects", nested(r#"{"messages":"#, "}")),
        ("a list that does not end", "[".repeat(10_000).into_bytes()),
        ("deep inside a prompt", [&br#"{"prompt":"#[..], &nested("[", "]"), b"}"].concat()),
        ("1e400", br#"{"text":"a","temperature":1e400,"n":-1e400,"max_tokens":1E400}"#.to_vec()),
        ("a long number", [&br#"{"n":"#[..], &b"9".repeat(10_000), b"}"].concat()),
        ("BOM", b"\xef\xbb\xbf{\"text\":\"a\"}".to_vec()),
        ("lone high surrogate", text(br"a\ud83d b")),
        ("lone low surrogate", text(br"\ude00")),
        ("surrogates in the wrong order", text(br"\ude00\ud83d")),
        ("invalid UTF-8", text(b"a\xff\xfe\xc3(\xed\xa0\xbd")),
        ("invalid UTF-8 in a key", b"{\"te\xffxt\":\"a\"}".to_vec()),
        ("a cut character", text("\u{6253}".as_bytes().split_at(2).0)),
        ("control characters", text(b"a\x00\x01\n")),
        ("wrong escapes", text(br"\x41\u12")),
        ("UTF-16", "{\"text\":\"a\"}".encode_utf16().flat_map(u16::to_le_bytes).collect()),
        (
            "duplicate keys",
            br#"{"model":"a","text":"1","stream":false,"model":"b","text":"2","stream":true}"#.to_vec(),
        ),
        ("noise", noise(7, 5_000)),
    ]
}

// sgl-project/sglang#9875: what a body has to be is for the worker to say.
#[test]
fn what_the_router_cannot_read_is_forwarded_and_the_workers_answer_returned() {
    const VERDICT: &[u8] = b"{\"object\":\"error\",\"message\":\"no\"}";
    let worker = Worker::start(|conn, _| {
        conn.answer("422 Unprocessable Entity", "Content-Type: application/json\r\n", VERDICT);
        true
    });
    for policy in ["cache_aware", "prefix_hash", "power_of_two"] {
        let router = Router::start(&[worker.url()], &["--policy", policy]);
        let mut client = router.client();
        for (case, body) in unreadable() {
            for path in PATHS {
                let case = format!("{case}, {path}, {policy}");
                let answer = client.post(path, "", &body);
                assert_eq!((answer.status(), answer.body.as_slice()), (422, VERDICT), "{case}");
                assert_eq!(answer.header("x-router-error-code"), None, "{case}: it is the worker's answer");
                assert!(last_body(&worker) == body, "{case}: arrived changed");
            }
        }
    }
}

/// Of the only request since the last time, beside questions for the load.
fn last_body(worker: &Worker) -> Vec<u8> {
    let seen = worker.take_seen().into_iter().filter(|request| request.first.starts_with("POST"));
    let [request] = seen.collect::<Vec<_>>().try_into().expect("one request");
    request.body
}

// sgl-project/sglang#6622: bodies with pictures are long.
#[test]
fn long_bodies_cross_by_default() {
    for size in [10_000_000, 100_000_000] {
        let mut body =
            br#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":""#.to_vec();
        body.resize(size, b'A');
        body.extend(br#""}}]}]}"#);
        let body = Arc::new(body);
        let expected = Arc::clone(&body);
        let worker = Worker::start(move |conn: &mut Conn, request| {
            let same = request.body == *expected;
            conn.answer(if same { "200 OK" } else { "409 Conflict" }, "", b"{}");
            true
        });
        let router = Router::start(&[worker.url()], &[]);
        assert_eq!(router.post("/v1/chat/completions", &body).status(), 200, "{size} bytes");
        let mut client = router.client();
        client.send("POST /generate HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n");
        send_chunks(&mut client, &body, 1 << 20);
        assert_eq!(client.receive().status(), 200, "{size} bytes in chunks");
    }
}
