//! Idle connections, kept for a moment.
//!
//! Each worker keeps its own, apart for each runtime thread, so that a connection is always polled by the thread whose
//! reactor owns it; a worker that has left takes its connections with it.
//! SGLang's server closes a connection that was idle for 5 s; ours are given up after [`IDLE_LIMIT`], so that
//! a request never races that close. One that is closed before that time is a sign that the engine has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Connection, NoAnswer};
use crate::fleet::Member;
use crate::hops::Mark;
use crate::tls::ClientTls;

/// How long a connection may idle: below the 5 s after which the engine's server closes it.
const IDLE_LIMIT: Duration = Duration::from_secs(3);

/// Most idle connections to one worker; a burst's surplus is closed.
const IDLE_PER_WORKER: usize = 1024;

/// How one runtime thread comes by connections.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Which thread: whose connections it takes.
    thread: usize,
    /// How long connecting may take.
    connect_timeout: Duration,
    tls: ClientTls,
    /// Of this router, for what goes out.
    pub(super) mark: Mark,
    /// Whether a connection that its worker closes early is a reason to ask that worker.
    watches: bool,
}

/// The idle connections to one worker, by thread.
#[derive(Debug)]
pub(crate) struct IdleConnections(Box<[Mutex<Vec<Idle>>]>);

/// In each list, the one used last stands last.
#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

impl Pool {
    /// The pool of this thread.
    pub(crate) fn new(thread: usize, connect_timeout: Duration, tls: ClientTls, mark: Mark) -> Self {
        Self { thread, connect_timeout, tls, mark, watches: true }
    }

    /// The same for the router's own questions: a worker that soon closes idle connections would be asked for ever if the end
    /// of one question's connection were a reason for the next question.
    pub(crate) fn for_questions(self) -> Self {
        Self { watches: false, ..self }
    }

    /// An idle connection that is still good, if there is one: the one used last, so that surplus ages out.
    pub(super) fn take(&self, member: &Member) -> Option<Connection> {
        let mut idle = self.idle(member).lock();
        while let Some(mut last) = idle.pop() {
            if last.since.elapsed() >= IDLE_LIMIT {
                idle.clear();
            } else if last.connection.is_idle() {
                return Some(last.connection);
            } else {
                self.closed_by(member);
            }
        }
        None
    }

    /// Connects anew.
    ///
    /// # Errors
    /// [`NoAnswer::Connect`] or [`NoAnswer::ConnectTimedOut`].
    pub(super) async fn connect(&self, member: &Member) -> Result<Connection, NoAnswer> {
        // Apart: most requests find a connection, and do not carry the room for a TLS handshake about.
        let opening = Box::pin(Connection::open(&member.address, &self.tls));
        match tokio::time::timeout(self.connect_timeout, opening).await {
            Ok(opened) => opened.map_err(NoAnswer::Connect),
            Err(_) => Err(NoAnswer::ConnectTimedOut),
        }
    }

    /// Gives a connection back after a complete exchange. One that is not reusable is closed.
    pub(crate) fn give_back(&self, member: &Member, mut connection: Connection) {
        if connection.is_idle() {
            let mut idle = self.idle(member).lock();
            if idle.len() < IDLE_PER_WORKER {
                idle.push(Idle { connection, since: Instant::now() });
            }
        }
    }

    /// Closes what idles for a worker.
    pub(super) fn forget(&self, member: &Member) {
        self.idle(member).lock().clear();
    }

    /// Closes what has idled too long, and lets go of what the worker has closed.
    pub(crate) fn prune(&self, members: &[Arc<Member>]) {
        for member in members {
            let mut idle = self.idle(member).lock();
            let fresh = idle.partition_point(|one| one.since.elapsed() >= IDLE_LIMIT);
            idle.drain(..fresh);
            let before = idle.len();
            idle.retain_mut(|one| one.connection.is_idle());
            if idle.len() < before {
                self.closed_by(member);
            }
        }
    }

    /// A connection was closed by the worker before its time.
    fn closed_by(&self, member: &Member) {
        if self.watches {
            member.inquire();
        }
    }

    fn idle<'a>(&self, member: &'a Member) -> &'a Mutex<Vec<Idle>> {
        &member.idle.0[self.thread]
    }
}

impl IdleConnections {
    /// None yet, for this many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Mutex::default()).collect())
    }
}
