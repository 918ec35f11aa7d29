//! The files and directories that the configuration names: what `router check` can tell of them without changing anything.

use std::io;
use std::path::Path;

use super::stop::Stop;
use crate::config::Config;
use crate::log;
use crate::tls::{ClientTls, Credentials};

/// What is of no use, each in a line.
pub(super) fn problems(config: &Config) -> Vec<String> {
    let server = config.server_tls.as_ref().map(|files| Credentials::load(files).map(drop));
    let upstream = ClientTls::new(&config.upstream_tls).map(drop);
    let files = server.into_iter().chain([upstream]).filter_map(Result::err).map(|bad| bad.to_string());
    let log = config.log_dir.iter().filter_map(|directory| {
        let error = log::can_keep_in(directory).err()?;
        Some(unwritable(directory, &error).message())
    });
    let recorder = config.recorder.iter().filter_map(|recorder| recorder.problem());
    files.chain(log).chain(recorder).collect()
}

/// A directory in which there can be no log.
pub(super) fn unwritable(directory: &Path, error: &io::Error) -> Stop {
    let remedy = "give a directory that the router may write to";
    Stop::wrong("--log-dir", format!("cannot write in `{}`: {error}; {remedy}", directory.display()))
}
