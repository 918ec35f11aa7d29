//! Where and when a run took place: everything that may differ between two runs with identical results.

use std::process::Command;
use std::time::SystemTime;

use serde::Serialize;

/// The moment an experiment began.
#[derive(Debug, Clone, Copy)]
pub struct Started(SystemTime);

impl Started {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(SystemTime::now())
    }
}

/// The content of `environment.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Environment {
    /// The commit of the work tree, absent outside one.
    pub commit: Option<String>,
    /// Whether the work tree had changes.
    pub dirty: Option<bool>,
    /// The command line.
    pub command: Vec<String>,
    /// Processor architecture.
    pub machine: String,
    /// Processor model.
    pub cpu: Option<String>,
    /// Cores that this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: Option<String>,
    /// When the experiment began and ended, UTC.
    pub start: String,
    /// See `start`.
    pub end: String,
    /// Version of this program.
    pub version: String,
    /// How this program was built: debug or release.
    pub build: &'static str,
}

impl Environment {
    /// The content of the file.
    #[must_use]
    pub fn into_json(self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// What is known of an experiment that began at `start` and ends now.
    #[must_use]
    pub fn capture(start: Started) -> Self {
        Self {
            commit: git(&["rev-parse", "HEAD"]),
            dirty: git(&["status", "--porcelain"]).map(|changes| !changes.is_empty()),
            command: std::env::args().collect(),
            machine: std::env::consts::ARCH.to_owned(),
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read_trimmed("/proc/sys/kernel/osrelease"),
            start: timestamp(start.0),
            end: timestamp(SystemTime::now()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

fn timestamp(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn cpu_model() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn read_trimmed(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}
