//! `[[target]]`: other routers, which live runs put beside our policies.
//!
//! A target is a command that is started for every run, with the addresses of cold workers filled in, or a router that
//! runs already. A running one keeps what it has learnt from run to run, and has to know the workers by itself: they
//! listen on the ports that are named here.

mod addresses;
mod command;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;

pub use addresses::Addresses;
pub use command::Command;
#[cfg(test)]
pub(super) use read::KEYS;
pub(super) use read::{check, read_all};

/// Another router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What it is called in tables and files; no policy has this name.
    pub name: String,
    /// How it chooses, in words for people; may be empty.
    pub policy_name: String,
    /// Where it comes from.
    pub source: Source,
    /// The path that answers 200 when it is up.
    pub ready: String,
    /// How long it may take until then, in nanoseconds.
    pub ready_timeout_ns: u64,
    /// How long it is left alone when it is ready, in nanoseconds: it may still get to know its workers.
    pub settle_ns: u64,
}

/// Where a target comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It is started for every run and ended after it.
    Command(Command),
    /// It runs, and goes on running.
    Running {
        /// Where it listens, without a slash at its end.
        url: String,
        /// The port of the first worker; the next ones follow.
        worker_port: u16,
    },
}

impl Target {
    /// What is told of it: its name, and how it chooses.
    #[must_use]
    pub fn label(&self) -> String {
        if self.policy_name.is_empty() {
            return self.name.clone();
        }
        format!("{} ({})", self.name, self.policy_name)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running { url, .. } => f.write_str(url),
            Self::Command(command) => command.fmt(f),
        }
    }
}
