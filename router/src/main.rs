//! The `router` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    router::cli::main(std::env::args_os())
}
