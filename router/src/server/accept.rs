//! One listener on one thread: it accepts until the router stops, and then lets the connections finish.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::connection::Client;
use super::seats::{Seat, Seats};
use super::{Context, Surface};
use crate::config::ConnectionLimits;
use crate::stop::{self, Stop};
use crate::tls::Credentials;

/// How often idle upstream connections are looked through: by the thread's listener for clients, as the others share its
/// pool.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a failed accept, which usually means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
        Arc::new(Self { surface, limits: limits.clone(), tls, http, seats })
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
                    tracing::warn!("cannot accept a connection: {error}");
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
