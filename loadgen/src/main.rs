//! The `loadgen` binary; also, by a hidden first argument, the mock workers and the router of its live runs, and the guard of another router.

use std::ffi::OsString;
use std::process::ExitCode;

use loadgen::live::{ROUTER_ROLE, TARGET_ROLE, WORKER_ROLE};

fn main() -> ExitCode {
    // A live run has as many connections as requests in flight; children inherit the limit.
    router::raise_open_files();
    let mut args: Vec<OsString> = std::env::args_os().collect();
    match args.get(1).and_then(|role| role.to_str()) {
        Some(WORKER_ROLE) => {
            args.remove(1);
            simworker::cli::main(args.into_iter())
        }
        Some(ROUTER_ROLE) => {
            args.remove(1);
            router::cli::main(args.into_iter())
        }
        Some(TARGET_ROLE) => loadgen::live::guard(args.into_iter().skip(1)),
        _ => loadgen::app::main(args),
    }
}
