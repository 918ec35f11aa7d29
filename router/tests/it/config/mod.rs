//! The configuration from outside: the gateway's flags, files, and the subcommands about them.

mod check;
mod gateway;
mod lines;
mod log;
mod secrets;

pub(crate) use gateway::{FILES, PAIRED, TAKEN, WITHOUT_EFFECT};

use std::process::Output;

use crate::common::process::run_to_end;

/// What the router says on standard error, of a command that ends with this code, without a panic.
fn said(output: &Output, code: i32, of: &dyn std::fmt::Debug) -> String {
    let said = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(code), "{of:?}: {said}");
    assert!(!said.contains("panicked"), "{of:?}: {said}");
    said
}

/// That `router check` refuses these flags with this line, and prints no configuration.
pub(crate) fn assert_checked(args: &[&str], line: &str) {
    let output = run_to_end(&[&["check"], args].concat());
    let said = said(&output, 2, &args);
    assert!(said.lines().any(|told| told == line), "{args:?}: {line:?} is not in {said}");
    assert!(output.stdout.is_empty(), "{args:?}");
}

/// What `router check` says of these flags.
fn checked(args: &[&str], code: i32) -> String {
    said(&run_to_end(&[&["check"], args].concat()), code, &args)
}
