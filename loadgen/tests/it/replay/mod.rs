//! What a router recorded in front of simulated workers, decided again.

mod changes;
mod files;
mod short;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use simworker::config::{HostConfig, Mode, Roles, WatchConfig, WorkerConfig};
use simworker::host::Host;
use simworker_core::preset;

use crate::program;

const WORKERS: u32 = 4;
const CLIENTS: usize = 6;
/// Of each client, before and after a worker is lost.
const REQUESTS: usize = 40;
const GROUPS: usize = 9;
/// Stands in every prompt, and must not stand in the file.
const SECRET: &str = "xylophone";

/// Longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    println!("waiting until {what}");
    program::until(PATIENCE, || done().then_some(()));
}

struct Router {
    child: Child,
    address: String,
    metrics: String,
}

impl Router {
    fn start(host: &Host, args: &[&str]) -> Self {
        let urls: Vec<String> = host.urls().collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        Self::start_with(WORKERS as usize, &[&["--worker-urls"], &urls[..], args].concat())
    }

    /// One that waits for `workers` of them.
    fn start_with(workers: usize, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_loadgen"))
            .args(["__router", "--host", "127.0.0.1", "--port", "0", "--prometheus-host", "127.0.0.1"])
            .args(["--prometheus-port", "0", "--exit-with-stdin", "--seed", "7", "--log-level", "error"])
            .args(["--health-check-interval-secs", "1", "--health-failure-threshold", "1"])
            .args(["--health-success-threshold", "1", "--load-poll-interval-secs", "0.1"])
            .args(["--retry-initial-backoff-ms", "1", "--retry-max-backoff-ms", "20"])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let address = |key: &str| said[key].as_str().unwrap().trim_start_matches("http://").to_owned();
        let router = Self { address: address("listening"), metrics: address("metrics"), child };
        until("all workers are healthy", || router.healthy() == workers);
        router
    }

    fn workers(&self) -> Vec<Value> {
        let (_, text) = ask(&self.address, "GET", "/workers", "", "");
        let list: Value = serde_json::from_str(&text).unwrap();
        list["workers"].as_array().unwrap().clone()
    }

    fn healthy(&self) -> usize {
        self.workers().iter().filter(|worker| worker["is_healthy"] == true).count()
    }

