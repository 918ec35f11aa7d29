//! Other routers beside ours: external commands and routers that run already.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::program::{Bench, Ended, read_by_the_router, until};

const SCENARIO: &str = r#"
schema = 1
name = "targets"
mode = "both"
[workload]
kind = "shared_prefix"
groups = 8
prompts_per_group = 5
system_tokens = 200
question_tokens = 20
output_tokens = 4
[arrival]
kind = "constant"
rate = 20.0
[fleet]
workers = 2
[router]
policies = ["round_robin"]
"#;

/// Takes turns, and hands on whatever comes, in as much Python as that takes.
const STAND_IN: &str = r#"
import http.client, http.server, itertools, sys
port, workers = int(sys.argv[1]), [url.removeprefix("http://") for url in sys.argv[2:]]
turn = itertools.cycle(workers)
class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        worker = http.client.HTTPConnection(next(turn))
        worker.request("POST", self.path, body, {"content-type": "application/json"})
        answer = worker.getresponse()
        reply = answer.read()
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers["content-type"])
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)
http.server.ThreadingHTTPServer(("127.0.0.1", port), Proxy).serve_forever()
"#;

const LOADGEN: &str = env!("CARGO_BIN_EXE_loadgen");

fn run(bench: &Bench, target: &str) -> Ended {
    let scenario = bench.file("s.toml", &format!("{SCENARIO}[[target]]\n{target}\n"));
    bench.run(&[scenario.to_str().unwrap()])
}

/// The runs by mode and router.
fn by_router(bench: &Bench) -> BTreeMap<(String, String), Value> {
    let name = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    bench.runs().into_iter().map(|run| ((name(&run, "mode"), name(&run, "policy")), run)).collect()
}

fn live(runs: &BTreeMap<(String, String), Value>, router: &str) -> Value {
    runs[&("live".to_owned(), router.to_owned())].clone()
}

/// The processes whose command line has these words.
fn processes(words: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").contains(words)).count()
}

fn no_process_is_left(words: &str) {
    until(Duration::from_secs(20), || (processes(words) == 0).then_some(()));
}

