//! The router's binary as a child process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::{Client, Message, wait_for};

/// A running router.
#[derive(Debug)]
pub(crate) struct Router {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Where it says that clients are served.
    pub(crate) url: String,
    /// `host:port` of that.
    pub(crate) address: String,
    /// `host:port` for operators, where they have a listener of their own.
    pub(crate) admin: Option<String>,
    /// `host:port` of the metrics.
    pub(crate) metrics: String,
}

impl Router {
    /// Starts it in front of these workers, on free ports. It logs only what is wrong with itself, unless `RUST_LOG` asks
    /// for more: a failure among thousands of lines is hard to find.
    pub(crate) fn start(workers: &[String], args: &[&str]) -> Self {
        let mut command = command();
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "error");
        }
        Self::start_by(command, workers, args)
    }

    /// Starts it under this limit, in the words of `ulimit`.
    pub(crate) fn start_limited(limit: &str, workers: &[String], args: &[&str]) -> Self {
        Self::start_by(limited(limit), workers, args)
    }

    /// Starts it under this limit and keeps what it logs.
    pub(crate) fn start_limited_logged(limit: &str, workers: &[String], args: &[&str]) -> (Self, Log) {
        let mut command = limited(limit);
        command.stderr(Stdio::piped());
        let mut router = Self::start_by(command, workers, args);
        let log = Log::of(router.child.stderr.take().expect("piped"));
        (router, log)
    }

    /// Starts it and keeps what it logs.
    pub(crate) fn start_logged(workers: &[String], args: &[&str]) -> (Self, Log) {
        let mut command = command();
        command.stderr(Stdio::piped());
        let mut router = Self::start_by(command, workers, args);
        let log = Log::of(router.child.stderr.take().expect("piped"));
        (router, log)
    }

    /// Starts it by these flags alone, and keeps everything that it can be made to log.
    pub(crate) fn start_traced(args: &[&str]) -> (Self, Log) {
        let mut command = command();
        command.env("RUST_LOG", "trace").stderr(Stdio::piped());
        let mut router = Self::start_by(command, &[], args);
        let log = Log::of(router.child.stderr.take().expect("piped"));
        (router, log)
    }

    /// Starts it and reads nothing of what it logs.
    pub(crate) fn start_unheard(workers: &[String], args: &[&str]) -> (Self, ChildStderr) {
        let mut command = command();
        command.stderr(Stdio::piped());
        let mut router = Self::start_by(command, workers, args);
        let stderr = router.child.stderr.take().expect("piped");
        (router, stderr)
    }

    fn start_by(mut command: Command, workers: &[String], args: &[&str]) -> Self {
        // Without workers there is no flag either: it would take the place of what a file says.
        let flag = (!workers.is_empty()).then_some("--worker-urls");
        // The same choices in every run; what a file says of it is not to be overruled.
        let is_told = args.iter().any(|arg| ["--seed", "--config"].contains(arg));
        let seed: &[&str] = if is_told { &[] } else { &["--seed", "1"] };
        let mut child = command
            .args(["--host", "127.0.0.1", "--port", "0", "--prometheus-host", "127.0.0.1"])
            .args(["--prometheus-port", "0", "--exit-with-stdin"])
            .args(flag)
            .args(workers)
            .args(args)
            .args(seed)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the router's binary");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let said: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
        let url = |key: &str| said[key].as_str().map(str::to_owned);
        let address = |key: &str| url(key)?.split_once("://").map(|(_, address)| address.to_owned());
        Self {
            stdin: child.stdin.take(),
            child,
            url: url("listening").expect("a URL"),
            address: address("listening").expect("a URL"),
            admin: address("admin"),
            metrics: address("metrics").expect("a URL"),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Message {
        Client::get(&self.address, path)
    }

    pub(crate) fn post(&self, path: &str, body: &[u8]) -> Message {
        self.client().post(path, "Content-Type: application/json\r\n", body)
    }

    /// Requests in flight by `/workers`.
    pub(crate) fn loads(&self) -> Vec<u64> {
        let list = self.get("/workers").json();
        let workers = list["workers"].as_array().expect("a list");
        workers.iter().map(|worker| worker["load"].as_u64().expect("a number")).collect()
    }

    /// The value of the first series whose line begins so; behind labels that are complete there may be more of them.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let text = Client::get(&self.metrics, "/metrics").text();
        let begin = series.strip_suffix('}').unwrap_or(series);
        let is_end = |rest: &str| begin == series || rest.starts_with(['}', ',']);
        let line = text.lines().find(|line| line.strip_prefix(begin).is_some_and(is_end))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// Soft and hard limit of open files.
    pub(crate) fn open_file_limits(&self) -> [String; 2] {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id())).expect("proc");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit");
        let mut words = line.split_whitespace().map(str::to_owned);
        [words.next().expect("the soft limit"), words.next().expect("the hard limit")]
    }

    /// How many files it has open, sockets too.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("proc").count()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("proc");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a size");
        line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") * 1024
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for("the router to exit", || self.child.try_wait().expect("our child"))
    }
}

/// What a router has logged so far.
#[derive(Debug)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl Log {
    pub(crate) fn of(stderr: ChildStderr) -> Self {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            let mut stderr = BufReader::new(stderr);
            let mut line = Vec::new();
            while stderr.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let text = String::from_utf8(std::mem::take(&mut line)).expect("UTF-8");
                kept.lock().expect("not poisoned").push(text);
            }
        });
        Self { lines, reader }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("not poisoned").clone()
    }

    /// All lines of a router that has ended or is about to.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.reader.join().expect("text");
        let lines = self.lines.lock().expect("not poisoned");
        lines.clone()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // Gone already, or killed now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_router"))
}

/// Under a limit, in the words of `ulimit`.
fn limited(limit: &str) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_router")]);
    shell
}

/// Runs the router with a command line that must end it by itself.
pub(crate) fn run_to_end(args: &[&str]) -> Output {
    run_with(&[], args)
}

/// The same with these variables.
pub(crate) fn run_with(variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut child = command()
        .envs(variables.iter().copied())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the router's binary");
    let status = wait_for("the router to refuse", || child.try_wait().expect("our child"));
    let read = |pipe: Option<&mut dyn Read>| {
        let mut bytes = Vec::new();
        pipe.expect("piped").read_to_end(&mut bytes).expect("output");
        bytes
    };
    let stdout = read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
    let stderr = read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
    Output { status, stdout, stderr }
}
