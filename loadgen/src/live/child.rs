//! One child process: started, waited for until it listens, measured, and ended whatever happens.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child as Process, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::LiveError;

/// First argument that makes this executable a host of mock workers.
pub const WORKER_ROLE: &str = "__simworker";
/// First argument that makes this executable a router.
pub const ROUTER_ROLE: &str = "__router";

/// How long a child may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How many of its last lines on standard error are kept for messages.
const KEPT_LINES: usize = 12;

/// Every child that has not been dropped, for the one that ends this program in a hurry.
static CHILDREN: Mutex<Vec<Weak<Mutex<Process>>>> = Mutex::new(Vec::new());

/// Ends all children at once and waits for their ends.
pub fn end_all_children() {
    for process in locked(&CHILDREN).drain(..).filter_map(|child| child.upgrade()) {
        end(&process);
    }
}

/// A running child. Dropping it ends the process and waits for it.
#[derive(Debug)]
pub(super) struct Child {
    role: &'static str,
    process: Arc<Mutex<Process>>,
    stderr: Arc<Mutex<VecDeque<String>>>,
}

impl Child {
    /// Starts this executable as `role` with `args` and waits for the line that says where it listens.
    pub(super) fn start<T: DeserializeOwned + Send + 'static>(
        role: &'static str,
        args: &[String],
    ) -> Result<(Self, T), LiveError> {
        let name = if role == ROUTER_ROLE { "router" } else { "worker host" };
        let fail = |why: String, stderr: String| LiveError::Start { role: name, why, stderr };
        let executable = std::env::current_exe().map_err(|e| fail(e.to_string(), String::new()))?;
        let mut process = Command::new(executable)
            .arg(role)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| fail(e.to_string(), String::new()))?;
        let stdout = process.stdout.take();
        let stderr = keep_last_lines(process.stderr.take());
        let process = Arc::new(Mutex::new(process));
        locked(&CHILDREN).push(Arc::downgrade(&process));
        let child = Self { role: name, process, stderr };
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let mut stdout = BufReader::new(stdout);
                let _ = stdout.read_line(&mut line);
                let _ = send.send(line);
                // Keep reading, so that a child which prints more never blocks on a full pipe.
                let _ = std::io::copy(&mut stdout, &mut std::io::sink());
            }
        });
        let line = receive
            .recv_timeout(START_TIMEOUT)
            .map_err(|_| fail(format!("it did not listen within {START_TIMEOUT:?}"), child.last_lines()))?;
        match serde_json::from_str(&line) {
            Ok(listening) => Ok((child, listening)),
            Err(_) if line.is_empty() => {
                Err(fail("it ended before it listened".to_owned(), child.settled_lines()))
            }
            Err(_) => Err(fail(format!("it said {line:?} instead of where it listens"), child.last_lines())),
        }
    }

    /// CPU time (user and system) of all its threads so far, in microseconds. Absent where the kernel does not tell.
    pub(super) fn cpu_us(&self) -> Option<f64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", locked(&self.process).id())).ok()?;
        let ns: u64 = tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
            .filter_map(|stat| stat.split_whitespace().next()?.parse::<u64>().ok())
            .sum();
        (ns > 0).then_some(ns as f64 / 1e3)
    }

    /// What became of it, in words, if it has ended.
    pub(super) fn death(&mut self) -> Option<String> {
        let status = locked(&self.process).try_wait().ok()??;
        let lines = self.settled_lines();
        let said = if lines.is_empty() { String::new() } else { format!("; it said:\n{lines}") };
        Some(format!("the {} died during the run ({status}){said}", self.role))
    }

    fn last_lines(&self) -> String {
        locked(&self.stderr).iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// The last lines of a child that has ended: its pipe may still be draining.
    fn settled_lines(&self) -> String {
        std::thread::sleep(Duration::from_millis(50));
        self.last_lines()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        end(&self.process);
    }
}

fn end(process: &Mutex<Process>) {
    let mut process = locked(process);
    let _ = process.kill();
    let _ = process.wait();
}

/// What a panicking thread left behind is whole: every change here is a single one.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep_last_lines(stderr: Option<ChildStderr>) -> Arc<Mutex<VecDeque<String>>> {
    let kept = Arc::new(Mutex::new(VecDeque::with_capacity(KEPT_LINES)));
    if let Some(stderr) = stderr {
        let kept = Arc::clone(&kept);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut kept = locked(&kept);
                if kept.len() == KEPT_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
    }
    kept
}
