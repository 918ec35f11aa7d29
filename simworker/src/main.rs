//! The `simworker` binary.

fn main() -> std::process::ExitCode {
    simworker::cli::main(std::env::args_os())
}
