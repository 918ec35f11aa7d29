//! The `loadgen` binary, run as its clients run it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A finished program.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A folder for one test: scenario files in, results out.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadgen"));
        command.current_dir(self.dir.path()).args(args).arg("--out").arg(self.out());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        let output = self.command(args).output().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// `summary.json`.
    pub(crate) fn summary(&self) -> Value {
        let text = std::fs::read_to_string(self.out().join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(summary["schema"], 1);
        summary
    }

    /// The runs in it.
    pub(crate) fn runs(&self) -> Vec<Value> {
        self.summary()["runs"].as_array().unwrap().clone()
    }
}

/// A scenario of this repository.
pub(crate) fn shipped(name: &str) -> String {
    crate::support::root().join("scenarios").join(name).display().to_string()
}

/// What the router's own reader makes of a file: all values, each with where it comes from.
pub(crate) fn checked_by_the_router(path: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(["__router", "check", "--config"])
        .arg(path)
        .env_remove("SGLANG_ROUTER_P2C_LOAD_METRIC")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The section of the policy in it.
pub(crate) fn read_by_the_router(path: &Path) -> toml::Table {
    let read: toml::Table = checked_by_the_router(path).parse().unwrap();
    read["policy"].as_table().unwrap().clone()
}

/// Waits for the end of `child`, at most `most`; a longer run is ended and fails the test.
pub(crate) fn wait(child: &mut Child, most: Duration) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if start.elapsed() > most {
            child.kill().unwrap();
            panic!("still running after {most:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The children of process `parent` whose command line contains `word`.
pub(crate) fn children(parent: u32, word: &str) -> Vec<u32> {
    let list = format!("/proc/{parent}/task/{parent}/children");
    let list = std::fs::read_to_string(list).unwrap_or_default();
    list.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter(|pid| command_line(*pid).contains(word))
        .collect()
}

/// Whether process `pid` exists and is not just waiting to be reaped.
pub(crate) fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists() && !command_line(pid).is_empty()
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// Polls until `condition` gives something.
pub(crate) fn until<T>(most: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < most, "nothing after {most:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
