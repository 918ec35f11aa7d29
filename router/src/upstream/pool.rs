//! Idle connections, kept for a moment.
//!
//! One pool per runtime thread, so that a connection is always polled by the thread whose reactor owns it.
//! SGLang's server closes a connection that was idle for 5 s; ours are given up after [`IDLE_LIMIT`], so that
//! a request never races that close.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Address, Connection, NoAnswer};

/// How long a connection may idle: below the 5 s after which the engine's server closes it.
const IDLE_LIMIT: Duration = Duration::from_secs(3);

/// Most idle connections to one worker; a burst's surplus is closed.
const IDLE_PER_WORKER: usize = 1024;

/// Whose connections: the worker's place in the fleet table.
pub(crate) type PoolKey = usize;

/// The idle connections of one runtime thread.
#[derive(Debug)]
pub(crate) struct Pool {
    /// By worker; in each, the one used last stands last.
    idle: Vec<Mutex<Vec<Idle>>>,
    /// How long connecting may take.
    connect_timeout: Duration,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

impl Pool {
    /// An empty pool for this many workers.
    pub(crate) fn new(workers: usize, connect_timeout: Duration) -> Self {
        Self { idle: (0..workers).map(|_| Mutex::default()).collect(), connect_timeout }
    }

    /// An idle connection that is still good, if there is one: the one used last, so that surplus ages out.
    pub(super) fn take(&self, key: PoolKey) -> Option<Connection> {
        let mut idle = self.idle[key].lock();
        while let Some(mut last) = idle.pop() {
            if last.since.elapsed() >= IDLE_LIMIT {
                idle.clear();
            } else if last.connection.is_idle() {
                return Some(last.connection);
            }
        }
        None
    }

    /// Connects anew.
    ///
    /// # Errors
    /// [`NoAnswer::Connect`] or [`NoAnswer::ConnectTimedOut`].
    pub(super) async fn connect(&self, address: &Address) -> Result<Connection, NoAnswer> {
        match tokio::time::timeout(self.connect_timeout, Connection::open(address)).await {
            Ok(opened) => opened.map_err(NoAnswer::Connect),
            Err(_) => Err(NoAnswer::ConnectTimedOut),
        }
    }

    /// Gives a connection back after a complete exchange. One that is not reusable is closed.
    pub(crate) fn give_back(&self, key: PoolKey, mut connection: Connection) {
        if connection.is_idle() {
            let mut idle = self.idle[key].lock();
            if idle.len() < IDLE_PER_WORKER {
                idle.push(Idle { connection, since: Instant::now() });
            }
        }
    }

    /// Closes what idles for a worker.
    pub(super) fn forget(&self, key: PoolKey) {
        self.idle[key].lock().clear();
    }

    /// Closes what has idled too long.
    pub(crate) fn prune(&self) {
        for idle in &self.idle {
            let mut idle = idle.lock();
            let fresh = idle.partition_point(|one| one.since.elapsed() >= IDLE_LIMIT);
            idle.drain(..fresh);
        }
    }
}