#[test]
fn a_router_that_is_an_external_command_is_measured_like_ours() {
    let bench = Bench::new();
    let words = [
        LOADGEN,
        "__router",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
        "--prometheus-port",
        "{metrics_port}",
        "--policy",
        "round_robin",
        "--decision-headers",
        "--worker-urls",
        "{workers}",
    ];
    let ended = run(&bench, &format!("name = \"theirs\"\npolicy_name = \"in turn\"\ncommand = {words:?}"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("left out of virtual time: theirs"), "{}", ended.stderr);
    let runs = by_router(&bench);
    assert_eq!(runs.len(), 3, "{:?}", runs.keys());
    let (ours, theirs) = (live(&runs, "round_robin"), live(&runs, "theirs"));
    assert_eq!((&theirs["requests"], &theirs["failed"]), (&40.into(), &0.into()));
    assert_eq!(theirs["prompt_tokens"], ours["prompt_tokens"], "the same requests");
    for run in [&ours, &theirs] {
        assert!(run["router_cpu_us_per_request"].as_f64().unwrap() > 0.0);
        assert!(run["router_peak_rss_mb"].as_f64().unwrap() > 1.0);
        let (router, all) = (&run["router_ms"]["p50"], &run["service_ttft_ms"]["p50"]);
        assert!(router.as_f64().unwrap() > 0.0 && router.as_f64() < all.as_f64(), "{router} of {all}");
    }
    assert!(runs[&("virtual".to_owned(), "round_robin".to_owned())]["router_ms"]["p50"].is_null());
    assert!(ended.stdout.contains("theirs"), "{}", ended.stdout);
    // Whoever was better: what a router of ours can take is our policy. Beside other programs nobody is.
    let file = bench.out().join("winner-live.toml");
    if bench.summary()["disturbed"].as_array().unwrap().is_empty() {
        assert_eq!(read_by_the_router(&file)["name"].as_str(), Some("round_robin"));
        assert!(std::fs::read_to_string(&file).unwrap().contains("theirs"), "the other one is named");
    } else {
        assert!(!file.exists() && ended.stdout.contains("no winner, live"), "{}", ended.stdout);
    }
    let requests = std::fs::read_to_string(bench.out().join("requests.csv")).unwrap();
    assert_eq!(requests.lines().filter(|line| line.contains(",live,theirs,")).count(), 40);
    assert!(std::fs::read_to_string(bench.out().join("report.html")).unwrap().contains("theirs (in turn)"));
}

#[test]
fn all_processes_of_a_target_are_measured_and_ended() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3");
        return;
    }
    let bench = Bench::new();
    let program = bench.file("stand_in.py", STAND_IN);
    let program = program.to_str().unwrap();
    // The shell stays, and Python is a process of its own.
    let shell = format!("python3 {program} {{port}} {{workers}}; true");
    let ended = run(&bench, &format!("name = \"stand_in\"\ncommand = [\"sh\", \"-c\", {shell:?}]"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let theirs = live(&by_router(&bench), "stand_in");
    assert_eq!((&theirs["requests"], &theirs["failed"]), (&40.into(), &0.into()));
    // It says nothing of its decisions.
    assert!(theirs["imbalance"].is_null() && theirs["predicted_hit_rate"].is_null(), "{theirs}");
    // No shell has so much.
    assert!(theirs["router_peak_rss_mb"].as_f64().unwrap() > 7.0, "{theirs}");
    no_process_is_left(program);
}

#[test]
fn a_router_that_runs_already_is_asked_where_it_is() {
    let bench = Bench::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let mut router = Command::new(LOADGEN)
        .args([
            "__router",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--prometheus-port",
            "0",
            "--policy",
            "random",
        ])
        .args(["--worker-urls", &format!("http://127.0.0.1:{port}"), "--exit-with-stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(router.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let url = serde_json::from_str::<Value>(&line).unwrap()["listening"].as_str().unwrap().to_owned();
    let target = format!("name = \"running\"\nurl = \"{url}\"\nworker_port = {port}");
    let scenario = SCENARIO.replace("workers = 2", "workers = 1").replace("\"both\"", "\"live\"");
    let scenario = bench.file("s.toml", &format!("{scenario}[[target]]\n{target}\n"));
    let ended = bench.run(&[scenario.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let running = live(&by_router(&bench), "running");
    assert_eq!((&running["requests"], &running["failed"]), (&40.into(), &0.into()));
    assert!(running["router_cpu_us_per_request"].is_null(), "whose process it is nobody knows");
    assert!(router.try_wait().unwrap().is_none(), "it goes on");
    drop(router.stdin.take());
    router.wait().unwrap();
}

#[test]
fn a_target_that_does_not_start_ends_the_run_with_its_last_words() {
    for (case, command, timeout, words) in [
        (
            "ends",
            "echo no such $WHAT >&2; exit 3 # {port} {workers}",
            "60s",
            &["exit status: 3", "no such model"][..],
        ),
        (
            "waits",
            "echo still loading; sleep 86417 # {port} {workers}",
            "200ms",
            &["/health", "still loading"][..],
        ),
    ] {
        let bench = Bench::new();
        let target = format!(
            "name = \"broken\"\nready_timeout = \"{timeout}\"\nenv = {{ WHAT = \"model\" }}\n\
             command = [\"sh\", \"-c\", {command:?}]"
        );
        let ended = run(&bench, &target);
        assert_eq!(ended.code, Some(5), "{case}: {}", ended.stderr);
        assert!(ended.stderr.contains("the broken did not start"), "{case}: {}", ended.stderr);
        assert!(words.iter().all(|word| ended.stderr.contains(word)), "{case}: {}", ended.stderr);
    }
    no_process_is_left("sleep 86417");
    let bench = Bench::new();
    let ended = run(&bench, "name = \"gone\"\ncommand = [\"/no/such/program\", \"{port}\", \"{workers}\"]");
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("s.toml:"), "the place: {}", ended.stderr);
    assert!(ended.stderr.contains("there is no program /no/such/program"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hit rate"), "nothing has run before: {}", ended.stderr);
}
