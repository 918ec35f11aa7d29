//! The workers that were started: kept running until the end, then ended, each with everything that it has started.
//!
//! Every worker has a process group of its own, so that a signal from the terminal reaches the router alone, and so that it
//! can be ended as a whole. A group is signalled only while its first process is there or still to be waited for: until
//! then its number cannot be another's.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::backoff::Backoff;
use super::command::Template;
use super::guard::Guard;
use super::output;
use crate::signals;

/// How long what was killed may take to be gone, and its last words to be passed on.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Why there are no workers.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("cannot start a worker by `{program}`: {source}; give the command as it is typed, after `--`")]
    Command { program: String, source: std::io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// All workers. Dropping it ends them.
pub(super) struct Crew {
    shared: Arc<Shared>,
    grace: Duration,
}

struct Shared {
    command: Template,
    /// By number of the worker.
    ports: Vec<u16>,
    state: Mutex<State>,
    /// Something in the state has changed.
    news: Condvar,
}

struct State {
    guard: Guard,
    /// By number of the worker: its process group, while it runs.
    running: Vec<Option<Pid>>,
    /// Outputs that have not come to their end.
    outputs: usize,
    /// Nobody is started any more: the end has begun, and one that dies now has no successor.
    leaving: bool,
    /// What is left of the grace is not waited for.
    hurry: bool,
}

impl Crew {
    /// Starts a worker on every port.
    ///
    /// # Errors
    /// [`StartError`]; then none runs.
    pub(super) fn start(
        command: Template,
        ports: Vec<u16>,
        grace: Duration,
        guard: Guard,
    ) -> Result<Self, StartError> {
        let running = vec![None; ports.len()];
        let state = State { guard, running, outputs: 0, leaving: false, hurry: false };
        let shared = Arc::new(Shared { command, ports, state: Mutex::new(state), news: Condvar::new() });
        let crew = Self { shared, grace };
        on_signal(&crew.shared, |state| state.leaving = true);
        let (started, starts) = channel();
        for index in 0..crew.shared.ports.len() {
            let (shared, started) = (Arc::clone(&crew.shared), started.clone());
            let name = format!("worker-{index}");
            let keeper = thread::Builder::new().name(name).spawn(move || shared.keep(index, started));
            keeper.map_err(StartError::Thread)?;
        }
        drop(started);
        for start in starts {
            start.map_err(|source| StartError::Command {
                program: crew.shared.command.program().display().to_string(),
                source,
            })?;
        }
        Ok(crew)
    }

    /// Asks everybody to end, waits, and kills who is left.
    fn end(&self) {
        let mut state = self.shared.state.lock();
        state.leaving = true;
        state.signal(Signal::TERM);
        self.shared.news.notify_all();
        if state.is_anybody_there() {
            tracing::info!("the router has ended; its workers are told to end");
            // The next signal takes what is left of the grace. Without the means for that, all of it is given.
            on_signal(&self.shared, |state| state.hurry = true);
        }
        let until = Instant::now() + self.grace;
        self.shared.wait(&mut state, until, |state| state.hurry || !state.is_anybody_there());
        if state.is_anybody_there() {
            tracing::warn!("workers that have not ended are killed");
            state.signal(Signal::KILL);
        }
        let until = Instant::now() + LAST_MOMENT;
        self.shared.wait(&mut state, until, |state| !state.is_anybody_there() && state.outputs == 0);
        if !state.is_anybody_there() {
            state.guard.end();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Has a worker run until the end. How its first start went is told.
    fn keep(self: &Arc<Self>, index: usize, first: Sender<std::io::Result<()>>) {
        let mut backoff = Backoff::default();
        let mut first = Some(first);
        loop {
            let begun = Instant::now();
            match (self.spawn(index), first.take()) {
                (Ok(None), _) => return,
                (Ok(Some(child)), told) => {
                    // Whoever does not listen has given up, and ends us.
                    told.map(|told| told.send(Ok(())));
                    let Some(status) = self.outlive(index, child) else { return };
                    tracing::warn!(worker = index, %status, "a worker has exited");
                }
                (Err(error), Some(told)) => return drop(told.send(Err(error))),
                (Err(error), None) => tracing::error!(worker = index, "a worker cannot be started: {error}"),
            }
            let pause = backoff.after(begun.elapsed());
            tracing::info!(worker = index, "the worker will be started again in {pause:?}");
            let mut state = self.state.lock();
            self.wait(&mut state, Instant::now() + pause, |state| state.leaving);
        }
    }

    /// Starts a worker, unless the end has come.
    fn spawn(self: &Arc<Self>, index: usize) -> std::io::Result<Option<Child>> {
        let port = self.ports[index];
        let mut command = self.command.fill(index, port);
        let (heard, said) = std::io::pipe()?;
        // What it reads ends when we do: the sign for workers that look for one.
        command.stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said).process_group(0);
        let mut state = self.state.lock();
        if state.leaving {
            return Ok(None);
        }
        let shared = Arc::clone(self);
        let name = format!("output-{index}");
        let listener = move || {
            output::pass_on(index, heard);
            shared.state.lock().outputs -= 1;
            shared.news.notify_all();
        };
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        state.running[index] = Some(pid);
        state.guard.note(pid);
        match thread::Builder::new().name(name).spawn(listener) {
            Ok(_) => state.outputs += 1,
            // It will find that nobody reads, if it ever says anything.
            Err(error) => tracing::warn!(worker = index, "its output is lost: {error}"),
        }
        tracing::info!(worker = index, port, pid = pid.as_raw_nonzero(), "a worker is started");
        Ok(Some(child))
    }

    /// Waits for the end of a worker, and ends what it leaves behind; nothing if the end of all has come.
    fn outlive(&self, index: usize, mut child: Child) -> Option<ExitStatus> {
        let pid = Pid::from_child(&child);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(pid), ended).is_err_and(|error| error == Errno::INTR) {}
        let mut state = self.state.lock();
        // It may be alone; then there is nobody to tell.
        let _ = kill_process_group(pid, Signal::KILL);
        state.guard.forget(pid);
        state.running[index] = None;
        let status = child.wait();
        self.news.notify_all();
        if state.leaving { None } else { status.ok() }
    }

    fn wait(
        &self,
        state: &mut parking_lot::MutexGuard<'_, State>,
        until: Instant,
        is_over: impl Fn(&State) -> bool,
    ) {
        while !is_over(state) && !self.news.wait_until(state, until).timed_out() {}
    }
}

impl State {
    fn signal(&self, signal: Signal) {
        for &group in self.running.iter().flatten() {
            // Whoever has just ended needs no signal.
            let _ = kill_process_group(group, signal);
        }
    }

    fn is_anybody_there(&self) -> bool {
        self.running.iter().any(Option::is_some)
    }
}

/// Notes the next signal, if there are the means for that.
fn on_signal(shared: &Arc<Shared>, note: fn(&mut State)) {
    let shared = Arc::clone(shared);
    let wait = move || {
        if signals::wait_for_one().is_ok() {
            note(&mut shared.state.lock());
            shared.news.notify_all();
        }
    };
    let _ = thread::Builder::new().name("signals".to_owned()).spawn(wait);
}
