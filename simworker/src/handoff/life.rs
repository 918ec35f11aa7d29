//! Whether a worker's process is there, and servers that go down with it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use protocol::tokenizer::mix;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::connection::Connection;
use crate::host::listen;

/// How long to wait where the system has no file or no port at the moment.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A worker's process, as its other servers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    /// Tells its starts apart, and those of any other process that has had its ports: counts up from an arbitrary
    /// number.
    pub(crate) boot: u64,
    /// Whether it is there.
    pub(crate) is_up: bool,
}

impl Life {
    /// The first start. Different seeds make different processes.
    pub(crate) fn first(seed: u64) -> Self {
        Self { boot: mix(seed), is_up: true }
    }

    /// The next start.
    pub(crate) fn next(self) -> Self {
        Self { boot: self.boot.wrapping_add(1), is_up: true }
    }
}

/// Serves as long as the process lives: connections are reset when it dies, and nobody listens until it is back.
pub(crate) async fn serve(listener: TcpListener, routes: Router, mut life: watch::Receiver<Life>) {
    // The address of a bound socket.
    let Ok(address) = listener.local_addr() else { return };
    let mut listener = Some(listener);
    loop {
        if !life.borrow_and_update().is_up {
            listener = None;
            if life.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            listener = reopen(address).await;
            continue;
        };
        tokio::select! {
            changed = life.changed() => if changed.is_err() { return },
            accepted = open.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(converse(stream, routes.clone(), life.clone()))),
                Err(_) => sleep(AGAIN_AFTER).await,
            },
        }
    }
}

async fn reopen(address: SocketAddr) -> Option<TcpListener> {
    let opened = listen(address).ok();
    if opened.is_none() {
        sleep(AGAIN_AFTER).await;
    }
    opened
}

async fn converse(stream: TcpStream, routes: Router, mut life: watch::Receiver<Life>) {
    let stream = Connection::new(stream);
    stream.reset_on_drop();
    let service = TowerToHyperService::new(routes);
    tokio::select! {
        // However it ended, there is nobody to tell.
        _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
        _ = life.changed() => {}
    }
}
