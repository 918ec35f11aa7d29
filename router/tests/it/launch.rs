//! `router launch`: workers that are started with the router, kept running, and ended with it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::process::run_to_end;
use crate::common::{Client, Log, Worker, wait_for, wait_until};

/// Makes [`worker_process`] a worker: a file, at whose appearance its streams go on.
const GO: &str = "ROUTER_TEST_LAUNCHED";

/// Makes [`simworker_process`] a simulated engine on this port.
const PORT: &str = "ROUTER_TEST_SIMWORKER";

const JSON: &str = "Content-Type: application/json\r\n";

/// Two processes in one group that only SIGKILL ends, and that do not care about their input; `$1` is where they tell of
/// themselves.
const STUBBORN: &str =
    r#"trap "" TERM; sleep 1000 & echo $! >> "$1"; echo $$ >> "$1"; while :; do sleep 1; done"#;

/// Runs in the processes that the other tests start: serves on the port that is its last argument.
#[test]
fn worker_process() {
    let Some(go) = std::env::var_os(GO) else { return };
    let port = std::env::args().next_back().expect("a port");
    let said = format!("{} {port}", std::process::id());
    let _worker = Worker::start_at(&format!("127.0.0.1:{port}"), move |conn, request| {
        if request.text().contains("stream") {
            conn.begin_stream();
            conn.chunk(b"begun");
            wait_until("the test", || Path::new(&go).exists());
            conn.chunk(b"ended");
            conn.end_stream();
        } else {
            conn.answer("200 OK", "", said.as_bytes());
        }
        true
    });
    let mut input = std::io::stdin().lock();
    while input.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
}

/// Runs in the processes that another test starts: the `simworker` program, with flags of SGLang's.
#[test]
fn simworker_process() {
    let Ok(port) = std::env::var(PORT) else { return };
    let args = "simworker --model-path org/mock --served-model-name mock --tp-size 2 --enable-metrics --speed 50 \
        --port";
    let code = simworker::cli::main(args.split(' ').chain([port.as_str()]).map(Into::into));
    assert_eq!(code, std::process::ExitCode::SUCCESS);
}

/// This program as a worker.
fn serving() -> Vec<String> {
    let program = std::env::current_exe().expect("a path");
    let words =
        [program.to_str().expect("UTF-8"), "launch::worker_process", "--exact", "--nocapture", "{port}"];
    words.map(str::to_owned).to_vec()
}

fn stubborn(pids: &Path) -> Vec<String> {
    let words = ["sh", "-c", STUBBORN, "{port}", pids.to_str().expect("UTF-8")];
    words.map(str::to_owned).to_vec()
}

/// Ports that no other test is given, below those that the system gives.
fn base_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 120).expect("less");
    20_000 + process * 100 + NEXT.fetch_add(10, Ordering::SeqCst)
}

/// A running `router launch`, killed when dropped.
struct Launched {
    process: Child,
    log: Log,
    address: String,
    directory: tempfile::TempDir,
}

impl Launched {
    fn start(args: &[&str], command: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let free_ports = ["--host", "127.0.0.1", "--port", "0", "--router-prometheus-port", "0"];
        Self::start_bare(&[&free_ports, args].concat(), command)
    }

