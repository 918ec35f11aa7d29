//! A prefill worker whose layout the test decides: a bootstrap server, and ports of ranks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

/// Where the ranks are.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// Which start of the process tells so, if it tells.
    pub(crate) start: Option<u64>,
    pub(crate) ranks: Vec<u16>,
}

/// A bootstrap server. It hands KV off as well, but for connections that it closes when it is told to.
pub(crate) struct FakePrefill {
    pub(crate) port: u16,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    layout: Layout,
    /// Replaces it with the question for the layout that makes the count 0.
    next: Option<(u32, Layout)>,
    /// All requests, as method, path and body.
    seen: Vec<(String, Value)>,
    breaks_off: bool,
}

impl FakePrefill {
    /// With one rank, on the server's own port.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let layout = Layout { start: None, ranks: vec![port] };
        let shared = Arc::new(Mutex::new(Shared { layout, next: None, seen: Vec::new(), breaks_off: false }));
        let serving = Arc::clone(&shared);
        thread::spawn(move || serve(&listener, &serving));
        Self { port, shared }
    }

    pub(crate) fn set(&self, layout: Layout) {
        self.shared.lock().unwrap().layout = layout;
    }

    /// From that many questions for the layout on, counted from now, it is this one.
    pub(crate) fn set_later(&self, questions: u32, layout: Layout) {
        self.shared.lock().unwrap().next = Some((questions, layout));
    }

    /// Connections that ask for KV are closed without an answer.
    pub(crate) fn break_off(&self) {
        self.shared.lock().unwrap().breaks_off = true;
    }

    /// The bodies of the requests whose line holds this.
    pub(crate) fn seen(&self, line: &str) -> Vec<Value> {
        let shared = self.shared.lock().unwrap();
        shared.seen.iter().filter(|(seen, _)| seen.contains(line)).map(|(_, body)| body.clone()).collect()
    }
}

impl Shared {
    fn count_question(&mut self) {
        let Some((left, next)) = &mut self.next else { return };
        *left -= 1;
        if *left == 0 {
            self.layout = next.clone();
            self.next = None;
        }
    }
}

fn serve(listener: &TcpListener, shared: &Mutex<Shared>) {
    for connection in listener.incoming() {
        let Ok(mut connection) = connection else { return };
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let (mut header, mut length) = (String::new(), 0);
        while reader.read_line(&mut header).unwrap() > 2 {
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            header.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut shared = shared.lock().unwrap();
        shared.seen.push((line.clone(), body.clone()));
        if line.contains("prefill_dp_rank=-1") {
            shared.count_question();
        }
        let Some((status, answer)) = answer(&shared, &line, &body) else { continue };
        let start = shared.layout.start.map(|start| format!("x-simworker-start: {start}\r\n"));
        let (start, answer) = (start.unwrap_or_default(), answer.to_string());
        let head = format!("HTTP/1.1 {status} X\r\n{start}content-length: {}\r\n\r\n", answer.len());
        let _ = write!(connection, "{head}{answer}");
    }
}

fn answer(shared: &Shared, line: &str, body: &Value) -> Option<(u16, Value)> {
    let Layout { start, ranks } = &shared.layout;
    if line.contains("prefill_dp_rank=-1") {
        let layout = json!({"attn_tp_size": 1, "attn_cp_size": 1, "dp_size": ranks.len(), "pp_size": 1,
            "page_size": 1, "kv_cache_dtype": "auto", "follow_bootstrap_room": true, "prefill_http_port": 1});
        return Some((200, layout));
    }
    if let Some((_, rest)) = line.split_once("prefill_dp_rank=") {
        let rank: usize = rest.split('&').next().unwrap().parse().unwrap();
        let port = ranks.get(rank);
        return Some(port.map_or((404, json!("no rank")), |port| {
            (200, json!({"rank_ip": "127.0.0.1", "rank_port": port}))
        }));
    }
    if line.contains("/kv") {
        if shared.breaks_off {
            return None;
        }
        if body["start"].as_u64() != *start {
            return Some((410, json!("another start")));
        }
        return Some((200, json!({"room": body["room"], "tokens": body["tokens"], "cached_tokens": 0})));
    }
    Some((200, json!("OK")))
}

/// A port where nobody listens, and nobody else will while this is there.
pub(crate) struct ClosedPort(TcpSocket);

impl ClosedPort {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self(socket)
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }
}
