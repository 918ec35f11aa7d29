//! A prefill worker and a decode worker in one process, to be asked by hand as a router would.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::{Value, json};
use simworker::config::{HostConfig, Mode, Roles, WatchConfig, WorkerConfig};
use simworker::fault::Assigned;
use simworker::host::Host;

use crate::client::{Answer, PATIENCE, defaults, open_at, read};

pub(crate) const PREFILL: usize = 0;
pub(crate) const DECODE: usize = 1;

pub(crate) struct Pair(Host);

impl Pair {
    pub(crate) fn start() -> Self {
        Self::with(&[], |_| ())
    }

    /// With these faults, and a configuration that is changed.
    pub(crate) fn with(faults: &[&str], change: impl FnOnce(&mut WorkerConfig)) -> Self {
        let faults = faults.iter().map(|text| Assigned::parse(text).unwrap()).collect();
        let control = Some(("127.0.0.1".to_owned(), 0));
        let mut worker = defaults();
        change(&mut worker);
        let config = HostConfig {
            workers: 2,
            host: "127.0.0.1".into(),
            port: 0,
            speed: 50.0,
            worker,
            roles: Roles::Split { prefill: 1 },
            mode: Mode::Engine,
            watch: WatchConfig { control, faults, seed: 1 },
        };
        let pair = Self(Host::start(&config).unwrap());
        pair.wait_until("the ranks have registered", || {
            pair.bootstrap("GET", ALL_RANKS, &Value::Null).status == 200
        });
        pair
    }

    pub(crate) fn address(&self, worker: usize) -> SocketAddr {
        self.0.addresses()[worker]
    }

    /// Asks the bootstrap server.
    pub(crate) fn bootstrap(&self, method: &str, path: &str, body: &Value) -> Answer {
        let address = SocketAddr::new(self.address(PREFILL).ip(), self.bootstrap_port());
        read(open_at(address, method, path, "application/json", &body.to_string()))
    }

    pub(crate) fn bootstrap_port(&self) -> u16 {
        self.0.bootstrap_ports()[PREFILL].unwrap()
    }

    pub(crate) fn control(&self, method: &str, path: &str, body: &Value) -> Answer {
        read(open_at(self.0.control().unwrap(), method, path, "application/json", &body.to_string()))
    }

    pub(crate) fn get(&self, worker: usize, path: &str) -> Answer {
        read(open_at(self.address(worker), "GET", path, "", ""))
    }

    pub(crate) fn send(&self, worker: usize, path: &str, body: &Value) -> TcpStream {
        open_at(self.address(worker), "POST", path, "application/json", &body.to_string())
    }

    pub(crate) fn post(&self, worker: usize, path: &str, body: &Value) -> Answer {
        read(self.send(worker, path, body))
    }

    /// A body with what a router adds for this room, or these rooms.
    pub(crate) fn join(&self, body: &Value, room: &Value) -> Value {
        let mut body = body.clone();
        body["bootstrap_host"] = "127.0.0.1".into();
        body["bootstrap_port"] = self.bootstrap_port().into();
        body["bootstrap_room"] = room.clone();
        body
    }

    /// Sends a body to both, as a router does, and waits for both answers: prefill's and decode's.
    pub(crate) fn both(&self, path: &str, body: &Value, room: impl Into<Value>) -> (Answer, Answer) {
        let body = self.join(body, &room.into());
        let (prefill, decode) = (self.send(PREFILL, path, &body), self.send(DECODE, path, &body));
        (read(prefill), read(decode))
    }

    /// The load of a rank.
    pub(crate) fn load(&self, worker: usize, rank: usize) -> Value {
        self.get(worker, "/v1/loads").json()["loads"][rank].clone()
    }

    pub(crate) fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: {} {}", self.load(PREFILL, 0), self.load(DECODE, 0));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Waits until so many requests of a worker are in a queue of the hand-off.
    pub(crate) fn wait_for_queue(&self, worker: usize, queue: &str, requests: u64) {
        self.wait_until(queue, || self.load(worker, 0)["disaggregation"][queue] == requests);
    }

    pub(crate) fn wait_until_idle(&self) {
        self.wait_until("both are idle", || {
            [PREFILL, DECODE].into_iter().all(|worker| {
                let load = self.load(worker, 0);
                load["num_running_reqs"] == 0 && load["num_waiting_reqs"] == 0 && load["num_used_tokens"] == 0
            })
        });
        for worker in [PREFILL, DECODE] {
            assert_eq!(self.post(worker, "/flush_cache", &Value::Null).status, 200, "nothing is left");
        }
    }
}

/// Asks a bootstrap server for the worker as a whole.
pub(crate) const ALL_RANKS: &str =
    "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1";

/// What an answer says is wrong.
pub(crate) fn message(answer: &Answer) -> String {
    let body = answer.json();
    let told = [&body["error"]["message"], &body["message"]];
    told.into_iter().find_map(Value::as_str).unwrap_or_else(|| panic!("{body}")).to_owned()
}

/// A request of `/generate`.
pub(crate) fn generate(text: &str, tokens: u32) -> Value {
    json!({"text": text, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
}
