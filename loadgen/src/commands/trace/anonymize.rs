//! `loadgen trace anonymize FILE OUT [--salt PATH]`

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, Input, convert};
use crate::app::Exit;
use crate::commands::shared::refuse_input;
use crate::scenario::input;
use crate::trace::convert::Names;

/// Shortest salt, in bytes: one that can be guessed protects nothing.
const LEAST_SALT: usize = 16;
/// Longest salt that is read, in bytes.
const MOST_SALT: u64 = 1 << 20;

/// `loadgen trace anonymize FILE OUT …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(super) struct Options {
    #[command(flatten)]
    input: Input,
    /// The file to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// A file with the salt, of at least 16 bytes; blocks have the same name in all files with the same salt. Without it, a
    /// salt is drawn and forgotten
    #[arg(long, value_name = "PATH")]
    salt: Option<PathBuf>,
}

/// Writes the trace so that it tells lengths, times and what prompts share, and nothing else.
pub(super) fn execute(options: &Options) -> Result<Exit, Failure> {
    let Options { input, out, salt } = options;
    refuse_input([out], "the salt", salt)?;
    let salt = match salt {
        Some(path) => read(path)?,
        None => drawn()?,
    };
    let rows = input.open()?;
    let to = rows.format().of_anonymous();
    convert::write(input, rows, out, to, Names::salted(&salt))?;
    Ok(Exit::Done)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failure = |problem: String| Failure::usage(format!("--salt {}: {problem}", path.display()));
    let mut salt = Vec::new();
    let file = input::open(path).map_err(|error| failure(format!("cannot be read: {error}")))?;
    file.take(MOST_SALT)
        .read_to_end(&mut salt)
        .map_err(|error| failure(format!("cannot be read: {error}")))?;
    if salt.len() < LEAST_SALT {
        let remedy = "make a new file with `head -c 32 /dev/urandom > my.salt` and name that";
        return Err(failure(format!("it has {} bytes, which could be guessed; {remedy}", salt.len())));
    }
    Ok(salt)
}

fn drawn() -> Result<Vec<u8>, Failure> {
    let mut salt = vec![0; 32];
    let from = "/dev/urandom";
    let read = File::open(from).and_then(|mut file| file.read_exact(&mut salt));
    read.map_err(|error| Failure::usage(format!("{from}: cannot be read: {error}; give a --salt")))?;
    Ok(salt)
}
