//! A process with workers: their ports, the thread that serves HTTP and the pacer.

mod ports;
mod protocols;
mod serve;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use simworker_core::{ConfigError, EngineRole};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::clock::ScaledClock;
use crate::config::{HostConfig, KvEndpoints, Mode};
use crate::fault::Assigned;
use crate::kv::{self, Opened};
use crate::lag::Teller;
use crate::pacer::{Alarm, Pacer};
use crate::worker::Worker;
pub(crate) use ports::listen;
use ports::{Ports, bind, bind_control, configure};
pub(crate) use protocols::serve_connection;
use serve::{Member, Served};

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
    /// The port of a bootstrap server cannot be had.
    #[error(
        "cannot listen on {address} for the bootstrap server: {source}; choose another \
         --disaggregation-bootstrap-port, or 0 for any free one"
    )]
    ListenBootstrap {
        /// The address with its port.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The port of KV events cannot be had.
    #[error(
        "cannot listen on {address} for KV events: {source}; choose another endpoint in --kv-events-config, or port 0 \
         for any free one"
    )]
    ListenKvEvents {
        /// The address with its port.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// This build cannot publish.
    #[error("--kv-events-config needs a simworker that is built with the feature kv-events")]
    NoKvEvents,
    /// A fault is for KV events, which nobody publishes.
    #[error("--fault kv-events is for workers that publish KV events; choose --kv-events-config")]
    NothingPublished,
    /// A fault is for a worker that there is not.
    #[error("--fault is for worker {index}, but there are {workers} workers, counted from 0")]
    NoSuchWorker {
        /// The worker that was named.
        index: u32,
        /// How many there are.
        workers: u32,
    },
    /// A fault is for the hand-off of KV, which none of the workers that it is for sends.
    #[error(
        "--fault {key} is for workers that send KV, and {}; give it to a prefill worker, or choose \
         --prefill-workers or --disaggregation-mode prefill",
        without_kv(*.worker)
    )]
    NoKvToSend {
        /// The fault.
        key: &'static str,
        /// The worker that was named; without one the fault is for all of them.
        worker: Option<u32>,
    },
    /// A fault is for engines, and there are none.
    #[error("--fault {key} is for engines, which --instant does without; leave one of them out")]
    NoEngine {
        /// The fault.
        key: &'static str,
    },
    /// The process is out of threads or files.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl StartError {
    fn of_bootstrap(self) -> Self {
        match self {
            Self::Listen { address, source } => Self::ListenBootstrap { address, source },
            other => other,
        }
    }

    pub(crate) fn of_kv_events(self) -> Self {
        match self {
            Self::Listen { address, source } => Self::ListenKvEvents { address, source },
            other => other,
        }
    }
}

/// Who sends no KV.
fn without_kv(worker: Option<u32>) -> String {
    worker.map_or_else(|| "there are none".to_owned(), |index| format!("worker {index} is none of them"))
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
    roles: Vec<EngineRole>,
    bootstrap_ports: Vec<Option<u16>>,
    control: Option<SocketAddr>,
    kv_events: Vec<KvEndpoints>,
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
        let (ports, control) = {
            let _inside = runtime.enter();
            (bind(config)?, bind_control(&config.watch)?)
        };
        let addresses = ports.iter().map(|ports| ports.http.local_addr()).collect::<io::Result<_>>()?;
        let bootstrap_ports = ports.iter().map(Ports::bootstrap_port).collect::<io::Result<Vec<_>>>()?;
        let roles = (0..config.workers).map(|index| config.roles.of(index, config.worker.engine.role));
        let roles: Vec<EngineRole> = roles.collect();
        let clock = ScaledClock::start(config.speed);
        let alarm = Arc::new(Alarm::default());
        let teller = Arc::new(Teller::start(clock, io::stderr())?);
        let (mut served, mut kv_events) = (Vec::new(), Vec::new());
        for (index, ((ports, role), port)) in (0..).zip(ports.into_iter().zip(&roles).zip(&bootstrap_ports)) {
            // Bounded by the requests: each has one task at most, which is begun as soon as it is there.
            let (tasks, todo) = mpsc::unbounded_channel();
            let config = configure(&config.worker, *role, *port);
            let opened = {
                let _inside = runtime.enter();
                config.kv_events.as_ref().map(|events| kv::open(events, index, config.dp_size)).transpose()?
            };
            let (publisher, kv) = match opened {
                None => (None, Vec::new()),
                Some(Opened { publisher, ranks, endpoints }) => {
                    kv_events.push(endpoints);
                    (Some(publisher), ranks)
                }
            };
            let worker =
                Arc::new(Worker::new(config, index, clock, Arc::clone(&alarm), &teller, tasks, publisher)?);
            served.push(Member { ports, worker, tasks: todo, kv });
        }
        let workers = served.iter().map(|member| Arc::clone(&member.worker)).collect();
        let pacer = Pacer::start(clock, alarm, workers)?;
        let (stop, stopped) = oneshot::channel();
        let control_address = control.as_ref().map(TcpListener::local_addr).transpose()?;
        let served =
            Served { members: served, control, mode: config.mode, watch: config.watch.clone(), clock };
        let server = std::thread::Builder::new().name("http".into()).spawn(move || {
            runtime.block_on(async move {
                served.spawn();
                // Either the host was dropped or it asked: in both cases this is the end.
                let _ = stopped.await;
            });
        })?;
        Ok(Self {
            addresses,
            roles,
            bootstrap_ports,
            control: control_address,
            kv_events,
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

    /// What the workers do, in order.
    #[must_use]
    pub fn roles(&self) -> &[EngineRole] {
        &self.roles
    }

    /// Whether any worker does only a part of the work on requests.
    #[must_use]
    pub fn is_disaggregated(&self) -> bool {
        self.roles.iter().any(|role| *role != EngineRole::Whole)
    }

    /// The ports of the workers' bootstrap servers, in order; only prefill workers have one.
    #[must_use]
    pub fn bootstrap_ports(&self) -> &[Option<u16>] {
        &self.bootstrap_ports
    }

    /// Where the control API listens, if it does.
    #[must_use]
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Where the workers publish KV events, in order; empty if they do not.
    #[must_use]
    pub fn kv_events(&self) -> &[KvEndpoints] {
        &self.kv_events
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

/// Each fault must have a worker that it can happen to.
fn check_faults(config: &HostConfig) -> Result<(), StartError> {
    let workers = config.workers;
    let is_prefill = |index: u32| config.roles.of(index, config.worker.engine.role) == EngineRole::Prefill;
    for Assigned { worker, fault } in &config.watch.faults {
        if let Some(index) = worker.filter(|index| *index >= workers) {
            return Err(StartError::NoSuchWorker { index, workers });
        }
        if fault.is_of_engines() && config.mode != Mode::Engine {
            return Err(StartError::NoEngine { key: fault.key() });
        }
        if fault.is_of_kv_events() && config.worker.kv_events.is_none() {
            return Err(StartError::NothingPublished);
        }
        let sends = worker.map_or_else(|| (0..workers).any(is_prefill), is_prefill);
        if fault.is_of_handoffs() && !sends {
            return Err(StartError::NoKvToSend { key: fault.key(), worker: *worker });
        }
    }
    Ok(())
}
