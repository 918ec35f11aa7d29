//! What the operating system lets the process have.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one: every client and every connection to a worker is one, and the
/// usual soft limit of 1024 is far below what a router needs. A system that refuses leaves it as it was.
pub fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!("cannot raise the limit of open files: {error}");
        }
    }
}
