//! Workers of both roles, and routers in front of them.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Conn, Latch, Message, PATIENCE, Router, Worker};

/// In turn, and without waiting long before another try.
pub(crate) const QUICK: [&str; 6] =
    ["--policy", "round_robin", "--retry-initial-backoff-ms", "1", "--retry-max-backoff-ms", "20"];

/// An answer of a prefill worker.
pub(crate) const PREFILLED: &str = r#"{"text":"x","meta_info":{"id":"r","finish_reason":{"type":"length","length":0},"completion_tokens":1}}"#;

/// A router whose workers have roles. A prefill worker has the bootstrap port 9000.
pub(crate) fn router(prefill: &[&Worker], decode: &[&Worker], args: &[&str]) -> Router {
    Router::start(
        &[],
        &command_line(prefill, decode, "9000", args).iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

/// The flags for such a router.
pub(crate) fn command_line(
    prefill: &[&Worker],
    decode: &[&Worker],
    port: &str,
    args: &[&str],
) -> Vec<String> {
    let mut line: Vec<String> = vec!["--pd-disaggregation".into()];
    for worker in prefill {
        line.extend(["--prefill".into(), worker.url(), port.into()]);
    }
    for worker in decode {
        line.extend(["--decode".into(), worker.url()]);
    }
    line.extend(args.iter().map(|arg| (*arg).to_owned()));
    line
}

/// Answers every request at once.
pub(crate) fn prefill() -> Worker {
    Worker::fixed(PREFILLED)
}

/// The same.
pub(crate) fn decode() -> Worker {
    Worker::fixed(r#"{"text":"answer","meta_info":{"id":"r"}}"#)
}

/// A decode worker that answers once `source` has the same room, as an engine does; or never, if the router hangs up first.
pub(crate) fn decode_after(source: &Arc<Worker>) -> Worker {
    let source = Arc::clone(source);
    Worker::start(move |conn, request| {
        let room = request.json()["bootstrap_room"].as_u64().expect("a number");
        let is_there = comes_before_the_end(conn, || rooms(&source).contains(&room));
        if is_there {
            conn.answer("200 OK", "", b"{}");
        }
        is_there
    })
}

/// Waits until this is so; false if the router hangs up first.
pub(crate) fn comes_before_the_end(conn: &mut Conn, is_so: impl Fn() -> bool) -> bool {
    conn.stream.set_read_timeout(Some(Duration::from_millis(2))).expect("a timeout");
    while !is_so() {
        match conn.stream.read(&mut [0]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            _ => return false,
        }
    }
    conn.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    true
}

/// A worker that keeps requests until the router hangs up, and counts how often it did.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) worker: Worker,
    closed: Arc<AtomicUsize>,
}

impl Holding {
    /// Which begins each answer so.
    pub(crate) fn after(begin: impl Fn(&mut Conn, &Message) + Send + Sync + 'static) -> Self {
        let closed = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&closed);
        let worker = Worker::start(move |conn, request| {
            if request.first.starts_with("POST /abort_request") {
                conn.answer("200 OK", "", b"");
                return true;
            }
            begin(conn, request);
            let read = conn.stream.read(&mut [0]);
            assert!(matches!(read, Ok(0) | Err(_)), "the router sent something");
            count.fetch_add(1, Ordering::SeqCst);
            false
        });
        Self { worker, closed }
    }

    /// Which says nothing.
    pub(crate) fn silent() -> Self {
        Self::after(|_, _| {})
    }

    /// Which sends a head, as SGLang does before it knows anything.
    pub(crate) fn with_head() -> Self {
        Self::after(|conn, _| conn.begin_stream())
    }

    /// How many of its requests the router has hung up on.
    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }
}

/// A worker that answers with this when it has its turn.
pub(crate) fn latched(go: &Latch, body: &'static str) -> Worker {
    let go = go.clone();
    Worker::start(move |conn, _| {
        go.wait();
        conn.answer("200 OK", "Content-Type: application/json\r\n", body.as_bytes());
        true
    })
}

/// Waits until each of these workers has got so many requests: decode may answer before prefill has read.
pub(crate) fn wait_for(count: usize, workers: &[&Worker]) {
    let have_all = || workers.iter().all(|worker| worker.count("POST") == count);
    super::wait_until("the requests to be there", have_all);
}

/// The bodies of all POSTs that a worker got, as JSON.
pub(crate) fn bodies(worker: &Worker) -> Vec<serde_json::Value> {
    let seen = worker.seen().into_iter().filter(|request| request.first.starts_with("POST "));
    let seen = seen.filter(|request| !request.first.starts_with("POST /abort_request"));
    seen.map(|request| request.json()).collect()
}

/// All rooms in all bodies, in order.
pub(crate) fn rooms(worker: &Worker) -> Vec<u64> {
    let number = |room: &serde_json::Value| room.as_u64().expect("a number");
    let of = |body: serde_json::Value| match &body["bootstrap_room"] {
        serde_json::Value::Array(rooms) => rooms.iter().map(number).collect(),
        room => vec![number(room)],
    };
    bodies(worker).into_iter().flat_map(of).collect()
}

/// The ids of the requests that a worker was told to abort.
pub(crate) fn called_off(worker: &Worker) -> Vec<String> {
    let calls = worker.seen().into_iter().filter(|request| request.first.starts_with("POST /abort_request "));
    calls.map(|call| call.json()["rid"].as_str().expect("a text").to_owned()).collect()
}

/// The state of a worker's breaker: 0 closed, 1 open, 2 half open.
pub(crate) fn breaker(router: &Router, worker: &Worker) -> f64 {
    let series = format!("smg_worker_cb_state{{worker=\"{}\"}}", worker.url());
    router.metric(&series).unwrap_or_else(|| panic!("{series} is not shown"))
}

/// How many failures the metrics charge a worker with.
pub(crate) fn errors(router: &Router, worker: &Worker) -> f64 {
    let text = super::Client::get(&router.metrics, "/metrics").text();
    let of = format!("worker=\"{}\"", worker.url());
    let lines =
        text.lines().filter(|line| line.starts_with("smg_worker_errors_total{") && line.contains(&of));
    lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
}
