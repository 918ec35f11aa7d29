//! What is shipped beside the binary agrees with it: dashboard and alerts, packages, and the operators' page.

mod dashboard;
mod exposed;
mod flags;
mod names;
mod packages;
mod pages;
mod promql;
mod yaml;

use std::path::{Path, PathBuf};

use crate::common::process::run_to_end;

/// A path of the repository.
fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The text of a file of the repository.
fn text(path: &str) -> String {
    std::fs::read_to_string(shipped(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What the router says when it is asked for help so.
fn help(args: &[&str]) -> String {
    String::from_utf8(run_to_end(args).stdout).expect("UTF-8")
}

/// The default of a flag by `--help`.
fn default_of(flag: &str) -> u64 {
    let help = help(&["--help"]);
    let (_, about) =
        help.split_once(&format!("{flag} <")).unwrap_or_else(|| panic!("{flag} is not in --help"));
    let (_, default) = about.split_once("[default: ").expect("a default");
    default.split(']').next().expect("an end").parse().unwrap_or_else(|_| panic!("{flag}: {default:.20}"))
}
