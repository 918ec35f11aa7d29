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
use super::call::{Address, CallError, call, call_and_wait};
use super::peers::{Known, PeerState, Peers, TRIES, TRY_EVERY, real};
use super::ranks::{KvAnswer, KvRequest};
use super::registry::RankAddress;
use super::{Fetch, Source, json_text};
use crate::worker::Worker;

/// How often a bootstrap server is asked for the rank of a room that it does not know, in engine time.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Gets the KV of a request and tells the engine what came of it, unless the request ends first.
pub(super) async fn fetch(worker: Arc<Worker>, peers: Peers, fetch: Fetch) {
    let mut peer = peers.get(&fetch.source.server);
    let mut lost = peer.clone();
    let mut wanted = fetch.wanted.clone();
    let outcome = tokio::select! {
        outcome = transfer(&peers, &fetch, &mut peer) => outcome,
        // Only signs of life tell that the prefill worker is gone.
        fault = loss(&mut lost) => Err(fault),
        () = ended(&mut wanted) => return,
    };
    worker.kv_outcome(fetch.id, fetch.source.room, outcome);
}

/// Ready when the prefill worker is lost: why.
async fn loss(peer: &mut watch::Receiver<PeerState>) -> HandoffFault {
    match peer.wait_for(|state| matches!(state, PeerState::Lost(_))).await.as_deref() {
        Ok(PeerState::Lost(fault)) => *fault,
        _ => HandoffFault::PeerLost,
    }
}

/// Ready when the request has ended.
async fn ended(wanted: &mut watch::Receiver<Option<u32>>) {
    while wanted.changed().await.is_ok() {}
}

/// Why a try has brought no KV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    /// What is known of the prefill worker is no longer true, and nothing was asked of it.
    Stale,
    /// There will be none.
    Failed(HandoffFault),
}

/// The number of tokens that the prefill side found in its cache. Where the prefill worker is not as it was known to be,
/// its bootstrap server is asked again, now and then after some time.
async fn transfer(
    peers: &Peers,
    fetch: &Fetch,
    peer: &mut watch::Receiver<PeerState>,
) -> Result<u32, HandoffFault> {
    let mut former = None;
    for attempt in 0..TRIES {
        if attempt > 1 {
            sleep(real(TRY_EVERY, peers.speed)).await;
        }
        let known = layout(peer, former.as_ref()).await?;
        match try_once(peers, fetch, &known).await {
            Ok(cached_tokens) => return Ok(cached_tokens),
            Err(Missed::Failed(fault)) => return Err(fault),
            Err(Missed::Stale) => known.mark_stale(),
        }
        former = Some(known);
    }
    Err(HandoffFault::PeerLost)
}

/// What is known of the prefill worker, other than what was known before; why not when it is lost.
async fn layout(
    peer: &mut watch::Receiver<PeerState>,
    former: Option<&Arc<Known>>,
) -> Result<Arc<Known>, HandoffFault> {
    let is_told = |state: &PeerState| match state {
        PeerState::Known(known) => former.is_none_or(|former| !Arc::ptr_eq(former, known)),
        PeerState::Lost(_) => true,
        PeerState::Asked => false,
    };
    match peer.wait_for(is_told).await.as_deref() {
        Ok(PeerState::Known(known)) => Ok(Arc::clone(known)),
        Ok(PeerState::Lost(fault)) => Err(*fault),
        Ok(PeerState::Asked) | Err(_) => Err(HandoffFault::PeerLost),
    }
}

async fn try_once(peers: &Peers, fetch: &Fetch, known: &Known) -> Result<u32, Missed> {
    let rank = rank_of(peers, &fetch.source, known).await?;
    let address = known.rank(&fetch.source.server, rank).await?;
    let mut wanted = fetch.wanted.clone();
    let tokens = wanted.wait_for(Option::is_some).await.ok().and_then(|tokens| *tokens);
    // Without tokens the request has ended, which `fetch` sees too.
    let Some(tokens) = tokens else { return pending().await };
    hand_off(address, KvRequest { room: fetch.source.room, tokens, start: known.start }).await
}

/// Asks a rank for KV and waits for its arrival.
async fn hand_off(address: RankAddress, request: KvRequest) -> Result<u32, Missed> {
    let address = Address { host: address.rank_ip, port: address.rank_port };
    let answer = match call_and_wait(&address, Method::POST, "/kv", json_text(&request)).await {
        Ok(answer) => answer,
        Err(CallError::Connect(_)) => return Err(Missed::Stale),
        // A connection that breaks says nothing about the transfer, which has its own ways in the real engine.
        Err(_) => return pending().await,
    };
    if answer.status == StatusCode::GONE {
        return Err(Missed::Stale);
    }
    let kv: Option<KvAnswer> = answer.json().filter(|_| answer.status == StatusCode::OK);
    match kv {
        Some(kv) if kv.room == request.room && kv.tokens == request.tokens => Ok(kv.cached_tokens),
        _ => Err(Missed::Failed(HandoffFault::Transfer)),
    }
}

/// The prefill rank that has the KV.
async fn rank_of(peers: &Peers, source: &Source, known: &Known) -> Result<u32, Missed> {
    if let Some(rank) = source.prefill_rank {
        return Ok(rank);
    }
    let size = known.info.dp_size;
    if size <= 1 {
        return Ok(0);
    }
    if known.info.follow_bootstrap_room {
        return Ok((source.room % u64::from(size)) as u32);
    }
    let rooms = json_text(&Rooms { bootstrap_rooms: vec![source.room] });
    loop {
        let answer = call(&source.server, Method::POST, "/query_dp_ranks", rooms.clone()).await.ok();
        if answer.as_ref().is_some_and(|answer| known.is_before(answer)) {
            return Err(Missed::Stale);
        }
        let ranks: Option<BTreeMap<String, u32>> = answer.and_then(|answer| answer.json());
        if let Some(rank) = ranks.and_then(|ranks| ranks.get(&source.room.to_string()).copied()) {
            return Ok(rank);
        }
        sleep(real(ASK_EVERY, peers.speed)).await;
    }
}
