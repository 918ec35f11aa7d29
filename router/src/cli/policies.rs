//! `router policies`: what policies there are, and their options.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::ExitCode;

use router_core::POLICIES;

use super::ROUTER;
use super::policy::{DEFAULT_POLICY, capitalised};
use super::sections::flag;
use super::stop::Stop;

/// Prints the table of policies.
pub(super) fn main(arguments: Vec<OsString>) -> ExitCode {
    let command = clap::Command::new("router policies").about("Lists the policies with their options");
    match command.try_get_matches_from(arguments) {
        Ok(_) => super::show(&list()),
        Err(error) => super::end(ROUTER, &Stop::from(error)),
    }
}

fn list() -> String {
    let mut out = String::new();
    for row in POLICIES {
        let remark = if row.name == DEFAULT_POLICY { " (the default)" } else { "" };
        let _ = writeln!(out, "{}{remark}: {}", row.name, row.summary);
        for spec in row.options {
            let (flag, default) = (flag(spec.key), spec.default.as_argument());
            let _ = writeln!(
                out,
                "  {flag} [{}; default: {default}]\n      {}",
                spec.kind,
                capitalised(spec.help)
            );
        }
    }
    out
}
