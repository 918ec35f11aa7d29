//! The decode side: the prefill workers that are known, and whether they are still there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use super::call::{Address, call};
use super::life::Life;
use super::registry::{PrefillInfo, RankAddress};

/// How often, and in what distance, a decode worker asks for a prefill worker that does not answer.
const TRIES: u32 = 15;
const TRY_EVERY: Duration = Duration::from_secs(1);
/// Distance of the signs of life, and how many may be missing.
const HEARTBEAT: Duration = Duration::from_secs(5);
const MOST_MISSED: u32 = 2;
/// Shortest distance of any calls, however fast the engine's time runs.
const LEAST: Duration = Duration::from_millis(5);

/// A span of engine time in real time.
pub(super) fn real(span: Duration, speed: f64) -> Duration {
    span.div_f64(speed).max(LEAST)
}

/// What is known of a prefill worker.
#[derive(Debug, Clone)]
pub(super) enum PeerState {
    /// It is being asked.
    Asked,
    /// It has answered, and is there.
    Known(Arc<Known>),
    /// It did not answer, or is gone.
    Lost,
}

/// A prefill worker.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) info: PrefillInfo,
    ranks: Mutex<HashMap<u32, RankAddress>>,
}

impl Known {
    /// Where a rank hands off KV; None when the server knows no such rank or does not answer.
    pub(super) async fn rank(&self, server: &Address, rank: u32) -> Option<RankAddress> {
        if let Some(known) = self.ranks.lock().get(&rank) {
            return Some(known.clone());
        }
        let path = route(i64::from(rank), 0);
        let answer = call(server, Method::GET, &path, Vec::new()).await.ok()?;
        let address: RankAddress = answer.json().filter(|_| answer.status == StatusCode::OK)?;
        self.ranks.lock().insert(rank, address.clone());
        Some(address)
    }

    /// The rank is not where it was: the next request asks again.
    pub(super) fn forget(&self, rank: u32) {
        self.ranks.lock().remove(&rank);
    }
}

fn route(dp_rank: i64, others: i64) -> String {
    format!(
        "/route?prefill_dp_rank={dp_rank}&prefill_cp_rank={others}&target_tp_rank={others}&target_pp_rank={others}"
    )
}

/// All prefill workers that one decode worker has to do with.
#[derive(Debug, Clone)]
pub(super) struct Peers {
    known: Arc<Mutex<HashMap<Address, watch::Receiver<PeerState>>>>,
    life: watch::Receiver<Life>,
    pub(super) speed: f64,
}

impl Peers {
    pub(super) fn new(life: watch::Receiver<Life>, speed: f64) -> Self {
        Self { known: Arc::default(), life, speed }
    }

    /// The prefill worker with this bootstrap server. One that is not known is asked from now on.
    pub(super) fn get(&self, server: &Address) -> watch::Receiver<PeerState> {
        let mut known = self.known.lock();
        if let Some(peer) = known.get(server) {
            return peer.clone();
        }
        let (state, peer) = watch::channel(PeerState::Asked);
        known.insert(server.clone(), peer.clone());
        tokio::spawn(self.clone().keep(server.clone(), state));
        peer
    }

    /// Keeps the state of a prefill worker until it is lost, or this process is.
    async fn keep(mut self, server: Address, state: watch::Sender<PeerState>) {
        let mut life = self.life.clone();
        life.mark_unchanged();
        tokio::select! {
            () = self.follow(&server, &state) => {}
            _ = life.changed() => {}
        }
        // First of all, so that who comes now asks again.
        self.known.lock().remove(&server);
        state.send_replace(PeerState::Lost);
    }

    async fn follow(&mut self, server: &Address, state: &watch::Sender<PeerState>) {
        let Some(info) = self.ask(server).await else { return };
        state.send_replace(PeerState::Known(Arc::new(Known { info, ranks: Mutex::default() })));
        let mut missed = 0;
        while missed < MOST_MISSED {
            sleep(real(HEARTBEAT, self.speed)).await;
            let beat = call(server, Method::GET, "/health", Vec::new()).await;
            let is_there = matches!(beat, Ok(answer) if answer.status == StatusCode::OK);
            missed = if is_there { 0 } else { missed + 1 };
        }
    }

    async fn ask(&self, server: &Address) -> Option<PrefillInfo> {
        let path = route(-1, -1);
        for attempt in 1..=TRIES {
            if let Ok(answer) = call(server, Method::GET, &path, Vec::new()).await
                && answer.status == StatusCode::OK
                && let Some(info) = answer.json()
            {
                return Some(info);
            }
            if attempt < TRIES {
                sleep(real(TRY_EVERY, self.speed)).await;
            }
        }
        None
    }
}
