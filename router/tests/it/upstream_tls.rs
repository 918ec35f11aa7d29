//! Workers under https: what passes, and what the operator is told where nothing can.

use std::io::Read;
use std::path::Path;
use std::sync::mpsc::channel;

use rustls::version::{TLS12, TLS13};

use crate::common::process::run_to_end;
use crate::common::tls::{Asks, Authority, Front, Identity};
use crate::common::{Latch, Log, Router, Worker, wait_for, wait_until};

const BODY: &[u8] = br#"{"text":"hello"}"#;
const TOKEN: &[u8] = b"data: 1\n\n";

/// A turn of health within a second, and one failure is enough.
const WATCHFUL: [&str; 4] = ["--health-failure-threshold", "1", "--health-check-interval-secs", "1"];

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn trusting(authority: &Authority) -> [&str; 2] {
    ["--ca-cert-paths", text(&authority.path)]
}

fn showing(identity: &Identity) -> [&str; 4] {
    ["--client-cert-path", text(&identity.certificate), "--client-key-path", text(&identity.key)]
}

fn is_healthy(router: &Router) -> bool {
    router.get("/workers").json()["workers"][0]["is_healthy"].as_bool().expect("a flag")
}

/// Starts a router that must find the worker at `url` unhealthy; its first words about that.
fn complaint(url: String, args: &[&str]) -> (Router, String) {
    let (router, log) = Router::start_logged(&[url], &[&WATCHFUL, args].concat());
    let complaint = first_complaint(&log);
    wait_until("the worker to be out", || !is_healthy(&router));
    (router, complaint)
}

fn first_complaint(log: &Log) -> String {
    wait_for("a complaint", || log.lines().into_iter().find(|line| line.contains(" not there yet: ")))
}

#[test]
fn requests_and_answers_pass_and_connections_are_kept() {
    let authority = Authority::new("ours");
    for (name, host) in [("127.0.0.1", "127.0.0.1"), ("localhost", "LocalHost")] {
        let worker = Worker::start(|conn, request| {
            let connection = conn.stream.peer_addr().expect("connected");
            conn.answer("200 OK", &format!("X-Connection: {connection}\r\n"), &request.body);
            true
        });
        let front = Front::start(&worker, &authority.identity(name), Asks::Nothing);
        let port = front.address.rsplit(':').next().expect("a port");
        let url = format!("https://{host}:{port}");
        let router = Router::start(&[url], &[&trusting(&authority)[..], &["--threads", "1"]].concat());
        wait_until("the worker to be ready", || is_healthy(&router));
        let long = vec![b'x'; 3 << 20];
        let ask = |body: &[u8]| {
            let answer = router.post("/generate", body);
            assert_eq!((answer.status(), answer.body == body), (200, true), "{name}");
            answer.header("x-connection").expect("a connection").to_owned()
        };
        let connections = [BODY, &long, BODY].map(ask);
        assert!(connections.iter().all(|connection| *connection == connections[0]), "{connections:?}");
        let seen = worker.seen();
        assert!(seen.iter().all(|request| request.header("host") == Some(&format!("{host}:{port}"))));
        let protocols = front.protocols.lock().expect("not poisoned").clone();
        assert!(protocols.iter().all(|agreed| agreed == "http/1.1"), "{protocols:?}");
        assert!(is_healthy(&router));
    }
}

#[test]
fn a_stream_passes_piece_by_piece_and_its_client_may_leave() {
    let authority = Authority::new("ours");
    let go = Latch::default();
    let (left, noticed) = channel();
    let turns = go.clone();
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        for _ in 0..3 {
            conn.chunk(TOKEN);
            turns.wait();
        }
        let read = conn.stream.read(&mut [0]);
        let _ = left.send(matches!(read, Ok(0) | Err(_)));
        false
    });
    let front = Front::start(&worker, &authority.identity("127.0.0.1"), Asks::Nothing);
    let router = Router::start(&[front.url()], &trusting(&authority));
    let mut client = router.client();
    client.send_post("/generate", "", br#"{"text":"hello","stream":true}"#);
    assert_eq!(client.reader.head().expect("an answer").expect("a head").status(), 200);
    for _ in 0..3 {
        // Each is here before the worker may go on.
        assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
        go.pass(1);
    }
    client.reset();
    assert!(noticed.recv().expect("the worker is there"), "the router sent something");
    wait_until("the books to be even", || router.loads() == [0]);
}

#[test]
fn a_certificate_that_proves_nothing_makes_the_worker_unhealthy() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("stranger"));
    let namesake = Authority::new("ours");
    let cases = [
        ("of a stranger", stranger.identity("127.0.0.1"), "--ca-cert-paths"),
        ("of a namesake", namesake.identity("127.0.0.1"), "--ca-cert-paths"),
        ("of somebody else", authority.identity("elsewhere.test"), "elsewhere.test"),
        ("of long ago", authority.expired("127.0.0.1"), "expired"),
    ];
    for (case, identity, word) in cases {
        let worker = Worker::fixed("{}");
        let front = Front::start(&worker, &identity, Asks::Nothing);
        let (router, complaint) = complaint(front.url(), &trusting(&authority));
        assert!(complaint.contains("certificate is not trusted") && complaint.contains(word), "{complaint}");
        assert!(complaint.contains(&front.url()), "{complaint}");
        router.post("/generate", BODY).assert_refused(503, "no_available_workers");
        assert_eq!(worker.connections(), 0, "{case}");
    }
}

