//! A worker to ask, and a small HTTP client to ask it with.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use protocol::sse::Splitter;
use serde_json::Value;
use simworker::config::{HostConfig, Mode, Roles, WatchConfig, WorkerConfig};
#[cfg(feature = "kv-events")]
use simworker::config::{KvEndpoints, KvEventsConfig};
use simworker::fault::Assigned;
use simworker::host::Host;
use simworker_core::preset;

/// Nothing here takes nearly as long; a test that hangs fails instead.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One worker.
pub(crate) struct Worker {
    host: Host,
    /// Of the worker that is asked.
    address: SocketAddr,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The events of a stream, without `[DONE]`, which must be the last.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut events = Vec::new();
        let mut splitter = Splitter::default();
        let mut take = |event: protocol::sse::Event<'_>| events.push(event.data.to_vec());
        splitter.push(self.body.as_bytes(), &mut take).unwrap();
        splitter.finish(&mut take).unwrap();
        assert_eq!(events.pop().as_deref(), Some(&b"[DONE]"[..]), "{}", self.body);
        events.iter().map(|data| serde_json::from_slice(data).unwrap()).collect()
    }
}

impl Worker {
    /// A worker with defaults.
    pub(crate) fn start() -> Self {
        Self::with(|_| ())
    }

    /// A worker whose configuration is changed.
    pub(crate) fn with(change: impl FnOnce(&mut WorkerConfig)) -> Self {
        Self::at_speed(50.0, change)
    }

    /// One that runs at another speed.
    pub(crate) fn at_speed(speed: f64, change: impl FnOnce(&mut WorkerConfig)) -> Self {
        let mut worker = defaults();
        change(&mut worker);
        Self::host(worker, speed, 1, Mode::Engine, WatchConfig::default())
    }

    /// A worker of this kind with a control port and these faults.
    pub(crate) fn watched(mode: Mode, faults: &[&str]) -> Self {
        Self::watched_at(50.0, mode, faults)
    }

    /// One that runs at another speed.
    pub(crate) fn watched_at(speed: f64, mode: Mode, faults: &[&str]) -> Self {
        Self::watched_with(speed, mode, faults, |_| ())
    }

    /// One whose configuration is changed.
    pub(crate) fn watched_with(
        speed: f64,
        mode: Mode,
        faults: &[&str],
        change: impl FnOnce(&mut WorkerConfig),
    ) -> Self {
        let mut worker = defaults();
        change(&mut worker);
        let faults = faults.iter().map(|text| Assigned::parse(text).unwrap()).collect();
        let control = Some(("127.0.0.1".to_owned(), 0));
        Self::host(worker, speed, 2, mode, WatchConfig { control, faults, seed: 1 })
    }

    /// Two workers that answer at once, whose configuration is changed.
    pub(crate) fn instant_with(change: impl FnOnce(&mut WorkerConfig)) -> Self {
        let mut worker = defaults();
        change(&mut worker);
        Self::host(worker, 1.0, 2, Mode::Instant { interval_ns: 0 }, WatchConfig::default())
    }

    /// Two workers that answer at once.
    pub(crate) fn instant(interval_ns: u64) -> Self {
        Self::host(defaults(), 1.0, 2, Mode::Instant { interval_ns }, WatchConfig::default())
    }

    fn host(worker: WorkerConfig, speed: f64, workers: u32, mode: Mode, watch: WatchConfig) -> Self {
        let (host, roles) = ("127.0.0.1".into(), Roles::Same);
        let config = HostConfig { workers, host, port: 0, speed, worker, roles, mode, watch };
        let host = Host::start(&config).unwrap();
        let address = host.addresses()[0];
        Self { host, address }
    }

