//! A process with workers: their ports, the thread that serves HTTP and the pacer.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;

use simworker_core::ConfigError;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::clock::ScaledClock;
use crate::config::HostConfig;
use crate::connection::Connections;
use crate::http;
use crate::pacer::{Alarm, Pacer};
use crate::worker::Worker;

/// Connections that may wait to be accepted: a burst of clients is not refused.
const BACKLOG: u32 = 4096;

/// Why a host does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// No engine can be made of the configuration.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The name of the address is unknown, or it is no address.
    #[error("cannot resolve the host {host}: {source}; give --host an address such as 127.0.0.1 or 0.0.0.0")]
    Resolve {
        /// What was given.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// The port cannot be had.
    #[error("cannot listen on {address}: {source}; {}", remedy(.source.kind()))]
    Listen {
        /// The address with its port.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The process is out of threads or files.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// What helps when a port cannot be had.
fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrNotAvailable => "give --host an address of this machine",
        io::ErrorKind::PermissionDenied => "choose a --port above 1023",
        _ => "choose another --port, or --port 0 for any free one",
    }
}

/// Workers that serve. Dropping it ends them, with every connection.
#[derive(Debug)]
pub struct Host {
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    server: Option<JoinHandle<()>>,
    // Ends after the server: fields are dropped in order, and tickets of cut connections still abort.
    _pacer: Pacer,
}

impl Host {
    /// Binds all ports, then starts to serve.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub fn start(config: &HostConfig) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let listeners = {
            let _inside = runtime.enter();
            bind(config)?
        };
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let clock = ScaledClock::start(config.speed);
        let alarm = Arc::new(Alarm::default());
        let worker =
            |index| Worker::new(config.worker.clone(), index, clock, Arc::clone(&alarm)).map(Arc::new);
        let workers = (0..config.workers).map(worker).collect::<Result<Vec<_>, _>>()?;
        let pacer = Pacer::start(clock, alarm, workers.clone())?;
        let (stop, stopped) = oneshot::channel();
        let server = std::thread::Builder::new()
            .name("http".into())
            .spawn(move || serve(&runtime, listeners, workers, stopped))?;
        Ok(Self { addresses, stop: Some(stop), server: Some(server), _pacer: pacer })
    }

    /// Where the workers listen, in order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The same as URLs.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        self.addresses.iter().map(|address| format!("http://{address}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The receiver is gone only if the thread is.
            let _ = stop.send(());
        }
        if let Some(server) = self.server.take() {
            // A panic of the thread has been reported by its own hook.
            let _ = server.join();
        }
    }
}

fn bind(config: &HostConfig) -> Result<Vec<TcpListener>, StartError> {
    let resolve = |source| StartError::Resolve { host: config.host.clone(), source };
    let mut found = (config.host.as_str(), config.port).to_socket_addrs().map_err(resolve)?;
    let first = found.next().ok_or_else(|| resolve(io::ErrorKind::NotFound.into()))?;
    (0..config.workers).map(|index| listen(nth(first, index))).collect()
}

/// The address of a worker: ports count up from the first, unless any free one will do.
fn nth(first: SocketAddr, index: u32) -> SocketAddr {
    let port = if first.port() == 0 { 0 } else { u32::from(first.port()) + index };
    SocketAddr::new(first.ip(), u16::try_from(port).unwrap_or(u16::MAX))
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|source| StartError::Listen { address, source })
}

fn serve(
    runtime: &Runtime,
    listeners: Vec<TcpListener>,
    workers: Vec<Arc<Worker>>,
    stopped: oneshot::Receiver<()>,
) {
    for (listener, worker) in listeners.into_iter().zip(workers) {
        runtime.spawn(async move { axum::serve(Connections(listener), http::routes(worker)).await });
    }
    // Either the host was dropped or it asked: in both cases this is the end.
    let _ = runtime.block_on(stopped);
}
