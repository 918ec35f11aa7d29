//! The end of the process: what may finish, and what is not waited for.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::worker::dead_url;
use crate::common::{Client, Router, Worker, wait_for, wait_until};

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;
const TOKEN: &[u8] = b"data: 1\n\n";

/// No pause between the signal and the end of the listener.
const AT_ONCE: [&str; 2] = ["--shutdown-pause-secs", "0"];

/// How long what is not waited for may take all the same: a second, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(10);

/// Clients that have begun a request's head, on new connections and on used ones.
fn halting(router: &Router) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..4).map(|_| router.client()).collect();
    for client in &mut clients[..2] {
        client.send("GET /health HTTP/1.1\r\nHost: router\r\n\r\n");
        assert_eq!(client.receive().status(), 200);
    }
    for client in &mut clients {
        client.send("POST /generate HTTP/1.1\r\nHost: rou");
    }
    // Until they have been accepted and read.
    std::thread::sleep(Duration::from_millis(100));
    clients
}

fn assert_closed(client: &mut Client) {
    let read = client.stream.read(&mut [0]);
    assert!(matches!(read, Ok(0) | Err(_)), "the router says something");
}

fn terminate(router: &Router) -> Instant {
    router.signal("TERM");
    let told = Instant::now();
    wait_until("the listener to close", || std::net::TcpStream::connect(&router.address).is_err());
    told
}

#[test]
fn half_a_head_does_not_hold_up_the_end() {
    let mut router = Router::start(&[], &AT_ONCE);
    let mut clients = halting(&router);
    let told = terminate(&router);
    assert_eq!(router.wait().code(), Some(0));
    assert!(told.elapsed() < SOON, "after {:?}", told.elapsed());
    clients.iter_mut().for_each(assert_closed);
}

#[test]
fn streams_finish_while_half_a_head_is_given_up() {
    let (go, when) = channel::<()>();
    let when = Mutex::new(when);
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
        let _ = when.lock().expect("not poisoned").recv();
        conn.chunk(b"data: [DONE]\n\n");
        conn.end_stream();
        true
    });
    let mut router = Router::start(&[worker.url()], &AT_ONCE);
    let mut client = router.client();
    client.send_post("/generate", "", STREAM);
    client.reader.head().expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
    let mut clients = halting(&router);
    let told = terminate(&router);
    clients.iter_mut().for_each(assert_closed);
    assert!(told.elapsed() < SOON, "after {:?}", told.elapsed());
    go.send(()).expect("the worker is there");
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: [DONE]\n\n");
    assert_eq!(client.reader.chunk().expect("the end"), b"");
    assert_eq!(router.wait().code(), Some(0));
}

#[test]
fn a_request_whose_head_has_come_is_received_and_answered() {
    let worker = Worker::fixed("{}");
    let mut router =
        Router::start(&[worker.url()], &["--max-concurrent-requests", "1", "--shutdown-pause-secs", "0"]);
    let mut client = router.client();
    client.send("POST /generate HTTP/1.1\r\nHost: router\r\nContent-Length: 15\r\n\r\n{\"text\":");
    wait_until("the upload to begin", || router.metric("smg_router_admitted_requests ") == Some(1.0));
    terminate(&router);
    // Longer than the rest of a head is waited for.
    std::thread::sleep(Duration::from_millis(1500));
    client.send(b"\"hello\"}".get(..7).expect("seven bytes"));
    assert_eq!(client.receive().status(), 200);
    assert_eq!(router.wait().code(), Some(0));
    assert_eq!(worker.count("POST"), 1);
}

/// A router that was started for its process alone; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts it and waits for its line. `prelude` is what the shell does before.
    pub(crate) fn start(prelude: &str, args: &[&str]) -> (Self, serde_json::Value) {
        let mut child = Command::new("sh")
            .args(["-c", &format!("{prelude} exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_router")])
            .args(["--port", "0", "--prometheus-port", "0", "--exit-with-stdin"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        (Self(child), serde_json::from_str(&line).expect("one line of JSON"))
    }

    /// Standard error from here on.
    pub(crate) fn stderr(&mut self) -> impl BufRead + use<> {
        BufReader::new(self.0.stderr.take().expect("not taken before"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already, or killed now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// Whoever reads the line may have nothing else to do with the router.
#[test]
fn a_signal_is_obeyed_from_the_first_line_on() {
    for signal in [Signal::TERM, Signal::INT] {
        for start in 0..30 {
            let (mut process, _) = Process::start("", &AT_ONCE);
            kill_process(Pid::from_child(&process.0), signal).expect("it runs");
            let status = wait_for("the router to exit", || process.0.try_wait().expect("our child"));
            assert_eq!(status.code(), Some(0), "start {start}, {signal:?}: {status}");
        }
    }
}

// What reads the log may end before the router does, as `head` and a restarted collector do.
#[test]
fn a_log_that_nobody_reads_any_more_costs_no_request() {
    let worker = Worker::start(|conn, request| {
        conn.answer("200 OK", "", &request.body);
        true
    });
    let urls = [worker.url(), dead_url()];
    let args = [
        "--policy",
        "round_robin",
        "--disable-health-check",
        "--disable-circuit-breaker",
        "--access-log",
        "text",
    ];
    let (mut process, said) =
        Process::start("", &[&args[..], &["--worker-urls", &urls[0], &urls[1]]].concat());
    let address = said["listening"].as_str().expect("a URL").trim_start_matches("http://");
    drop(process.stderr());
    for number in 0..20 {
        let body = format!(r#"{{"text":"{number}"}}"#);
        let answer = Client::connect(address).post("/generate", "", body.as_bytes());
        assert_eq!((answer.status(), answer.text()), (200, body));
    }
    kill_process(Pid::from_child(&process.0), Signal::TERM).expect("it runs");
    let status = wait_for("the router to exit", || process.0.try_wait().expect("our child"));
    assert_eq!(status.code(), Some(0), "{status}");
}
