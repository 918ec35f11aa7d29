//! The sockets of one rank. A message is `[topic, number, batch]`, numbers count from 0 as eight big-endian bytes. Who has
//! missed some asks the replay socket with the first number wanted, and gets what is left of them and an end mark.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::kv_events::{Shape, encode};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqError, ZmqMessage};

use super::config::KvEventsConfig;
use super::outlet::Outgoing;
use super::ports::{RankPorts, Site};
use crate::fault::Mangle;
use crate::handoff::Life;
use crate::host::listen;

/// How long to wait where the system has no port at the moment.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// After so long without a subscriber to connect to, the log says so.
const PATIENCE: Duration = Duration::from_secs(3);

/// The last batches, with their numbers.
type Ring = Arc<Mutex<VecDeque<(u64, Bytes)>>>;

/// Publishes until the host ends.
pub(super) async fn run(mut ports: RankPorts, mut life: watch::Receiver<Life>) {
    loop {
        let ring = Ring::default();
        let replay = match &mut ports.replay {
            Some(site) => Some(answer_at(site, Arc::clone(&ring), Arc::clone(&ports.config)).await),
            None => None,
        };
        // Where it connects, this takes until somebody is there.
        let mut socket = open::<PubSocket>(&mut ports.events).await;
        let died = publish(&mut socket, &mut ports, &ring).await;
        close(socket, replay).await;
        if !died || life.wait_for(|life| life.is_up).await.is_err() {
            return;
        }
    }
}

/// Publishes what comes. True when the process has died, false when nothing will come any more.
async fn publish(socket: &mut PubSocket, ports: &mut RankPorts, ring: &Ring) -> bool {
    let config = Arc::clone(&ports.config);
    let topic = Bytes::from(config.topic.clone());
    // A message that is told after the one that follows it.
    let mut held = None;
    while let Some(outgoing) = ports.inlet.next().await {
        let Outgoing::Batch { seq, batch, mangle } = outgoing else { return true };
        let payload = Bytes::from(encode(&batch, config.shape));
        let message = [topic.clone(), number(seq as i64), payload.clone()];
        keep(ring, config.buffer_steps, seq, payload);
        match mangle {
            Some(Mangle::Drop) => {}
            Some(Mangle::Swap) if held.is_none() => held = Some(message),
            _ => {
                send(socket, message).await;
                if let Some(held) = held.take() {
                    send(socket, held).await;
                }
            }
        }
    }
    false
}

async fn send(socket: &mut PubSocket, frames: [Bytes; 3]) {
    // A socket without subscribers takes it, too; other failures are one subscriber's, who sees a gap.
    let _ = socket.send(message(frames.into())).await;
}

fn message(frames: Vec<Bytes>) -> ZmqMessage {
    ZmqMessage::try_from(frames).expect("it has frames")
}

fn number(seq: i64) -> Bytes {
    Bytes::copy_from_slice(&seq.to_be_bytes())
}

fn keep(ring: &Ring, most: usize, seq: u64, payload: Bytes) {
    let mut ring = ring.lock();
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back((seq, payload));
}

// === sockets ===

async fn open<S: Socket>(site: &mut Site) -> S {
    let (address, listener) = match site {
        Site::Here(address, listener) => (*address, listener),
        Site::There(endpoint) => return connect_or_tell(endpoint).await,
    };
    loop {
        let mut socket = S::new();
        let opened = match listener.take().map_or_else(|| reopen(address), Ok) {
            Ok(listener) => socket.bind_listener(listener).await.map(|_| ()),
            Err(error) => Err(ZmqError::Network(error)),
        };
        if opened.is_ok() {
            return socket;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

async fn connect_or_tell<S: Socket>(endpoint: &str) -> S {
    let mut connecting = pin!(connect(endpoint));
    if let Ok(socket) = timeout(PATIENCE, &mut connecting).await {
        return socket;
    }
    eprintln!("simworker: KV events: nobody can be connected to at {endpoint}; trying on");
    connecting.await
}

async fn connect<S: Socket>(endpoint: &str) -> S {
    loop {
        let mut socket = S::new();
        // Some failures are waited for here, others are told.
        if socket.connect(endpoint).await.is_ok() {
            return socket;
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

fn reopen(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    listen(address).map_err(io::Error::other)?.into_std()
}

async fn close(mut socket: PubSocket, replay: Option<AbortHandle>) {
    // The ports must be free before the next process takes them; failures show there.
    let _ = socket.unbind_all().await;
    if let Some(replay) = replay {
        replay.abort();
    }
}

/// Answers from the ring, in a task of its own.
async fn answer_at(site: &mut Site, ring: Ring, config: Arc<KvEventsConfig>) -> AbortHandle {
    let mut socket: RouterSocket = open(site).await;
    let task = tokio::spawn(async move {
        while let Ok(request) = socket.recv().await {
            answer(&mut socket, request.into_vec(), &ring, &config).await;
        }
    });
    task.abort_handle()
}

async fn answer(socket: &mut RouterSocket, request: Vec<Bytes>, ring: &Ring, config: &KvEventsConfig) {
    let [client, _, start] = &request[..] else {
        eprintln!("simworker: KV events: a replay request has {} frames instead of 3", request.len());
        return;
    };
    let start = start.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let wanted: Vec<(u64, Bytes)> = ring.lock().iter().filter(|(seq, _)| *seq >= start).cloned().collect();
    let topic = Bytes::from(config.topic.clone());
    let batches = wanted.into_iter().map(|(seq, payload)| (topic.clone(), seq as i64, payload));
    for (topic, seq, payload) in batches.chain([(Bytes::new(), -1, Bytes::new())]) {
        let mut frames = vec![client.clone(), Bytes::new(), topic, number(seq), payload];
        if config.shape == Shape::Array {
            // Older engines did not repeat the topic.
            frames.remove(2);
        }
        if socket.send(message(frames)).await.is_err() {
            return;
        }
    }
}
