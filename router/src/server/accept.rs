//! One listener on one thread: it accepts until the router stops, and then lets the connections finish.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::Client;
use super::seats::{Seat, Seats};
use super::{Context, Surface};
use crate::config::ConnectionLimits;
use crate::limits;
use crate::stop::{self, Stop};
use crate::tls::Credentials;

/// How often idle upstream connections are looked through: by the thread's listener for clients, as the others share its
/// pool.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a failed accept, which usually means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often it is told that connections cannot be accepted.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// Bytes of a head, on average, for which there may be a field. Room for all of them is made with each request, so there
/// is not room for a field in every four bytes.
const BYTES_PER_FIELD: usize = 32;

/// The fields that every head may have.
const MIN_FIELDS: usize = 100;

/// What hyper takes a connection's buffers to be by default.
const BUFFER_BYTES: usize = 8192 + 4096 * 100;

/// How those are received who come by one listener.
pub(crate) struct Door {
    pub(super) surface: Surface,
    pub(super) limits: ConnectionLimits,
    pub(super) tls: Option<Arc<Credentials>>,
    pub(super) http: http1::Builder,
    seats: Arc<Seats>,
    refusals: Refusals,
}

impl Door {
    pub(super) fn new(
        surface: Surface,
        limits: &ConnectionLimits,
        seats: Arc<Seats>,
        tls: Option<Arc<Credentials>>,
    ) -> Arc<Self> {
        let bytes = limits.max_header_bytes;
        let mut http = http1::Builder::new();
        // The time that a head may take is kept by the connection itself, apart from the time between two requests.
        http.header_read_timeout(None)
            .max_header_size(bytes)
            .max_headers((bytes / BYTES_PER_FIELD).max(MIN_FIELDS))
            .max_buf_size(bytes.max(BUFFER_BYTES));
        Arc::new(Self { surface, limits: limits.clone(), tls, http, seats, refusals: Refusals::default() })
    }
}

/// Accepts until told to stop, then waits for the connections, which know when they have to end.
///
/// # Errors
/// The operating system refuses to wait for connections.
pub(super) async fn serve(
    listener: TcpListener,
    door: Arc<Door>,
    context: Arc<Context>,
    stop: watch::Receiver<Stop>,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    let mut prune = tokio::time::interval(PRUNE_INTERVAL);
    let mut stopping = stop.clone();
    let admit = |connections: &mut JoinSet<()>, stream, seat| {
        let client = Client::new(stream, seat, Arc::clone(&door), Arc::clone(&context), stop.clone());
        match &door.tls {
            None => connections.spawn(client.plain()),
            Some(tls) => connections.spawn(client.secured(tls.acceptor())),
        };
    };
    loop {
        tokio::select! {
            accepted = next(&listener, &door.seats) => match accepted {
                Ok((stream, seat)) => admit(&mut connections, stream, seat),
                Err(error) => {
                    door.refusals.note(&error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = prune.tick(), if door.surface == Surface::Traffic => context.pool.prune(&context.shared.roster()),
            () = stop::reached(&mut stopping, Stop::Drain) => break,
        }
    }
    for (stream, seat) in last_ones(listener, &door.seats) {
        admit(&mut connections, stream, seat);
    }
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Connections that could not be accepted, on all threads together.
#[derive(Debug, Default)]
struct Refusals(Mutex<Untold>);

#[derive(Debug, Default)]
struct Untold {
    count: u64,
    last_told: Option<Instant>,
}

impl Refusals {
    /// One more. While there are many, the log is told now and then.
    fn note(&self, error: &std::io::Error) {
        if let Some(count) = self.0.lock().add(Instant::now()) {
            let too_many = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
            let remedy = if too_many.contains(&error.raw_os_error()) { limits::REMEDY } else { "" };
            let colon = if remedy.is_empty() { "" } else { ": " };
            tracing::warn!(count, "cannot accept connections: {error}{colon}{remedy}");
        }
    }
}

impl Untold {
    /// One more at this moment; how many are to be told, if it is time.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let is_due = self.last_told.is_none_or(|told| now.duration_since(told) >= TELL_INTERVAL);
        is_due.then(|| {
            self.last_told = Some(now);
            std::mem::take(&mut self.count)
        })
    }
}

/// The next client, once there is a seat for it.
async fn next(listener: &tokio::net::TcpListener, seats: &Arc<Seats>) -> std::io::Result<(TcpStream, Seat)> {
    let free = seats.wait().await;
    let (stream, _) = listener.accept().await?;
    Ok((stream, seats.take(free)))
}

/// Those who had connected before the listener was closed: closing it resets who is not accepted.
fn last_ones(listener: tokio::net::TcpListener, seats: &Arc<Seats>) -> Vec<(TcpStream, Seat)> {
    let mut clients = Vec::new();
    let Ok(listener) = listener.into_std() else { return clients };
    while let Some(free) = seats.free()
        && let Ok((stream, _)) = listener.accept()
    {
        let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
        clients.extend(stream.ok().map(|stream| (stream, seats.take(free))));
    }
    clients
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_are_few_lines() {
        let mut untold = Untold::default();
        let begin = Instant::now();
        let told = |untold: &mut Untold, at_ms: u64| untold.add(begin + Duration::from_millis(at_ms));
        assert_eq!(told(&mut untold, 0), Some(1));
        for at_ms in (50..10_000).step_by(50) {
            assert_eq!(told(&mut untold, at_ms), None, "{at_ms}");
        }
        assert_eq!(told(&mut untold, 10_000), Some(200));
        assert_eq!(told(&mut untold, 19_999), None);
        assert_eq!(told(&mut untold, 60_000), Some(2));
    }
}
