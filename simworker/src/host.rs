//! A process with workers: their ports, the thread that serves HTTP and the pacer.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use simworker_core::ConfigError;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

use crate::clock::ScaledClock;
use crate::config::{HostConfig, Mode, WatchConfig};
use crate::connection::Connections;
use crate::fault::{Fault, Faults};
use crate::http;
use crate::instant::CannedWorker;
use crate::pacer::{Alarm, Pacer};
use crate::watch::{self, Station, Subject};
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
    /// A fault is for a worker that there is not.
    #[error("--fault is for worker {index}, but there are {workers} workers, counted from 0")]
    NoSuchWorker {
        /// The worker that was named.
        index: u32,
        /// How many there are.
        workers: u32,
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
    control: Option<SocketAddr>,
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
        check_faults(config)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (listeners, control) = {
            let _inside = runtime.enter();
            (bind(config)?, bind_control(&config.watch)?)
        };
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let clock = ScaledClock::start(config.speed);
        let alarm = Arc::new(Alarm::default());
        let worker =
            |index| Worker::new(config.worker.clone(), index, clock, Arc::clone(&alarm)).map(Arc::new);
        let workers = (0..config.workers).map(worker).collect::<Result<Vec<_>, _>>()?;
        let pacer = Pacer::start(clock, alarm, workers.clone())?;
        let (stop, stopped) = oneshot::channel();
        let control_address = control.as_ref().map(TcpListener::local_addr).transpose()?;
        let served = Served { listeners, workers, control, mode: config.mode, watch: config.watch.clone() };
        let server = std::thread::Builder::new().name("http".into()).spawn(move || {
            runtime.block_on(async move {
                served.spawn();
                // Either the host was dropped or it asked: in both cases this is the end.
                let _ = stopped.await;
            });
        })?;
        Ok(Self {
            addresses,
            control: control_address,
            stop: Some(stop),
            server: Some(server),
            _pacer: pacer,
        })
    }

    /// Where the workers listen, in order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the control API listens, if it does.
    #[must_use]
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// The workers' addresses as URLs.
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

fn check_faults(config: &HostConfig) -> Result<(), StartError> {
    let workers = config.workers;
    let named = config.watch.faults.iter().filter_map(|assigned| assigned.worker);
    match named.into_iter().find(|index| *index >= workers) {
        Some(index) => Err(StartError::NoSuchWorker { index, workers }),
        None => Ok(()),
    }
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, StartError> {
    let unknown = |source| StartError::Resolve { host: host.to_owned(), source };
    let mut found = (host, port).to_socket_addrs().map_err(unknown)?;
    found.next().ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))
}

fn bind(config: &HostConfig) -> Result<Vec<TcpListener>, StartError> {
    let first = resolve(&config.host, config.port)?;
    (0..config.workers).map(|index| listen(nth(first, index))).collect()
}

fn bind_control(watch: &WatchConfig) -> Result<Option<TcpListener>, StartError> {
    watch.control.as_ref().map(|(host, port)| listen(resolve(host, *port)?)).transpose()
}

/// The address of a worker: ports count up from the first, unless any free one will do.
fn nth(first: SocketAddr, index: u32) -> SocketAddr {
    let port = if first.port() == 0 { 0 } else { u32::from(first.port()) + index };
    SocketAddr::new(first.ip(), u16::try_from(port).unwrap_or(u16::MAX))
}

/// Opens a port.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    open().map_err(|source| StartError::Listen { address, source })
}

/// What the thread serves.
struct Served {
    listeners: Vec<TcpListener>,
    workers: Vec<Arc<Worker>>,
    control: Option<TcpListener>,
    mode: Mode,
    watch: WatchConfig,
}

impl Served {
    /// Starts to serve it on the present runtime.
    fn spawn(self) {
        let Self { listeners, workers, control, mode, watch } = self;
        let mut stations = Vec::new();
        for (index, (listener, worker)) in (0..).zip(listeners.into_iter().zip(workers)) {
            let canned = canned(mode, index, &worker);
            if watch.is_off() {
                match canned {
                    Some(canned) => drop(tokio::spawn(answer_at_once(listener, canned))),
                    None => drop(tokio::spawn(async move {
                        axum::serve(Connections(listener), http::routes(worker)).await
                    })),
                }
                continue;
            }
            // The address of a bound socket.
            let Ok(address) = listener.local_addr() else { continue };
            let subject = canned.map_or_else(
                || Subject::Engine(TowerToHyperService::new(http::routes(Arc::clone(&worker)))),
                Subject::Canned,
            );
            let faults = Faults::new(faults_of(&watch, index), watch.seed ^ u64::from(index));
            let station = Arc::new(Station::new(address, worker, subject, faults, control.is_some()));
            tokio::spawn(watch::attend(Arc::clone(&station), listener));
            stations.push(station);
        }
        if let Some(control) = control {
            let routes = watch::control_routes(stations);
            tokio::spawn(async move { axum::serve(control, routes).await });
        }
    }
}

fn canned(mode: Mode, index: u32, worker: &Arc<Worker>) -> Option<Arc<CannedWorker>> {
    let Mode::Instant { interval_ns } = mode else { return None };
    let (model, interval) = (&worker.config.served_model_name, Duration::from_nanos(interval_ns));
    let routes = http::routes(Arc::clone(worker));
    Some(Arc::new(CannedWorker::new(model, index, worker.started(), interval, routes)))
}

fn faults_of(watch: &WatchConfig, index: u32) -> Vec<Fault> {
    let of = watch.faults.iter().filter(|assigned| assigned.worker.is_none_or(|worker| worker == index));
    of.map(|assigned| assigned.fault.clone()).collect()
}

/// Serves canned replies with as little as possible in between.
async fn answer_at_once(listener: TcpListener, canned: Arc<CannedWorker>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer_connection(stream, Arc::clone(&canned)))),
            // Out of files: connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn answer_connection(stream: TcpStream, canned: Arc<CannedWorker>) {
    // A connection that refuses the option still works.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let canned = &canned;
        async move { Ok::<_, Infallible>(canned.answer(request).await) }
    });
    // Answers are short: one buffer and one write cost less than a list of buffers.
    let served = http1::Builder::new().writev(false).serve_connection(TokioIo::new(stream), service);
    // However it ended, there is nobody to tell.
    let _ = served.await;
}