    /// Where its listeners are is told by `args`.
    fn start_bare(args: &[&str], command: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut process = Command::new(env!("CARGO_BIN_EXE_router"))
            .arg("launch")
            .args(["--router-policy", "round_robin", "--router-health-check-interval-secs", "1"])
            .args(args)
            .arg("--")
            .args(command(&directory.path().join("pids")))
            .env(GO, directory.path().join("go"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the router's binary");
        let log = Log::of(process.stderr.take().expect("piped"));
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let said: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
        let address = said["listening"].as_str().expect("a URL").trim_start_matches("http://").to_owned();
        Self { process, log, address, directory }
    }

    /// With workers that serve.
    fn serving(workers: usize, base: u16) -> Self {
        let (workers, base) = (workers.to_string(), base.to_string());
        Self::start(&["--dp-size", &workers, "--dp-base-port", &base], |_| serving())
    }

    /// Asks until so many workers have answered; their process ids by port.
    fn answering(&self, workers: usize) -> BTreeMap<u16, i32> {
        let mut answering = BTreeMap::new();
        wait_until("all workers to answer", || {
            let answer = Client::connect(&self.address).post("/generate", "", b"{}");
            if answer.status() == 200 {
                let text = answer.text();
                let (pid, port) = text.split_once(' ').expect("two numbers");
                answering.insert(port.parse().expect("a port"), pid.parse().expect("a process id"));
            }
            answering.len() == workers
        });
        answering
    }

    /// The process ids that stubborn workers have told.
    fn told(&self, count: usize) -> Vec<i32> {
        wait_for("the workers to tell", || {
            let text = std::fs::read_to_string(self.directory.path().join("pids")).ok()?;
            let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            (pids.len() == count && text.ends_with('\n')).then_some(pids)
        })
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("it runs");
    }

    fn wait(&mut self) -> ExitStatus {
        wait_for("the launcher to exit", || self.process.try_wait().expect("our child"))
    }

    fn guard(&self) -> i32 {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("proc");
        let is_guard = |pid: &i32| {
            let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.contains("__guard")
        };
        children.split_whitespace().map(|pid| pid.parse().expect("a number")).find(is_guard).expect("a guard")
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        // Gone already, or killed now; then its guard ends the rest.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("not 0"), signal).expect("it runs");
}

/// One that nobody has waited for yet is gone all the same.
fn is_gone(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with(['Z', 'X']))
}

fn wait_until_gone(pids: impl IntoIterator<Item = i32>) {
    for pid in pids {
        wait_until("a process to be gone", || is_gone(pid));
    }
}

#[test]
fn workers_get_ports_that_are_free_and_requests() {
    let base = base_port();
    let _taken = TcpListener::bind(("127.0.0.1", base + 1)).expect("a free port");
    let launched = Launched::serving(3, base);
    let answering = launched.answering(3);
    assert_eq!(answering.keys().copied().collect::<Vec<_>>(), [base, base + 2, base + 3]);
    let passed_on = |line: &String| line == "[worker 2] running 1 test\n";
    wait_until("the workers' words", || launched.log.lines().iter().any(passed_on));
}

#[test]
fn no_worker_gets_a_port_of_the_routers_own() {
    let base = base_port();
    let port = |above: u16| (base + above).to_string();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "host = \"127.0.0.1\"\nport = {}\nprometheus_port = {}", port(0), port(2))
        .expect("written");
    let config = file.path().to_str().expect("UTF-8");
    let args = ["--router-config", config, "--router-admin-port", &port(1), "--dp-base-port", &port(0)];
    let launched = Launched::start_bare(&args, |_| serving());
    assert_eq!(launched.answering(1).into_keys().collect::<Vec<_>>(), [base + 3]);
}

#[test]
fn simulated_engines_are_launched_and_learnt_about() {
    let base = base_port().to_string();
    let mut launched = Launched::start(&["--dp-size", "2", "--dp-base-port", &base], |_| {
        let program = std::env::current_exe().expect("a path");
        let port = format!("{PORT}={{port}}");
        let words = [
            "env",
            &port,
            program.to_str().expect("UTF-8"),
            "launch::simworker_process",
            "--exact",
            "--nocapture",
        ];
        words.map(str::to_owned).to_vec()
    });
    let workers = wait_for("both to be ready", || {
        let list = Client::get(&launched.address, "/workers").json();
        let workers = list["workers"].as_array().expect("a list").clone();
        workers
            .iter()
            .all(|worker| worker["state"] == "ready" && worker["model_id"] == "mock")
            .then_some(workers)
    });
    assert_eq!(workers.len(), 2);
    let body = br#"{"model":"mock","prompt":"one two three","max_tokens":4}"#;
    for _ in 0..4 {
        let answer = Client::connect(&launched.address).post("/v1/completions", JSON, body);
        assert_eq!((answer.status(), &answer.json()["usage"]["completion_tokens"]), (200, &4.into()));
    }
    for worker in &workers {
        let url = worker["url"].as_str().expect("a URL").trim_start_matches("http://");
        let page = Client::get(url, "/metrics").text();
        let line =
            page.lines().find(|line| line.starts_with("sglang:generation_tokens_total")).expect("a count");
        assert!(line.ends_with(" 8") || line.ends_with(" 8.0"), "two requests of the four: {line}");
    }
    launched.signal(Signal::TERM);
    assert_eq!(launched.wait().code(), Some(0));
}

#[test]
fn a_worker_that_exits_is_started_again() {
    let launched = Launched::serving(2, base_port());
    let before = launched.answering(2);
    let (&port, &pid) = before.first_key_value().expect("two");
    kill(pid, Signal::KILL);
    wait_until("another to answer in its place", || {
        let now = launched.answering(2);
        now[&port] != pid && now.len() == 2
    });
    let find = || launched.log.lines().into_iter().find(|line| line.contains("a worker has exited"));
    let said = wait_for("the line", find);
    assert!(said.contains("worker=0") && said.contains("signal: 9"), "{said}");
}

#[test]
fn at_the_end_the_router_drains_before_the_workers_go() {
    let mut launched = Launched::serving(2, base_port());
    let workers = launched.answering(2);
    let guard = launched.guard();
    let mut client = Client::connect(&launched.address);
    client.send_post("/generate", "", br#"{"stream":true}"#);
    assert_eq!(client.reader.head().expect("an answer").expect("a head").status(), 200);
    assert_eq!(client.reader.chunk().expect("a chunk"), b"begun");
    launched.signal(Signal::TERM);
    wait_until("the listener to close", || std::net::TcpStream::connect(&launched.address).is_err());
    assert!(workers.values().all(|&pid| !is_gone(pid)));
    std::fs::write(launched.directory.path().join("go"), "").expect("a file");
    assert_eq!(client.reader.chunk().expect("a chunk"), b"ended");
    assert_eq!(client.reader.chunk().expect("the end"), b"");
    assert_eq!(launched.wait().code(), Some(0));
    // Not a moment later.
    assert!(workers.values().all(|&pid| is_gone(pid)));
    assert!(is_gone(guard));
}

#[test]
fn workers_that_do_not_end_are_killed_with_all_that_they_started() {
    for by_another_signal in [false, true] {
        let grace = if by_another_signal { "600" } else { "0" };
        let base = base_port().to_string();
        let args = ["--dp-size", "2", "--dp-base-port", &base, "--worker-grace-period-secs", grace];
        let mut launched = Launched::start(&args, stubborn);
        let pids = launched.told(4);
        launched.signal(Signal::INT);
        if by_another_signal {
            let is_waiting = |line: &String| line.contains("workers are told to end");
            wait_until("the grace to begin", || launched.log.lines().iter().any(is_waiting));
            assert!(pids.iter().all(|&pid| !is_gone(pid)));
            wait_until("the launcher to exit", || {
                // One that comes before it is listened to is for nobody.
                launched.process.try_wait().expect("our child").is_some() || {
                    let _ = kill_process(Pid::from_child(&launched.process), Signal::TERM);
                    false
                }
            });
        }
        assert_eq!(launched.wait().code(), Some(0));
        wait_until_gone(pids);
    }
}

#[test]
fn nobody_is_started_again_after_the_signal() {
    let base = base_port().to_string();
    // Longer than the pause before the next start.
    let args = ["--dp-base-port", &base, "--router-shutdown-pause-secs", "2.5"];
    let mut launched =
        Launched::start(&args, |_| ["sh", "-c", "exit 1", "{port}"].map(str::to_owned).to_vec());
    let says = |lines: &[String], text: &str| lines.iter().filter(|line| line.contains(text)).count();
    wait_until("the worker to end", || says(&launched.log.lines(), "will be started again in 1s") > 0);
    launched.signal(Signal::TERM);
    assert_eq!(launched.wait().code(), Some(0));
    let lines = launched.log.lines();
    let signal = lines.iter().position(|line| line.contains("no longer ready")).expect("a line");
    assert_eq!(says(&lines[signal..], "a worker is started"), 0, "{lines:?}");
}

#[test]
fn what_a_worker_leaves_behind_does_not_hold_up_its_next_start() {
    let base = base_port().to_string();
    let args = ["--dp-base-port", &base, "--worker-grace-period-secs", "0"];
    let launched = Launched::start(&args, stubborn);
    let pids = launched.told(2);
    kill(pids[1], Signal::KILL);
    let pids = launched.told(4);
    assert!(is_gone(pids[0]) && is_gone(pids[1]));
    assert!(!is_gone(pids[2]) && !is_gone(pids[3]));
}

#[test]
fn no_worker_outlives_a_launcher_that_is_killed() {
    let base = base_port().to_string();
    let args = ["--dp-size", "2", "--dp-base-port", &base, "--worker-grace-period-secs", "0"];
    let launched = Launched::start(&args, stubborn);
    let pids = launched.told(4);
    launched.signal(Signal::KILL);
    wait_until_gone(pids);
}

#[test]
fn a_worker_that_watches_its_input_needs_no_guard() {
    let launched = Launched::serving(1, base_port());
    let workers = launched.answering(1);
    kill(launched.guard(), Signal::KILL);
    launched.signal(Signal::KILL);
    wait_until_gone(workers.into_values());
}

/// The exit code and the last line of a command line that must end by itself.
fn refused(args: &[&str], command: &[&str]) -> (Option<i32>, String) {
    let output = run_to_end(&[&["launch"], args, &["--"], command].concat());
    let said = String::from_utf8(output.stderr).expect("text");
    let ours = said.lines().rfind(|line| line.starts_with("router")).unwrap_or_default().to_owned();
    assert!(!ours.is_empty(), "{said}");
    (output.status.code(), ours)
}

#[test]
fn what_cannot_start_leaves_nothing_behind() {
    let base = base_port().to_string();
    let (code, said) = refused(
        &["--dp-base-port", &base, "--port", "0", "--router-prometheus-port", "0"],
        &["/no/such/command", "{port}"],
    );
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("`/no/such/command`") && said.contains("after `--`"), "{said}");

    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let directory = tempfile::tempdir().expect("a directory");
    let pids = directory.path().join("pids");
    let command = stubborn(&pids);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let logs = directory.path().join("logs");
    let logs = logs.to_str().expect("UTF-8");
    let certificate = ["--router-tls-cert-path", "/no/such", "--router-tls-key-path", "/no/such"];
    for (expected, args, words) in [
        (
            5,
            &["--port", &port, "--router-prometheus-port", "0"][..],
            &["cannot listen on", "another --port"][..],
        ),
        (
            5,
            &["--port", "0", "--router-prometheus-port", &port, "--router-log-dir", logs],
            &["cannot listen on", "another --router-prometheus-port"],
        ),
        (2, &[&certificate[..], &["--port", "0"]].concat(), &["--router-tls-cert-path /no/such"]),
    ] {
        let hosts = ["--host", "127.0.0.1", "--router-prometheus-host", "127.0.0.1", "--dp-base-port", &base];
        let (code, said) = refused(&[&hosts[..], args].concat(), &command);
        assert_eq!(code, Some(expected), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!pids.exists(), "a worker that loads for minutes was started in vain: {said}");
    }
    let kept = std::fs::read_dir(logs).expect("a directory").next().expect("a file").expect("a file");
    let kept = std::fs::read_to_string(kept.path()).expect("text");
    assert!(kept.contains("router launch: cannot listen on"), "{kept}");
}

#[test]
fn a_refusal_that_nobody_reads_has_the_same_exit_code() {
    for args in [
        &["launch", "--no-such-flag"][..],
        &["launch", "--help"],
        &["check", "--model-path", "m"],
        &["check", "--no-such-flag"],
        &["policies"],
    ] {
        let code = |output: fn() -> Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_router"));
            let status =
                command.args(args).stdout(output()).stderr(output()).status().expect("the router's binary");
            status.code()
        };
        let nobody = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer.into()
        };
        assert_eq!(code(nobody), code(Stdio::null), "{args:?}");
    }
}

