//! What is served on the ports of a host.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::service::service_fn;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::ports::{Ports, PrefillPorts};
use super::protocols::serve_connection;
use crate::clock::ScaledClock;
use crate::config::{Http2Config, Mode, WatchConfig};
use crate::connection::Connection;
use crate::fault::{Fault, Faults};
use crate::handoff::{self, RankPort, Task};
use crate::http;
use crate::instant::CannedWorker;
use crate::kv;
use crate::kv::ports::RankPorts;
use crate::watch::{self, Station, Subject};
use crate::worker::Worker;

/// What the thread serves.
pub(super) struct Served {
    pub(super) members: Vec<Member>,
    pub(super) control: Option<TcpListener>,
    pub(super) mode: Mode,
    pub(super) watch: WatchConfig,
    pub(super) clock: ScaledClock,
}

/// One worker with its ports.
pub(super) struct Member {
    pub(super) ports: Ports,
    pub(super) worker: Arc<Worker>,
    pub(super) tasks: mpsc::UnboundedReceiver<Task>,
    /// What the ranks publish KV events through.
    pub(super) kv: Vec<RankPorts>,
}

impl Served {
    /// Starts to serve it on the present runtime.
    pub(super) fn spawn(self) {
        let Self { members, control, mode, watch, clock } = self;
        let mut stations = Vec::new();
        for (index, Member { ports: Ports { http, prefill }, worker, tasks, kv }) in (0..).zip(members) {
            // The address of a bound socket.
            let Ok(address) = http.local_addr() else { continue };
            kv::spawn(kv, &worker.life());
            let station = serve_http(http, address, &worker, index, mode, &watch, control.is_some());
            let bootstrap = prefill.and_then(|ports| {
                let at = ports.bootstrap.local_addr().ok()?;
                serve_prefill(ports, at, address, &worker, station.as_ref(), clock);
                Some(at)
            });
            tokio::spawn(handoff::run_tasks(worker, tasks, bootstrap, clock.speed()));
            stations.extend(station);
        }
        if let Some(control) = control {
            let routes = watch::control_routes(stations);
            tokio::spawn(async move { axum::serve(control, routes).await });
        }
    }
}

/// Serves clients. A worker that something is done to has a station.
fn serve_http(
    listener: TcpListener,
    address: SocketAddr,
    worker: &Arc<Worker>,
    index: u32,
    mode: Mode,
    watch: &WatchConfig,
    with_log: bool,
) -> Option<Arc<Station>> {
    let canned = canned(mode, index, worker);
    let routes = http::routes(Arc::clone(worker));
    if watch.is_off() {
        match canned {
            Some(canned) => drop(tokio::spawn(answer_at_once(listener, canned, worker.config.wire.http2))),
            None => drop(tokio::spawn(answer_by_engine(listener, routes, worker.config.wire.http2))),
        }
        return None;
    }
    let subject = canned.map_or_else(|| Subject::Engine(TowerToHyperService::new(routes)), Subject::Canned);
    let faults = Faults::new(faults_of(watch, index), watch.seed ^ u64::from(index));
    let station = Arc::new(Station::new(address, Arc::clone(worker), subject, faults, with_log));
    tokio::spawn(watch::attend(Arc::clone(&station), listener));
    Some(station)
}

/// Serves decode workers: the bootstrap server at `bootstrap`, and each rank's port.
fn serve_prefill(
    ports: PrefillPorts,
    bootstrap: SocketAddr,
    http: SocketAddr,
    worker: &Arc<Worker>,
    station: Option<&Arc<Station>>,
    clock: ScaledClock,
) {
    let routes = handoff::bootstrap_routes(worker.life(), clock);
    tokio::spawn(handoff::serve(ports.bootstrap, routes, worker.life()));
    let mut addresses = Vec::new();
    for (rank, listener) in (0..).zip(ports.ranks) {
        let Ok(address) = listener.local_addr() else { continue };
        addresses.push(address);
        let port = RankPort { worker: Arc::clone(worker), rank, station: station.cloned() };
        tokio::spawn(handoff::serve(listener, handoff::rank_routes(port), worker.life()));
    }
    tokio::spawn(handoff::register(Arc::clone(worker), bootstrap, addresses, http.port()));
}

fn canned(mode: Mode, index: u32, worker: &Arc<Worker>) -> Option<Arc<CannedWorker>> {
    let Mode::Instant { interval_ns } = mode else { return None };
    let (model, interval) = (&worker.config.served_model_name, Duration::from_nanos(interval_ns));
    let routes = http::routes(Arc::clone(worker));
    let wire = worker.config.wire.clone();
    Some(Arc::new(CannedWorker::new(model, index, worker.started(), interval, wire, routes)))
}

fn faults_of(watch: &WatchConfig, index: u32) -> Vec<Fault> {
    let of = watch.faults.iter().filter(|assigned| assigned.worker.is_none_or(|worker| worker == index));
    of.map(|assigned| assigned.fault.clone()).collect()
}

/// Serves an engine's routes.
async fn answer_by_engine(listener: TcpListener, routes: Router, http2: Option<Http2Config>) {
    accept(listener, move |stream| {
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(serve_connection(Connection::new(stream), service, http2, pending()));
    })
    .await;
}

/// Serves canned replies with as little as possible in between.
async fn answer_at_once(listener: TcpListener, canned: Arc<CannedWorker>, http2: Option<Http2Config>) {
    accept(listener, move |stream| {
        // A connection that refuses the option still works.
        let _ = stream.set_nodelay(true);
        let canned = Arc::clone(&canned);
        let service = service_fn(move |request| {
            let canned = Arc::clone(&canned);
            async move { Ok::<_, Infallible>(canned.answer(request).await) }
        });
        tokio::spawn(serve_connection(stream, service, http2, pending()));
    })
    .await;
}

/// Accepts connections for ever.
async fn accept(listener: TcpListener, serve: impl Fn(TcpStream)) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => serve(stream),
            // Out of files: connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