    /// Requests from several clients at a time; how many were answered well.
    fn load(&self, round: usize) -> usize {
        let client = |client: usize| {
            let address = self.address.clone();
            std::thread::spawn(move || {
                (0..REQUESTS)
                    .filter(|at| {
                        ask(&address, "POST", "/v1/completions", &key(client), &body(round, client, *at)).0
                            == 200
                    })
                    .count()
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    }

    /// The sum of the lines of a metric that contain `part`.
    fn metric(&self, name: &str, part: &str) -> f64 {
        let (_, text) = ask(&self.metrics, "GET", "/metrics", "", "");
        let lines = text.lines().filter(|line| line.starts_with(name) && line.contains(part));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn key(client: usize) -> String {
    format!("X-SMG-Routing-Key: {SECRET}-{client}\r\n")
}

/// Prompts of a group have a long beginning in common.
fn body(round: usize, client: usize, at: usize) -> String {
    let group = (client * 7 + at * 5 + round) % GROUPS;
    let shared = format!("group {group} asks the {SECRET} about things ").repeat(30 + 9 * group);
    let stream = at.is_multiple_of(2);
    let tokens = 8 + at % 5 * 20;
    format!(
        r#"{{"model":"mock","prompt":"{shared} question {round} {client} {at}","max_tokens":{tokens},"stream":{stream}}}"#
    )
}

/// Status and body of an answer, or 0 if it broke off.
fn ask(address: &str, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    // A router that was killed is not there.
    let Ok(mut stream) = TcpStream::connect(address) else { return (0, String::new()) };
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}");
    let request = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    let is_sent = stream.write_all(request.as_bytes()).is_ok();
    let mut answer = String::new();
    let is_whole = is_sent && stream.read_to_string(&mut answer).is_ok();
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    (if is_whole { status } else { 0 }, body)
}

fn control(host: &Host, method: &str, path: &str, body: &str) {
    let address: SocketAddr = host.control().unwrap();
    let (status, text) = ask(&address.to_string(), method, path, "", body);
    assert_eq!(status, 200, "{method} {path}: {text}");
}

fn host() -> Host {
    host_of(WORKERS, 1, Roles::default())
}

fn host_of(workers: u32, dp_size: u32, roles: Roles) -> Host {
    let worker = WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap());
    host_with(workers, roles, WorkerConfig { dp_size, ..worker })
}

fn host_with(workers: u32, roles: Roles, worker: WorkerConfig) -> Host {
    let address = "127.0.0.1".to_owned();
    Host::start(&HostConfig {
        workers,
        port: 0,
        speed: 20.0,
        worker,
        roles,
        mode: Mode::Engine,
        watch: WatchConfig { control: Some((address.clone(), 0)), faults: Vec::new(), seed: 1 },
        host: address,
    })
    .unwrap()
}

/// A run with load reports, refusals that are tried again, and a worker that is lost and comes back.
fn record(directory: &Path, policy: &str, args: &[&str]) -> PathBuf {
    let path = directory.join(format!("{policy}.trace"));
    let host = host();
    let all = [&["--policy", policy, "--record-trace", path.to_str().unwrap()], args].concat();
    let router = Router::start(&host, &all);
    let mut answered = router.load(0);
    control(&host, "PATCH", "/workers/1/faults", r#"{"status":[{"value":503,"times":6}]}"#);
    control(&host, "POST", "/workers/0/restart?down=3s", "");
    answered += router.load(1);
    until("the worker is out", || router.healthy() < WORKERS as usize);
    answered += router.load(2);
    until("the worker is back", || router.healthy() == WORKERS as usize);
    answered += router.load(3);
    assert!(answered > 3 * CLIENTS * REQUESTS, "{answered} were answered");
    router.end();
    path
}

fn replay(path: &Path, args: &[&str]) -> (Option<i32>, String, Value) {
    replay_all(&[path], args)
}

fn replay_all(paths: &[&Path], args: &[&str]) -> (Option<i32>, String, Value) {
    let json = paths[0].with_extension("json");
    let output = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .arg("replay")
        .args(paths)
        .arg("--json")
        .arg(&json)
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    let found = std::fs::read_to_string(&json).unwrap_or_else(|error| panic!("{error}: {text}"));
    (output.status.code(), text, serde_json::from_str(&found).unwrap())
}

fn kinds(path: &Path) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(!text.contains(SECRET), "what a prompt or a key says is in the file");
    let lines = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| (line["e"].as_str().unwrap().to_owned(), line)).collect()
}

/// Replays a recording that is whole under its own policies, and all of it must be the same.
fn identical(path: &Path, case: &str) -> Value {
    let (code, text, found) = replay(path, &[]);
    println!("{case}\n{text}");
    assert_eq!((code, &found["whole"]), (Some(0), &true.into()), "{case}: {text}");
    let share = found["identical_share"].as_f64().unwrap();
    assert!(share >= 0.99, "{case}: {text}");
    assert_eq!((&found["unknown"], &found["unplaced"]), (&0.into(), &0.into()), "{case}: {text}");
    found
}

#[test]
fn a_recording_gives_the_decisions_of_its_own_policies() {
    let directory = tempfile::tempdir().unwrap();
    let (mut refused, mut again) = (false, false);
    let names = router_core::POLICIES.iter().map(|row| row.name);
    for policy in names {
        let path = record(directory.path(), policy, &[]);
        let lines = kinds(&path);
        let count = |kind: &str| lines.iter().filter(|(e, _)| e == kind).count();
        let has = |kind: &str, key: &str, value: Value| {
            lines.iter().any(|(e, line)| e == kind && line[key] == value)
        };
        assert!(has("health", "healthy", false.into()), "{policy}");
        // Whether the worker that refuses is asked at all is for the policy to say.
        refused |= has("finish", "outcome", "refused".into());
        assert!(count("first") > 0 && count("look") == count("plan"), "{policy}");
        assert_eq!(count("request"), 4 * CLIENTS * REQUESTS, "{policy}");
        assert_eq!(count("credit") > 0, policy == "cache_aware", "{policy}");
        assert_eq!(count("load") > 0, policy == "power_of_two", "{policy}");
        let is_hashed = ["consistent_hashing", "prefix_hash"].contains(&policy);
        let has_places = |(e, line): &(String, Value)| e == "plan" && line["places"]["regular"].is_u64();
        assert_eq!(lines.iter().filter(|line| has_places(line)).count() > 0, is_hashed, "{policy}");
        let found = identical(&path, policy);
        let decisions = found["decisions"].as_u64().unwrap();
        let requests = 4 * (CLIENTS * REQUESTS) as u64;
        assert!(decisions >= requests, "{policy}: {found}");
        again |= decisions > requests;
        assert_eq!(found["recorded"]["prompt_tokens"], found["replayed"]["prompt_tokens"], "{policy}");
    }
    assert!(refused && again, "some were refused, and tried again");
}

#[test]
fn another_policy_is_told_what_the_recorded_one_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = record(directory.path(), "cache_aware", &[]);
    let (code, text, found) = replay(&path, &["--policy", "round_robin"]);
    assert_eq!((code, &found["same_policy"]), (Some(0), &Value::Bool(false)), "{text}");
    assert!(text.contains("those that the recorded policy has met"), "{text}");
    let share = found["identical_share"].as_f64().unwrap();
    assert!((0.05..0.7).contains(&share), "{text}");
    let number = |side: &str, key: &str| found[side][key].as_f64().unwrap();
    assert!(number("recorded", "predicted_hit_rate") > 0.5, "{text}");
    assert_eq!(number("replayed", "predicted_hit_rate"), 0.0, "it believes nothing: {text}");
    assert!(number("replayed", "imbalance") >= 1.0, "{text}");
    // Options of the recorded policy.
    let (code, text, found) = replay(&path, &["--set", "balance_abs_threshold=1"]);
    assert_eq!((code, &found["same_policy"]), (Some(0), &Value::Bool(false)), "{text}");
    assert!(found["identical"].as_u64() < found["decisions"].as_u64(), "{text}");
    // One that needs what this recording has not.
    let (code, text, found) = replay(&path, &["--policy", "consistent_hashing"]);
    assert_eq!((code, &found["unplaced"]), (Some(0), &found["decisions"]), "{text}");
    assert!(text.contains("a key or a prompt that is not recorded"), "{text}");
    // As a trace like any other.
    let info =
        Command::new(env!("CARGO_BIN_EXE_loadgen")).args(["trace", "info"]).arg(&path).output().unwrap();
    let told = String::from_utf8(info.stdout).unwrap();
    assert!(info.status.success() && told.contains("router"), "{told}");
}

#[test]
fn what_is_no_recording_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("some.trace");
    std::fs::write(&path, "{\"timestamp\": 0}\n").unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_loadgen")).arg("replay").args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run(&[path.to_str().unwrap()]);
    assert!(code == Some(2) && text.contains("some.trace:1: this is no header"), "{text}");
    let (code, text) = run(&["nowhere.trace"]);
    assert!(code == Some(2) && text.contains("nowhere.trace") && text.contains("--record-trace"), "{text}");
}