#[test]
fn wrong_command_lines_are_refused_by_the_name_that_was_given() {
    let serve: &[&str] = &["serve", "{port}"];
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (&["--dp-size", "0"], serve, &["--dp-size", "a whole number from 1 to 1024"]),
        (&["--dp-base-port", "65535", "--dp-size", "2"], serve, &["--dp-base-port", "2 are needed"]),
        (&["--router-dp-worker-base-port", "70000"], serve, &["70000", "from 0 to 65535"]),
        (&["--worker-grace-period-secs", "x"], serve, &["a whole number from 0 to 86400"]),
        (&["--policy", "random"], serve, &["--policy: ", "write --router-policy"]),
        (&["--policy=random"], serve, &["write --router-policy"]),
        (&["--router-policy", "no_such_policy"], serve, &["--router-policy", "cache_aware"]),
        (&["--router-no-such-option", "1"], serve, &["--router-no-such-option"]),
        (&["--router-retry-max-backoff-ms", "1"], serve, &["--router-retry-initial-backoff-ms"]),
        (&["--router-port", "1"], serve, &["--router-port", "--port"]),
        (&["--router-pd-disaggregation"], serve, &["--router-pd-disaggregation", "do the same"]),
        (&["--router-prefill", "http://w:1", "8998"], serve, &["--router-prefill", "by themselves"]),
        (&["--router-worker-urls", "http://w:1"], serve, &["--router-worker-urls", "are started"]),
        (&["--port", "many"], serve, &["--port", "from 0 to 65535"]),
        (&["--host", "no host"], serve, &["--host", "IP address"]),
        (&["stray"], serve, &["stray", "at the end: router launch"]),
        (
            &["--model-path", "m"],
            serve,
            &["--model-path: there is no such option", "-- python -m sglang.launch_server"],
        ),
        (&["--model-path=m"], serve, &["at the end: router launch"]),
        (&["--worker-urls", "http://w:1"], serve, &["--worker-urls", "are started"]),
        (&[], &[], &["-- COMMAND"]),
        (&[], &["serve"], &["`serve`", "{port}"]),
    ];
    for (args, command, words) in cases {
        let (code, said) = refused(args, command);
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
}

#[test]
fn help_tells_of_both_kinds_of_options() {
    for (args, words) in [
        (
            &["launch", "--help"][..],
            &["--dp-size", "[default: 31000]", "--router-policy", "{port}", "SIGTERM"][..],
        ),
        (&["launch", "-h"], &["--dp-base-port", "-- COMMAND"]),
        (&["launch", "--router-help"], &["--max-concurrent-requests"]),
        (&["help", "launch"], &["--dp-size", "[default: 31000]"]),
        (&["help"], &["--max-concurrent-requests", "launch"]),
    ] {
        let output = run_to_end(args);
        let said = String::from_utf8(output.stdout).expect("text");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
}