#[test]
fn without_authorities_of_its_own_the_system_decides() {
    let authority = Authority::new("ours");
    let worker = Worker::fixed("{}");
    let front = Front::start(&worker, &authority.identity("127.0.0.1"), Asks::Nothing);
    let (_router, complaint) = complaint(front.url(), &[]);
    assert!(complaint.contains("unknown authority"), "{complaint}");
}

#[test]
fn a_request_that_finds_no_trust_is_a_failure_to_connect() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("other"));
    let (bad, good) = (Worker::fixed("{}"), Worker::fixed("{}"));
    let front = Front::start(&bad, &stranger.identity("127.0.0.1"), Asks::Nothing);
    let args = ["--disable-health-check", "--disable-circuit-breaker", "--policy", "round_robin"];
    let args = [&args[..], &trusting(&authority)].concat();
    let router = Router::start(&[front.url()], &[&args[..], &["--disable-retries"]].concat());
    router.post("/generate", BODY).assert_refused(502, "upstream_connect_failed");
    // Nothing of it has been sent, so that another may have it.
    let router = Router::start(&[front.url(), good.url()], &args);
    for _ in 0..4 {
        assert_eq!(router.post("/generate", BODY).status(), 200);
    }
    assert_eq!((bad.count("POST"), good.count("POST")), (0, 4));
}

#[test]
fn a_worker_may_ask_who_the_router_is() {
    let (authority, clients) = (Authority::new("ours"), Authority::new("other"));
    let (known, stranger) = (clients.identity("router"), authority.identity("router"));
    for version in [&TLS12, &TLS13] {
        let worker = Worker::fixed("{}");
        let server = authority.identity("127.0.0.1");
        let front = Front::start_with(&worker, &server, Asks::Certificate(&clients), &[version]);
        let trusting = trusting(&authority);
        let router = Router::start(&[front.url()], &[&trusting[..], &showing(&known)].concat());
        assert_eq!(router.post("/generate", BODY).status(), 200, "{version:?}");
        assert!(is_healthy(&router));
        for identity in [None, Some(&stranger)] {
            let showing = identity.map(showing);
            let args = [&trusting[..], showing.as_ref().map_or(&[], |args| &args[..])].concat();
            let (_router, complaint) = complaint(front.url(), &args);
            let refusal = "refuses the router's certificate, or the lack of one";
            assert!(complaint.contains(refusal), "{version:?}: {complaint}");
            assert!(complaint.contains("--client-cert-path"), "{complaint}");
        }
        assert_eq!(worker.count("POST"), 1);
    }
}

#[test]
fn a_worker_that_speaks_no_tls_is_told_from_one_that_is_not_trusted() {
    // Hears no HTTP, and says something all the same, as servers do.
    let chatty = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", chatty.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in chatty.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (_router, complaint) = complaint(url, &[]);
    assert!(complaint.contains("no TLS is spoken there"), "{complaint}");
}

#[test]
fn a_handshake_that_does_not_come_to_its_end_has_the_time_to_connect() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}", silent.local_addr().expect("an address"));
    let args = ["--connect-timeout-secs", "0.2", "--disable-health-check", "--disable-retries"];
    let router = Router::start(&[url], &args);
    router.post("/generate", BODY).assert_refused(504, "upstream_connect_timeout");
}

#[test]
fn files_of_no_use_are_refused_at_the_start() {
    let authority = Authority::new("ours");
    let (one, other) = (authority.identity("one"), authority.identity("other"));
    let empty = authority.file("empty.pem", "nothing\n");
    let broken =
        authority.file("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let missing = Path::new("/nowhere/at-all.pem");
    let cases: [(Vec<&str>, &Path, &str); 8] = [
        (vec!["--ca-cert-paths", text(missing)], missing, "No such file"),
        (vec!["--ca-cert-paths", text(&empty)], &empty, "BEGIN CERTIFICATE"),
        (vec!["--ca-cert-paths", text(&one.key)], &one.key, "BEGIN CERTIFICATE"),
        (vec!["--ca-cert-paths", text(&authority.path), text(&broken)], &broken, "give certificates"),
        (
            vec!["--client-cert-path", text(missing), "--client-key-path", text(&one.key)],
            missing,
            "No such file",
        ),
        (vec!["--client-cert-path", text(&broken), "--client-key-path", text(&one.key)], &broken, "PEM"),
        (
            vec!["--client-cert-path", text(&one.certificate), "--client-key-path", text(&one.certificate)],
            &one.certificate,
            "BEGIN PRIVATE KEY",
        ),
        (
            vec!["--client-cert-path", text(&one.certificate), "--client-key-path", text(&other.key)],
            &other.key,
            "not the key of",
        ),
    ];
    for (args, file, remedy) in cases {
        let output = run_to_end(
            &[&["--port", "0", "--prometheus-port", "0", "--exit-with-stdin"], &args[..]].concat(),
        );
        let said = String::from_utf8(output.stderr).expect("text");
        let line = said.lines().last().unwrap_or_default();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(line.contains(text(file)) && line.contains(remedy), "{args:?}: {line}");
        assert!(line.contains(args[0]) || line.contains(args[2]), "{args:?}: {line}");
        crate::config::assert_checked(&args, line);
    }
    for (half, whole) in
        [("--client-cert-path", "--client-key-path"), ("--client-key-path", "--client-cert-path")]
    {
        let output = run_to_end(&[half, "x"]);
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(half) && said.contains(whole), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
}
