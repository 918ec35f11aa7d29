//! The ports of all workers.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use simworker_core::EngineRole;
use tokio::net::{TcpListener, TcpSocket};

use super::StartError;
use crate::config::{BOOTSTRAP_PORT, HostConfig, WatchConfig, WorkerConfig};

/// Connections that may wait to be accepted: a burst of clients is not refused.
const BACKLOG: u32 = 4096;

fn resolve(host: &str, port: u16) -> Result<SocketAddr, StartError> {
    let unknown = |source| StartError::Resolve { host: host.to_owned(), source };
    let mut found = (host, port).to_socket_addrs().map_err(unknown)?;
    found.next().ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))
}

/// The ports of a worker.
pub(super) struct Ports {
    pub(super) http: TcpListener,
    /// Of a prefill worker.
    pub(super) prefill: Option<PrefillPorts>,
}

pub(super) struct PrefillPorts {
    pub(super) bootstrap: TcpListener,
    /// One for each rank.
    pub(super) ranks: Vec<TcpListener>,
}

impl Ports {
    pub(super) fn bootstrap_port(&self) -> io::Result<Option<u16>> {
        self.prefill.as_ref().map(|ports| Ok(ports.bootstrap.local_addr()?.port())).transpose()
    }
}

pub(super) fn bind(config: &HostConfig) -> Result<Vec<Ports>, StartError> {
    let first = resolve(&config.host, config.port)?;
    let mut bootstraps = 0..;
    let ports = (0..config.workers).map(|index| {
        let http = listen(nth(first, index))?;
        let is_prefill = config.roles.of(index, config.worker.engine.role) == EngineRole::Prefill;
        let place = if is_prefill { bootstraps.next() } else { None };
        let prefill = place.map(|place| bind_prefill(first, &config.worker, place)).transpose()?;
        Ok(Ports { http, prefill })
    });
    ports.collect()
}

/// The ports of the prefill worker at a place among the prefill workers.
fn bind_prefill(first: SocketAddr, config: &WorkerConfig, place: u32) -> Result<PrefillPorts, StartError> {
    let at = |port| SocketAddr::new(first.ip(), port);
    let bootstrap = listen(nth(at(config.bootstrap_port), place)).map_err(StartError::of_bootstrap)?;
    let ranks = (0..config.dp_size).map(|_| listen(at(0))).collect::<Result<_, _>>()?;
    Ok(PrefillPorts { bootstrap, ranks })
}

/// One worker of the host: its role, and the bootstrap port that it has.
pub(super) fn configure(
    config: &WorkerConfig,
    role: EngineRole,
    bootstrap_port: Option<u16>,
) -> WorkerConfig {
    let mut config = config.clone();
    config.engine.role = role;
    config.engine.kv_events = config.kv_events.as_ref().map(|events| events.naming);
    let or_usual = if config.bootstrap_port == 0 { BOOTSTRAP_PORT } else { config.bootstrap_port };
    config.bootstrap_port = bootstrap_port.unwrap_or(or_usual);
    config
}

pub(super) fn bind_control(watch: &WatchConfig) -> Result<Option<TcpListener>, StartError> {
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
