//! One child process: started, waited for until it listens, measured, and ended whatever happens.
//!
//! A target may start processes of its own. It gets a group of processes, of which our guard is the first (`guard.rs`), and
//! is measured and ended as that group.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child as Process, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::DeserializeOwned;

use super::LiveError;
use super::guard::TARGET_ROLE;
use super::machine::{self, Scheduled};

/// First argument that makes this executable a host of mock workers.
pub const WORKER_ROLE: &str = "__simworker";
/// First argument that makes this executable a router.
pub const ROUTER_ROLE: &str = "__router";

/// How long a child may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How many of its last lines on standard error are kept for messages.
const KEPT_LINES: usize = 12;

/// Every child that has not been dropped, for the one that ends this program in a hurry.
static CHILDREN: Mutex<Vec<Weak<Mutex<Handle>>>> = Mutex::new(Vec::new());

/// Ends all children at once and waits for their ends.
pub fn end_all_children() {
    for handle in locked(&CHILDREN).drain(..).filter_map(|child| child.upgrade()) {
        locked(&handle).end();
    }
}

/// A running child. Dropping it ends the process, or its whole group, and waits for it.
#[derive(Debug)]
pub(super) struct Child {
    name: String,
    handle: Arc<Mutex<Handle>>,
    stderr: Arc<Mutex<VecDeque<String>>>,
}

/// What ends a child.
#[derive(Debug)]
struct Handle {
    process: Process,
    /// Whether it is the first of a group of its own.
    leads_group: bool,
}

impl Child {
    /// Starts this executable as `role` with `args` and waits for the line that says where it listens.
    pub(super) fn start<T: DeserializeOwned>(
        role: &'static str,
        args: &[String],
    ) -> Result<(Self, T), LiveError> {
        let name = if role == ROUTER_ROLE { "router" } else { "worker host" };
        let mut command = this_program(name)?;
        command.arg(role).args(args);
        let (child, stdout) = Self::spawn(name, command, false)?;
        let line = first_line(stdout)
            .recv_timeout(START_TIMEOUT)
            .map_err(|_| child.failed(format!("it did not listen within {START_TIMEOUT:?}")))?;
        match serde_json::from_str(&line) {
            Ok(listening) => Ok((child, listening)),
            Err(_) if line.is_empty() => Err(child.failed("it ended before it listened".to_owned())),
            Err(_) => Err(child.failed(format!("it said {line:?} instead of where it listens"))),
        }
    }

    /// Starts another program, called `name` in messages, in a group of its own.
    pub(super) fn start_target<'e>(
        name: &str,
        words: &[String],
        env: impl Iterator<Item = (&'e String, &'e String)>,
    ) -> Result<Self, LiveError> {
        let mut command = this_program(name)?;
        command.arg(TARGET_ROLE).args(words).envs(env).process_group(0);
        let (child, stdout) = Self::spawn(name, command, true)?;
        drop(first_line(stdout));
        Ok(child)
    }

    fn spawn(
        name: &str,
        mut command: Command,
        leads_group: bool,
    ) -> Result<(Self, Option<ChildStdout>), LiveError> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| start_error(name, error.to_string(), String::new()))?;
        let stdout = process.stdout.take();
        let stderr = keep_last_lines(process.stderr.take());
        let handle = Arc::new(Mutex::new(Handle { process, leads_group }));
        locked(&CHILDREN).push(Arc::downgrade(&handle));
        Ok((Self { name: name.to_owned(), handle, stderr }, stdout))
    }

    /// What its threads have had of the CPUs so far, the guard's not counted. Absent where the kernel does not tell.
    pub(super) fn scheduled(&self) -> Option<Scheduled> {
        let processes = self.processes();
        let all = processes.iter().filter_map(|pid| machine::process(*pid));
        all.reduce(Scheduled::plus).filter(|sum| sum.ran_ns > 0)
    }

    /// The most memory that each of its processes had, in bytes, summed up.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        self.processes().iter().filter_map(|pid| machine::peak_bytes(*pid)).reduce(|sum, of| sum + of)
    }

    fn processes(&self) -> Vec<u32> {
        let handle = locked(&self.handle);
        let pid = handle.process.id();
        if handle.leads_group { machine::group(pid) } else { vec![pid] }
    }

    /// What became of it, in words, if it has ended.
    pub(super) fn death(&mut self) -> Option<String> {
        let status = self.ended()?;
        let lines = self.settled_lines();
        let said = if lines.is_empty() { String::new() } else { format!("; it said:\n{lines}") };
        Some(format!("the {} died during the run ({status}){said}", self.name))
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&self) -> Option<std::process::ExitStatus> {
        locked(&self.handle).process.try_wait().ok()?
    }

    /// That it did not start, with what it said.
    pub(super) fn failed(&self, why: String) -> LiveError {
        start_error(&self.name, why, self.settled_lines())
    }

    /// The last lines, also of a child that has ended: its pipe may still be draining.
    fn settled_lines(&self) -> String {
        std::thread::sleep(Duration::from_millis(50));
        locked(&self.stderr).iter().cloned().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        locked(&self.handle).end();
    }
}

impl Handle {
    fn end(&mut self) {
        if self.leads_group
            && let Some(group) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
        {
            // A group that has ended by itself needs no end.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn this_program(name: &str) -> Result<Command, LiveError> {
    let path =
        std::env::current_exe().map_err(|error| start_error(name, error.to_string(), String::new()))?;
    Ok(Command::new(path))
}

fn start_error(name: &str, why: String, stderr: String) -> LiveError {
    LiveError::Start { name: name.to_owned(), why, stderr }
}

/// The first line that a child prints. Reading goes on, so that a child which prints more never blocks on a full pipe.
fn first_line(stdout: Option<ChildStdout>) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if let Some(stdout) = stdout {
            let mut stdout = BufReader::new(stdout);
            let _ = stdout.read_line(&mut line);
            let _ = send.send(line);
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        }
    });
    receive
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
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let mut kept = locked(&kept);
                if kept.len() == KEPT_LINES {
                    kept.pop_front();
                }
                kept.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        });
    }
    kept
}
