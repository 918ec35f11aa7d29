//! Runs what an engine needs to have done elsewhere, on the runtime that serves HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Task;
use super::bootstrap::room_rank;
use super::call::{Address, call};
use super::fetch::fetch;
use super::peers::Peers;
use super::ranks::near;
use crate::worker::Worker;

/// How often a rank tries to tell its bootstrap server about a room, and in what distance.
const TRIES: u32 = 10;
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Runs the tasks of a worker, all at the same time. `bootstrap` is its own bootstrap server, if it has one.
pub(crate) async fn run(
    worker: Arc<Worker>,
    mut tasks: mpsc::UnboundedReceiver<Task>,
    bootstrap: Option<SocketAddr>,
    speed: f64,
) {
    let peers = Peers::new(worker.life(), speed);
    while let Some(task) = tasks.recv().await {
        match (task, bootstrap) {
            (Task::Fetch(wish), _) => drop(tokio::spawn(fetch(Arc::clone(&worker), peers.clone(), wish))),
            (Task::TellRank { room, rank }, Some(server)) => drop(tokio::spawn(tell(server, room, rank))),
            (Task::TellRank { .. }, None) => {}
        }
    }
}

async fn tell(server: SocketAddr, room: u64, rank: u32) {
    let server = Address { host: near(server.ip()).to_string(), port: server.port() };
    for _ in 0..TRIES {
        let told = call(&server, Method::POST, "/register_dp_rank", room_rank(room, rank)).await;
        if told.is_ok_and(|answer| answer.status == StatusCode::OK) {
            return;
        }
        sleep(AGAIN_AFTER).await;
    }
}
