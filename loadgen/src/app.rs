//! The program: command line in, results and an exit code out.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use tokio::signal::unix::{SignalKind, signal};

use crate::cli;
use crate::live;
use crate::say::{self, note};
use crate::unfinished;

/// The exit codes that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and every assert holds.
    Done = 0,
    /// An assert or the gate failed.
    AssertFailed = 1,
    /// The command line, the scenario or the trace is wrong, or the results cannot be written.
    Usage = 2,
    /// The baseline is missing, or of another scenario.
    Baseline = 3,
    /// A live run measured the generator and not the router, or has too few repeats.
    Invalid = 4,
    /// A target did not start or died.
    Target = 5,
    /// Interrupted from the keyboard.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Runs the program with `args` (the first is the program's name).
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    let command = match cli::parse(args) {
        Ok(command) => command,
        Err(exit) => return exit,
    };
    if let Err(error) = router::outlive_largest_file() {
        note(format_args!(
            "loadgen: a file that grows beyond the limit of its size will end the program: {error}"
        ));
    }
    exit_on_signal();
    let exit = command.execute().unwrap_or_else(|failure| {
        note(format_args!("loadgen: {failure}"));
        failure.exit
    });
    if_told(exit).into()
}

/// The exit code, which is none of success where results could not be printed.
fn if_told(exit: Exit) -> Exit {
    let Some(error) = say::failed() else { return exit };
    note(format_args!(
        "loadgen: cannot write to standard output: {error}; results that go to files are there"
    ));
    if exit == Exit::Done { Exit::Usage } else { exit }
}

/// Held while results are written, so that an interrupt finds all of them or none.
static WRITING: Mutex<()> = Mutex::new(());

/// Writes results; an interrupt waits for the end of it.
pub(crate) fn uninterrupted<T>(write: impl FnOnce() -> T) -> T {
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write()
}

/// Ends the process and its children at Ctrl-C, and when it is asked to end.
fn exit_on_signal() {
    std::thread::spawn(|| match wait_for_signal() {
        Ok((name, code)) => {
            live::end_all_children();
            let _finished = WRITING.lock();
            unfinished::remove_all();
            note(format_args!("loadgen: ended by {name} before the results were complete"));
            std::process::exit(code);
        }
        Err(error) => note(format_args!("loadgen: Ctrl-C will not clean up: {error}")),
    });
}

/// The first signal that asks for an end, and the exit code of it: 128 and its number, as shells have it.
fn wait_for_signal() -> std::io::Result<(&'static str, i32)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        Ok(tokio::select! {
            _ = interrupt.recv() => ("an interrupt", Exit::Interrupted as i32),
            _ = terminate.recv() => ("SIGTERM", 143),
            _ = hangup.recv() => ("SIGHUP", 129),
        })
    })
}
