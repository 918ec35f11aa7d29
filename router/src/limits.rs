//! What the operating system lets the process have.

use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Files beside connections, and connections beside those of clients and of their requests.
const RESERVE: u64 = 64;

/// What is to be said where so many clients, each with a request at a worker, are more than the system lets the process
/// have files.
pub(crate) fn too_few_open_files(max_connections: usize) -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    let wanted = (max_connections as u64).saturating_mul(2).saturating_add(RESERVE);
    (limit < wanted).then(|| {
        format!(
            "--max-connections {max_connections} may need {wanted} open files, as each client and its request's worker \
             is one, and the system allows {limit}: {REMEDY}, or lower --max-connections"
        )
    })
}

/// What helps where there are too few.
pub(crate) const REMEDY: &str = "raise LimitNOFILE= of the systemd unit, or `ulimit -Hn`";

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

/// Makes a write beyond the largest size of files (`ulimit -f`) fail as on a full disk. Otherwise SIGXFSZ ends the process.
/// Children have what the system does by default.
///
/// # Errors
/// The operating system refuses a handler.
pub fn outlive_largest_file() -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _guard = runtime.enter();
    // Nobody waits for it: the handler, which stays until the end of the process, is all that is wanted.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}
