//! The guard of a target: a process of ours that starts the target and waits with it, so that nothing of it survives this
//! program, however it ends. Other programs do not end when their standard input closes, as our children do; the guard
//! does, and takes its whole group of processes along.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group};

use crate::say::note;

/// First argument that makes this executable the guard of another program.
pub const TARGET_ROLE: &str = "__target";

/// Runs the program that `args` name after the role, and ends with it or with standard input.
#[must_use]
pub fn guard(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words = args.skip(1);
    let Some(program) = words.next() else {
        note("no program is named");
        return ExitCode::FAILURE;
    };
    // Some programs log to their standard output; both are wanted when one does not start.
    let output = match std::io::stderr().as_fd().try_clone_to_owned() {
        Ok(stderr) => Stdio::from(stderr),
        Err(_) => Stdio::null(),
    };
    let started = Command::new(&program).args(words).stdin(Stdio::null()).stdout(output).spawn();
    let mut process = match started {
        Ok(process) => process,
        Err(error) => {
            note(format_args!("{}: {error}", program.display()));
            return ExitCode::FAILURE;
        }
    };
    std::thread::spawn(|| {
        let mut nothing = [0];
        while std::io::stdin().read(&mut nothing).is_ok_and(|read| read > 0) {}
        // Run by hand, it shares the group of the shell.
        if getpgrp() == getpid() {
            let _ = kill_current_process_group(Signal::KILL);
        }
        std::process::exit(1);
    });
    match process.wait() {
        Ok(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(_) => ExitCode::FAILURE,
    }
}
