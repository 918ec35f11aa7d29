//! A worker with what is done to it: its faults, its books, and the signals to its connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use simworker_core::EngineRole;
use tokio::sync::watch;
use tokio::time::Instant;

use super::seen::Log;
use super::visit::SeenBody;
use crate::config::Http2Config;
use crate::fault::{Active, Fault, Faults, HandoffPlan, Plan, Refuse, to_json};
use crate::instant::{AnswerBody, CannedWorker};
use crate::worker::Worker;

/// Who answers.
#[derive(Debug)]
pub(crate) enum Subject {
    /// An engine, by these routes.
    Engine(TowerToHyperService<Router>),
    /// Canned replies.
    Canned(Arc<CannedWorker>),
}

/// A worker under control.
#[derive(Debug)]
pub(crate) struct Station {
    pub(super) address: SocketAddr,
    worker: Arc<Worker>,
    subject: Subject,
    faults: Arc<Faults>,
    log: Option<Log>,
    connections: AtomicU64,
    open: AtomicU64,
    boots: AtomicU64,
    /// After a restart nobody listens until then.
    down_until: Mutex<Option<Instant>>,
    /// Counts changes of anything that connections or the listener go by.
    changed: watch::Sender<u64>,
    /// Counts the times that all connections were reset.
    killed: watch::Sender<u64>,
    /// Whether the port is open.
    listening: watch::Sender<bool>,
}

impl Station {
    pub(crate) fn new(
        address: SocketAddr,
        worker: Arc<Worker>,
        subject: Subject,
        faults: Faults,
        with_log: bool,
    ) -> Self {
        let this = Self {
            address,
            worker,
            subject,
            faults: Arc::new(faults),
            log: with_log.then(Log::default),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            boots: AtomicU64::new(1),
            down_until: Mutex::new(None),
            changed: watch::Sender::new(0),
            killed: watch::Sender::new(0),
            listening: watch::Sender::new(true),
        };
        this.worker.kv.iter().for_each(|kv| kv.obey(&this.faults));
        this.worker.freeze_loads(this.faults.frozen());
        this.worker.set_slowness(this.faults.slowness());
        if this.faults.dead() {
            this.worker.die();
        }
        this
    }

    /// The books, if they are kept.
    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    /// The answer of the worker itself.
    pub(super) async fn answer(&self, request: Request<SeenBody>) -> Response<AnswerBody> {
        match &self.subject {
            Subject::Canned(canned) => canned.answer(request).await,
            Subject::Engine(routes) => match routes.call(request).await {
                Ok(answer) => answer.map(AnswerBody::Routed),
                Err(never) => match never {},
            },
        }
    }

    /// How it speaks HTTP/2, if it does.
    pub(super) fn http2(&self) -> Option<Http2Config> {
        self.worker.config.wire.http2
    }

    /// What is to happen to this request.
    pub(super) fn plan<B>(&self, request: &Request<B>) -> Plan {
        self.faults.plan(request.method(), request.uri().path(), &|| self.worker.queued())
    }

    /// Whether an engine answers.
    pub(super) fn has_engine(&self) -> bool {
        matches!(self.subject, Subject::Engine(_))
    }

    /// Whether it is a prefill worker.
    pub(super) fn sends_kv(&self) -> bool {
        self.worker.config.engine.role == EngineRole::Prefill
    }

    /// What is to happen to this hand-off of KV.
    pub(crate) fn hand_off(&self) -> HandoffPlan {
        self.faults.plan_handoff()
    }

    /// Changes the faults and lets them take effect.
    pub(crate) fn set_faults<T>(&self, act: impl FnOnce(&mut Vec<Active>) -> T) -> T {
        let (before, was_dead) = (self.faults.refuse(), self.faults.dead());
        let result = self.faults.edit(act);
        self.worker.freeze_loads(self.faults.frozen());
        self.worker.set_slowness(self.faults.slowness());
        match (was_dead, self.faults.dead()) {
            (false, true) => {
                self.worker.die();
                self.kill();
            }
            (true, false) => {
                self.begin_anew();
                self.rise();
            }
            _ => {}
        }
        if self.faults.refuse() == Some(Refuse::All) && before != Some(Refuse::All) {
            self.kill();
        }
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// The faults as JSON.
    pub(crate) fn show_faults(&self) -> serde_json::Value {
        self.faults.edit(|active| to_json(active))
    }

    /// These faults in place of all others.
    pub(crate) fn replace_faults(&self, faults: Vec<Fault>) {
        self.set_faults(|active| *active = Active::all(faults));
    }

    /// Starts anew, as a process that died and came back: connections are reset, nothing is cached, and nobody
    /// listens for `down`.
    pub(crate) fn restart(self: &Arc<Self>, down: Duration) {
        self.worker.die();
        self.begin_anew();
        if down.is_zero() {
            self.rise();
        } else {
            *self.down_until.lock() = Some(Instant::now() + down);
            let this = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(down).await;
                this.rise();
            });
        }
        self.kill();
        self.changed.send_modify(|count| *count += 1);
    }

    fn begin_anew(&self) {
        self.worker.begin_anew();
        if let Subject::Canned(canned) = &self.subject {
            canned.restart(self.worker.started());
        }
        self.boots.fetch_add(1, Ordering::Relaxed);
    }

    /// The other ports of the process open too, unless it is to stay dead.
    fn rise(&self) {
        if !self.faults.dead() {
            self.worker.rise();
        }
    }

    fn kill(&self) {
        self.killed.send_modify(|count| *count += 1);
    }

    /// Until when nobody is to listen: `Some(None)` is until further notice.
    pub(super) fn closed_until(&self) -> Option<Option<Instant>> {
        if self.faults.refuse().is_some() || self.faults.dead() {
            return Some(None);
        }
        let mut down_until = self.down_until.lock();
        *down_until = down_until.filter(|until| *until > Instant::now());
        down_until.map(Some)
    }

    /// The port has been opened or closed.
    pub(super) fn set_listening(&self, is_open: bool) {
        self.listening.send_replace(is_open);
    }

    /// Waits until the port is as it should be: whoever changes it finds it changed.
    pub(crate) async fn settled(&self) {
        let mut listening = self.listening.subscribe();
        // The sender lives as long as this does.
        let _ = listening.wait_for(|is_open| *is_open == self.closed_until().is_none()).await;
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn kills(&self) -> watch::Receiver<u64> {
        self.killed.subscribe()
    }

    pub(super) fn idle_close(&self) -> Option<Duration> {
        self.faults.idle_close()
    }

    /// The number of a new connection.
    pub(super) fn number(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
        if let Some(log) = &self.log {
            log.opened();
        }
    }

    pub(super) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(log) = &self.log {
            log.closed();
        }
    }

    /// The worker in short.
    pub(crate) fn describe(&self, index: usize) -> serde_json::Value {
        serde_json::json!({
            "index": index,
            "url": format!("http://{}", self.address),
            "mode": if self.has_engine() { "engine" } else { "instant" },
            "listening": *self.listening.borrow(),
            "boot": self.boots.load(Ordering::Relaxed),
            "started": self.worker.started(),
            "connections_open": self.open.load(Ordering::Relaxed),
            "totals": self.log.as_ref().map(Log::totals),
        })
    }
}
