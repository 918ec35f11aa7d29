//! The decode side: the prefill workers that are known, and whether they are still there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use simworker_core::HandoffFault;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use super::call::{Address, Answer, call};
use super::fetch::Missed;
use super::life::Life;
use super::registry::{PrefillInfo, RankAddress};

/// How often, and in what distance, a decode worker asks for a prefill worker that does not answer.
pub(super) const TRIES: u32 = 15;
pub(super) const TRY_EVERY: Duration = Duration::from_secs(1);
/// The same for one that is no longer as it was: as long as it takes to miss its signs of life.
const TRIES_AGAIN: u32 = 10;
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
    /// It has never answered, or it is gone.
    Lost(HandoffFault),
}

/// A prefill worker, as one start of its process has told.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) info: PrefillInfo,
    /// Which start, where it tells.
    pub(super) start: Option<u64>,
    ranks: Mutex<HashMap<u32, RankAddress>>,
    stale: Notify,
}

impl Known {
    fn new(info: PrefillInfo, start: Option<u64>) -> Self {
        Self { info, start, ranks: Mutex::default(), stale: Notify::new() }
    }

    /// Where a rank hands off KV. [`Missed::Stale`] when the server is another one or does not answer.
    pub(super) async fn rank(&self, server: &Address, rank: u32) -> Result<RankAddress, Missed> {
        if let Some(known) = self.ranks.lock().get(&rank) {
            return Ok(known.clone());
        }
        let path = route(i64::from(rank), 0);
        let answer = call(server, Method::GET, &path, Vec::new()).await.map_err(|_| Missed::Stale)?;
        if self.is_before(&answer) {
            return Err(Missed::Stale);
        }
        let address: Option<RankAddress> = answer.json().filter(|_| answer.status == StatusCode::OK);
        let address = address.ok_or(Missed::Failed(HandoffFault::PeerLost))?;
        self.ranks.lock().insert(rank, address.clone());
        Ok(address)
    }

    /// Whether an answer comes from a later start.
    pub(super) fn is_before(&self, answer: &Answer) -> bool {
        self.start.is_some() && answer.start.is_some() && self.start != answer.start
    }

    /// The worker is not like that any more: it is asked again.
    pub(super) fn mark_stale(&self) {
        self.stale.notify_one();
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
        let mut fault = HandoffFault::Unreached;
        tokio::select! {
            () = self.follow(&server, &state, &mut fault) => {}
            _ = life.changed() => {}
        }
        // First of all, so that who comes now asks again.
        self.known.lock().remove(&server);
        state.send_replace(PeerState::Lost(fault));
    }

    /// Ends when the worker is lost. `fault` is what that is then.
    async fn follow(&mut self, server: &Address, state: &watch::Sender<PeerState>, fault: &mut HandoffFault) {
        let mut tries = TRIES;
        while let Some(known) = self.ask(server, tries).await {
            *fault = HandoffFault::PeerLost;
            let known = Arc::new(known);
            state.send_replace(PeerState::Known(Arc::clone(&known)));
            if !self.watch(server, &known).await {
                return;
            }
            state.send_replace(PeerState::Asked);
            tries = TRIES_AGAIN;
        }
    }

    /// Looks for signs of life. True when the worker is there, but not as it is known; false when they are missing.
    async fn watch(&self, server: &Address, known: &Known) -> bool {
        let mut missed = 0;
        while missed < MOST_MISSED {
            tokio::select! {
                () = sleep(real(HEARTBEAT, self.speed)) => {}
                () = known.stale.notified() => return true,
            }
            match call(server, Method::GET, "/health", Vec::new()).await {
                Ok(answer) if known.is_before(&answer) => return true,
                Ok(answer) if answer.status == StatusCode::OK => missed = 0,
                _ => missed += 1,
            }
        }
        false
    }

    async fn ask(&self, server: &Address, tries: u32) -> Option<Known> {
        let path = route(-1, -1);
        for attempt in 1..=tries {
            if let Ok(answer) = call(server, Method::GET, &path, Vec::new()).await
                && answer.status == StatusCode::OK
                && let Some(info) = answer.json()
            {
                return Some(Known::new(info, answer.start));
            }
            if attempt < tries {
                sleep(real(TRY_EVERY, self.speed)).await;
            }
        }
        None
    }
}
