//! Who publishes where.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

use super::outlet::{Inlet, Publisher};
use super::{Endpoint, KvEventsConfig};
use crate::host::{StartError, listen};

/// Attempts to find free ports next to each other.
const ATTEMPTS: usize = 50;

/// Where subscribers find a worker's KV events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEndpoints {
    /// Of each rank.
    pub endpoints: Vec<String>,
    /// Of each rank, if there is a replay.
    pub replay_endpoints: Vec<String>,
}

/// What `/server_info` says.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    pub(crate) host: String,
    pub(crate) port_base: u16,
    pub(crate) replay_port_base: Option<u16>,
    pub(crate) topic: String,
}

/// What a worker publishes through.
pub(crate) struct Opened {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) ranks: Vec<RankPorts>,
    pub(crate) endpoints: KvEndpoints,
}

/// The ports of a rank, and what comes for them.
#[derive(Debug)]
pub(crate) struct RankPorts {
    pub(super) events: Site,
    pub(super) replay: Option<Site>,
    pub(super) inlet: Inlet,
    pub(super) config: Arc<KvEventsConfig>,
}

/// One end of a socket.
#[derive(Debug)]
pub(super) enum Site {
    /// Others connect here. The listener is there at the first time.
    Here(SocketAddr, Option<TcpListener>),
    /// It connects there.
    There(String),
}

/// Opens the ports of the worker at a place.
pub(crate) fn open(config: &KvEventsConfig, index: u32, ranks: u32) -> Result<Opened, StartError> {
    if cfg!(not(feature = "kv-events")) {
        return Err(StartError::NoKvEvents);
    }
    let shift = (index * ranks) as u16;
    let events = if config.binds {
        bind(&config.endpoint, shift, ranks)?
    } else {
        // Whoever listens there has a port for each rank; which worker it is they tell by the events.
        (0..ranks).map(|rank| Site::There(plus(&config.endpoint, rank).to_string())).collect()
    };
    let replay = config.replay_endpoint.as_ref().map(|endpoint| bind(endpoint, shift, ranks)).transpose()?;
    let described = Described {
        host: config.endpoint.host.clone(),
        port_base: base(&events, &config.endpoint),
        replay_port_base: replay
            .as_ref()
            .zip(config.replay_endpoint.as_ref())
            .map(|(sites, at)| base(sites, at)),
        topic: config.topic.clone(),
    };
    let endpoints = KvEndpoints {
        endpoints: events.iter().map(Site::url).collect(),
        replay_endpoints: replay.iter().flatten().map(Site::url).collect(),
    };
    let (publisher, inlets) = Publisher::new(config, ranks, described);
    let config = Arc::new(config.clone());
    let mut replay = replay.into_iter().flatten();
    let ranks = events.into_iter().zip(inlets).map(|(events, inlet)| RankPorts {
        events,
        replay: replay.next(),
        inlet,
        config: Arc::clone(&config),
    });
    Ok(Opened { ranks: ranks.collect(), publisher: Arc::new(publisher), endpoints })
}

impl Site {
    fn url(&self) -> String {
        match self {
            Self::Here(address, _) => format!("tcp://{address}"),
            Self::There(endpoint) => endpoint.clone(),
        }
    }
}

fn base(sites: &[Site], endpoint: &Endpoint) -> u16 {
    match sites.first() {
        Some(Site::Here(address, _)) => address.port(),
        _ => endpoint.port,
    }
}

fn plus(endpoint: &Endpoint, rank: u32) -> Endpoint {
    Endpoint { port: endpoint.port + rank as u16, ..endpoint.clone() }
}

/// A port for each rank, one after the other from the endpoint's on, or from any free one.
fn bind(endpoint: &Endpoint, shift: u16, ranks: u32) -> Result<Vec<Site>, StartError> {
    let unknown = |source| StartError::Resolve { host: endpoint.host.clone(), source };
    let mut found = (endpoint.bind_host(), endpoint.port).to_socket_addrs().map_err(unknown)?;
    let mut first = found.next().ok_or_else(|| unknown(io::ErrorKind::NotFound.into()))?;
    if endpoint.port > 0 {
        first.set_port(endpoint.port + shift);
        return bind_from(first, ranks);
    }
    let mut attempt = bind_from(first, ranks);
    for _ in 1..ATTEMPTS {
        if attempt.is_ok() {
            break;
        }
        attempt = bind_from(first, ranks);
    }
    attempt
}

fn bind_from(first: SocketAddr, ranks: u32) -> Result<Vec<Site>, StartError> {
    let mut sites: Vec<Site> = Vec::new();
    let mut address = first;
    for _ in 0..ranks {
        let listener =
            listen(address).and_then(|open| Ok(open.into_std()?)).map_err(StartError::of_kv_events)?;
        address = listener.local_addr()?;
        sites.push(Site::Here(address, Some(listener)));
        address.set_port(address.port().wrapping_add(1).max(1));
    }
    Ok(sites)
}
