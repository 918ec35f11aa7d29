//! Ends the workers when the process that started them is gone without having done so, as when it was killed.
//!
//! The guard is this program once more, as a child that does nothing but read. It is told of every process group that
//! is started and of every one that has ended. Its input ends when our process does, however that was; what it knows to run
//! by then, it ends. (Linux can signal a child of a process that dies, but asking for that needs unsafe code.)

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// What makes a `router launch` a guard; seconds follow.
pub(super) const ARGUMENT: &str = "__guard";

/// Between two looks at whether everybody has ended.
const LOOK: Duration = Duration::from_millis(50);

/// The side of the process that is guarded.
#[derive(Debug)]
pub(super) struct Guard(Option<Child>);

impl Guard {
    /// Starts it. Where that fails, the log says what is missing.
    pub(super) fn start(grace: Duration) -> Self {
        let started = std::env::current_exe().and_then(|program| {
            Command::new(program)
                .args(["launch", ARGUMENT, &grace.as_secs().to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // A signal from the terminal is not for it.
                .process_group(0)
                .spawn()
        });
        if let Err(error) = &started {
            tracing::warn!("no guard ({error}): if this process is killed, its workers will go on");
        }
        Self(started.ok())
    }

    /// This process group runs.
    pub(super) fn note(&mut self, group: Pid) {
        self.tell('+', group);
    }

    /// This process group has ended. To be said before its number can be another's.
    pub(super) fn forget(&mut self, group: Pid) {
        self.tell('-', group);
    }

    /// There is nobody left to be guarded: it ends, and is waited for.
    pub(super) fn end(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Closes its input first.
            let _ = child.wait();
        }
    }

    fn tell(&mut self, what: char, group: Pid) {
        if let Some(stdin) = self.0.as_mut().and_then(|child| child.stdin.as_mut()) {
            // A guard that is gone guards nobody.
            let _ = writeln!(stdin, "{what}{}", group.as_raw_nonzero());
        }
    }
}

/// The side of the guard: reads to the end, then ends whom it knows.
pub(super) fn watch(args: &[OsString]) -> ExitCode {
    let grace = args.first().and_then(|text| text.to_str()?.parse().ok()).unwrap_or_default();
    let mut groups = BTreeSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        note(&mut groups, &line);
    }
    let groups: Vec<Pid> = groups.into_iter().filter_map(Pid::from_raw).collect();
    end(&groups, Duration::from_secs(grace));
    ExitCode::SUCCESS
}

fn note(groups: &mut BTreeSet<i32>, line: &str) {
    match (line.get(..1), line.get(1..).and_then(|text| text.parse::<i32>().ok())) {
        (Some("+"), Some(group)) if group > 1 => {
            groups.insert(group);
        }
        (Some("-"), Some(group)) => {
            groups.remove(&group);
        }
        _ => {}
    }
}

fn end(groups: &[Pid], grace: Duration) {
    let signal = |signal| {
        for &group in groups {
            // Whoever has ended meanwhile needs no signal.
            let _ = kill_process_group(group, signal);
        }
    };
    signal(Signal::TERM);
    let until = Instant::now() + grace;
    while Instant::now() < until && groups.iter().any(|&group| test_kill_process_group(group).is_ok()) {
        std::thread::sleep(LOOK);
    }
    signal(Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_that_run_are_kept() {
        let mut groups = BTreeSet::new();
        for line in ["+7", "+9", "-7", "+8", "", "+", "+x", "+0", "+1", "+-5", "-11", "é"] {
            note(&mut groups, line);
        }
        assert_eq!(groups.into_iter().collect::<Vec<_>>(), [8, 9]);
    }
}
