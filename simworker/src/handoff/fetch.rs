//! The decode side: the KV of one request, from the handshake to its arrival.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use simworker_core::HandoffFault;
use tokio::sync::watch;
use tokio::time::sleep;

use super::bootstrap::Rooms;
use super::call::{Address, call, call_and_wait};
use super::peers::{Known, PeerState, Peers, real};
use super::ranks::{KvAnswer, KvRequest};
use super::{Fetch, json_text};
use crate::worker::Worker;

/// How often a bootstrap server is asked for the rank of a room that it does not know, in engine time.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Gets the KV of a request and tells the engine what came of it, unless the request ends first.
pub(super) async fn fetch(worker: Arc<Worker>, peers: Peers, fetch: Fetch) {
    let mut peer = peers.get(&fetch.from);
    let mut lost = peer.clone();
    let mut wanted = fetch.wanted.clone();
    let outcome = tokio::select! {
        outcome = transfer(&peers, &fetch, &mut peer) => outcome,
        // Only signs of life tell that the prefill worker is gone.
        _ = lost.wait_for(|state| matches!(state, PeerState::Lost)) => Err(HandoffFault::PeerLost),
        () = ended(&mut wanted) => return,
    };
    worker.kv_outcome(fetch.room, outcome);
}

/// Ready when the request has ended.
async fn ended(wanted: &mut watch::Receiver<Option<u32>>) {
    while wanted.changed().await.is_ok() {}
}

/// The number of tokens that the prefill side found in its cache.
async fn transfer(
    peers: &Peers,
    fetch: &Fetch,
    peer: &mut watch::Receiver<PeerState>,
) -> Result<u32, HandoffFault> {
    let known = loop {
        match &*peer.borrow_and_update() {
            PeerState::Known(known) => break Arc::clone(known),
            PeerState::Lost => return Err(HandoffFault::PeerLost),
            PeerState::Asked => {}
        }
        if peer.changed().await.is_err() {
            return Err(HandoffFault::PeerLost);
        }
    };
    let rank = rank_of(peers, fetch, &known).await;
    let Some(door) = known.rank(&fetch.from, rank).await else { return Err(HandoffFault::PeerLost) };
    let mut wanted = fetch.wanted.clone();
    let tokens = wanted.wait_for(Option::is_some).await.ok().and_then(|tokens| *tokens);
    // Without tokens the request has ended, which the caller sees too.
    let Some(tokens) = tokens else { return pending().await };
    let door = Address { host: door.rank_ip, port: door.rank_port };
    let request = json_text(&KvRequest { room: fetch.room, tokens });
    let Ok(answer) = call_and_wait(&door, Method::POST, "/kv", request).await else {
        known.forget(rank);
        // A connection that breaks says nothing about the transfer, which has its own ways in the real engine.
        return pending().await;
    };
    let kv: Option<KvAnswer> = answer.json().filter(|_| answer.status == StatusCode::OK);
    match kv {
        Some(kv) if kv.room == fetch.room && kv.tokens == tokens => Ok(kv.cached_tokens),
        _ => Err(HandoffFault::Transfer),
    }
}

/// The prefill rank that has the KV.
async fn rank_of(peers: &Peers, fetch: &Fetch, known: &Known) -> u32 {
    if let Some(rank) = fetch.prefill_rank {
        return rank;
    }
    let size = known.info.dp_size;
    if size <= 1 {
        return 0;
    }
    if known.info.follow_bootstrap_room {
        return (fetch.room % u64::from(size)) as u32;
    }
    let rooms = json_text(&Rooms { bootstrap_rooms: vec![fetch.room] });
    loop {
        let answer = call(&fetch.from, Method::POST, "/query_dp_ranks", rooms.clone()).await.ok();
        let ranks: Option<BTreeMap<String, u32>> = answer.and_then(|answer| answer.json());
        if let Some(rank) = ranks.and_then(|ranks| ranks.get(&fetch.room.to_string()).copied()) {
            return rank;
        }
        sleep(real(ASK_EVERY, peers.speed)).await;
    }
}