    #[cfg(feature = "kv-events")]
    /// Two workers that publish KV events, at any free ports of this machine.
    pub(crate) fn publishing(change: impl FnOnce(&mut WorkerConfig), faults: &[&str]) -> Self {
        let config = r#"{"publisher": "zmq", "endpoint": "tcp://127.0.0.1:0", "bind": true,
            "replay_endpoint": "tcp://127.0.0.1:0", "topic": "kv", "buffer_steps": 50}"#;
        let mut worker = defaults();
        worker.kv_events = KvEventsConfig::parse(config).unwrap();
        change(&mut worker);
        let faults = faults.iter().map(|text| Assigned::parse(text).unwrap()).collect();
        let control = Some(("127.0.0.1".to_owned(), 0));
        Self::host(worker, 50.0, 2, Mode::Engine, WatchConfig { control, faults, seed: 1 })
    }

    #[cfg(feature = "kv-events")]
    /// Where the ranks of the worker that is asked publish.
    pub(crate) fn kv_endpoints(&self) -> &KvEndpoints {
        let index = self.host.addresses().iter().position(|address| *address == self.address);
        &self.host.kv_events()[index.unwrap()]
    }

    /// Turns to the second worker.
    pub(crate) fn second(mut self) -> Self {
        self.address = self.host.addresses()[1];
        self
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks the control port.
    pub(crate) fn control(&self, method: &str, path: &str, body: &str) -> Answer {
        read(open_at(self.host.control().unwrap(), method, path, "application/json", body))
    }

    /// What the first worker saw.
    pub(crate) fn seen(&self) -> Value {
        self.control("GET", "/workers/0/seen", "").json()
    }

    /// Looks until what was seen is as it should be.
    pub(crate) fn wait_to_see(&self, what: &str, as_it_should_be: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.seen();
            if as_it_should_be(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{what}: {seen}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks with one more header line.
    pub(crate) fn get_with(&self, path: &str, header: &str) -> Answer {
        read(self.open("GET", path, &format!("application/json\r\n{header}"), ""))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        read(self.open("GET", path, "", ""))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        read(self.send(path, body))
    }

    /// Posts text of some content type.
    pub(crate) fn post_text(&self, path: &str, content_type: &str, body: &str) -> Answer {
        read(self.open("POST", path, content_type, body))
    }

    /// Posts JSON with one more header line.
    pub(crate) fn post_with(&self, path: &str, header: &str, body: &Value) -> Answer {
        self.post_text(path, &format!("application/json\r\n{header}"), &body.to_string())
    }

    /// Sends a request and does not wait for the answer.
    pub(crate) fn send(&self, path: &str, body: &Value) -> TcpStream {
        self.open("POST", path, "application/json", &body.to_string())
    }

    /// Sends bytes as they are and does not wait for an answer.
    pub(crate) fn send_raw(&self, bytes: &[u8]) -> TcpStream {
        raw(self.address, bytes)
    }

    fn open(&self, method: &str, path: &str, content_type: &str, body: &str) -> TcpStream {
        open_at(self.address, method, path, content_type, body)
    }

    /// The load of the worker's one rank.
    pub(crate) fn load(&self) -> Value {
        self.get("/v1/loads?include=core").json()["loads"][0].clone()
    }

    /// Looks until the load is as it should be.
    pub(crate) fn wait_for(&self, what: &str, as_it_should_be: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !as_it_should_be(&self.load()) {
            assert!(Instant::now() < deadline, "{what}: {}", self.load());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Looks until the report of all ranks is as it should be.
    pub(crate) fn wait_for_loads(&self, what: &str, as_it_should_be: impl Fn(&Value) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let loads = self.get("/v1/loads").json();
            if as_it_should_be(&loads) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {loads}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks for the health and does not wait for the answer.
    pub(crate) fn open_health(&self) -> TcpStream {
        self.open("GET", "/health", "", "")
    }

    pub(crate) fn wait_until_running(&self, requests: u64) {
        self.wait_for("requests run", |load| load["num_running_reqs"] == requests);
    }

    pub(crate) fn wait_until_idle(&self) {
        let idle = |load: &Value| {
            load["num_running_reqs"] == 0 && load["num_waiting_reqs"] == 0 && load["num_used_tokens"] == 0
        };
        self.wait_for("the engine is idle", idle);
    }
}

pub(crate) fn defaults() -> WorkerConfig {
    let preset = preset("a100-80g-llama3-8b").unwrap();
    WorkerConfig { request_overhead_ns: 3_000_000, ..WorkerConfig::mock(preset) }
}

pub(crate) fn open_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    content_type: &str,
    body: &str,
) -> TcpStream {
    let kind =
        if content_type.is_empty() { String::new() } else { format!("content-type: {content_type}\r\n") };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{kind}");
    raw(address, format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

fn raw(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(bytes).unwrap();
    connection
}

/// Reads an answer to its end.
pub(crate) fn read(mut connection: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text}"));
    let head = head.to_ascii_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = if head.contains("transfer-encoding: chunked") { join_chunks(body) } else { body.to_owned() };
    Answer { status, head, body }
}

fn join_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            return body;
        }
    }
    panic!("the stream was cut: {body}");
}

/// The keys of an object in the order they were written. (A parsed [`Value`] sorts them.)
pub(crate) fn keys(json: &str) -> Vec<String> {
    let (mut keys, mut depth, mut rest) = (Vec::new(), 0, json);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            '"' => {
                let end = rest.find('"').unwrap();
                let (word, after) = (&rest[..end], &rest[end + 1..]);
                if depth == 1 && after.starts_with(':') {
                    keys.push(word.to_owned());
                }
                rest = after;
            }
            _ => {}
        }
    }
    keys
}

/// Looks until it is so.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Splits at blanks.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A prompt of that many tokens, its own for each seed.
pub(crate) fn prompt(seed: u64, tokens: u32) -> String {
    let tokens: Vec<u32> = (0..tokens).map(|i| protocol::tokenizer::block_token(seed, i)).collect();
    protocol::tokenizer::decode(&tokens)
}
