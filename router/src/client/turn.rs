//! What a client's connection is at, and when that ends it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

use super::wait::Wait;
use crate::config::ConnectionLimits;
use crate::error::Refusal;

/// The request that a connection is at; one after the other. Shared by the connection and by what it answers with.
pub(crate) struct Turn {
    /// How long a request may take.
    limit: Duration,
    state: Mutex<State>,
    /// Whether the client does not take what is written to it.
    blocked: AtomicBool,
    /// Whether a request is with the service.
    handling: AtomicBool,
    /// Whether the end of the connection is the only sign of the answer's end.
    ends_by_close: AtomicBool,
    /// Whether bytes of a request have come.
    heard: AtomicBool,
    /// Whether the client is to be told that this answer is the connection's last.
    last: AtomicBool,
}

struct State {
    /// The end of the current request's time; the last one's, when there is none.
    deadline: Pin<Box<Sleep>>,
    stage: Stage,
    /// Whose fault it was that the time limit ended an answer.
    expired: Option<Expiry>,
    wait: Wait,
    /// What is wrong with the head that came.
    refused: Option<Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No worker is concerned: a request is awaited, being received, or answered by the router itself.
    Own,
    /// A worker has the request, and the client nothing yet.
    Waiting,
    /// A worker's answer is on its way.
    Answering,
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its client left while a worker had its request.
    ClientLeft,
    /// An answer took too long, by the worker's fault or the client's.
    Expired,
    /// What came is no request, or did not come in full.
    Refused(Refusal),
    /// No other request has come for too long: the connection may end in order.
    Idle,
    /// No request has come, and none is waited for.
    Silent,
}

/// Who was waited for when an answer's time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The worker, for more of the answer; the limit is that of the whole request.
    ByWorker { limit: Duration },
    /// The client, to take what there was.
    ByClient,
}

/// Held while a worker is concerned with the request: dropping it is the end of that.
pub(crate) struct Engaged(Arc<Turn>);

impl Turn {
    /// A connection within these limits, whose requests may take this long. Needs a runtime around it.
    pub(crate) fn new(limit: Duration, limits: &ConnectionLimits) -> Arc<Self> {
        let state = State {
            deadline: Box::pin(sleep(limit)),
            stage: Stage::Own,
            expired: None,
            wait: Wait::new(limits),
            refused: None,
        };
        Arc::new(Self {
            limit,
            state: Mutex::new(state),
            blocked: AtomicBool::new(false),
            handling: AtomicBool::new(false),
            ends_by_close: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            last: AtomicBool::new(false),
        })
    }

    /// A request came: its time runs from now.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        state.deadline.as_mut().reset(Instant::now() + self.limit);
        state.wait.begin();
        self.handling.store(true, Ordering::Relaxed);
    }

    /// The service has given the request's answer.
    pub(crate) fn answered(&self) {
        self.handling.store(false, Ordering::Relaxed);
    }

    /// Bytes of a request have come.
    pub(super) fn hear(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// The client is to be told from now on that each answer is the last on its connection.
    pub(crate) fn set_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Whether the client is to be told so.
    pub(crate) fn is_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// The router stops: what has not come soon will not be waited for. Whether a request may be about to come, by a
    /// client that has just connected or that has sent a part of its head.
    pub(crate) fn last_call(&self) -> bool {
        self.state.lock().wait.last_call()
    }

    /// What came is no request. Whether that can be: while one is under way, it cannot.
    pub(super) fn refuse(&self, refusal: Refusal) -> bool {
        let mut state = self.state.lock();
        if self.is_under_way(&state) {
            return false;
        }
        state.refused = Some(refusal);
        true
    }

    /// Whether a request has come whose answer is not over.
    fn is_under_way(&self, state: &State) -> bool {
        state.stage != Stage::Own
            || self.handling.load(Ordering::Relaxed)
            || self.blocked.load(Ordering::Relaxed)
    }

    /// Whether a request has come of whose answer nothing has gone out; nothing if none is under way.
    pub(crate) fn is_unanswered(&self) -> Option<bool> {
        let state = self.state.lock();
        let is_begun = state.stage == Stage::Answering || self.blocked.load(Ordering::Relaxed);
        self.is_under_way(&state).then_some(!is_begun)
    }

    /// Whether an answer that breaks off would look whole if the connection were closed properly.
    pub(crate) fn ends_by_close(&self) -> bool {
        self.ends_by_close.load(Ordering::Relaxed)
    }

    /// Waits for the end of the current request's time.
    pub(crate) async fn deadline(&self) {
        poll_fn(|cx| self.state.lock().deadline.as_mut().poll(cx)).await;
    }

    /// A worker gets the request.
    pub(crate) fn engage(self: &Arc<Self>) -> Engaged {
        self.state.lock().stage = Stage::Waiting;
        Engaged(Arc::clone(self))
    }

    /// Notes whether the client takes what is written to it.
    pub(super) fn set_blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// Waits until the connection has to be closed; `left` ends when its client leaves. To be polled after whatever
    /// moves the connection's bytes, by the same task: what that did may be a reason.
    pub(crate) async fn over(&self, left: impl Future<Output = ()>) -> Ending {
        let mut left = pin!(left);
        let mut has_left = false;
        poll_fn(|cx| {
            has_left = has_left || left.as_mut().poll(cx).is_ready();
            self.poll_over(has_left, cx)
        })
        .await
    }

    fn poll_over(&self, has_left: bool, cx: &mut Context<'_>) -> Poll<Ending> {
        let mut state = self.state.lock();
        if has_left && state.stage != Stage::Own {
            return Poll::Ready(Ending::ClientLeft);
        }
        if let Some(refusal) = state.refused {
            return Poll::Ready(Ending::Refused(refusal));
        }
        // Until an answer begins, whoever waits for it tells the client that the time is up.
        let blocked = self.blocked.load(Ordering::Relaxed);
        let unfinished = state.stage == Stage::Answering || blocked;
        if unfinished && state.deadline.as_mut().poll(cx).is_ready() {
            state.expired =
                Some(if blocked { Expiry::ByClient } else { Expiry::ByWorker { limit: self.limit } });
            return Poll::Ready(Ending::Expired);
        }
        let under_way = self.is_under_way(&state);
        state.wait.poll(under_way, || self.heard.swap(false, Ordering::Relaxed), cx)
    }
}

impl Engaged {
    /// The client has no other sign of the answer's end than that of the connection.
    pub(crate) fn ends_by_close(&self) {
        self.0.ends_by_close.store(true, Ordering::Relaxed);
    }

    /// The answer begins.
    pub(crate) fn answering(&self) {
        self.0.state.lock().stage = Stage::Answering;
    }

    /// Whose fault it was, if the time limit ended the answer.
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        self.0.state.lock().expired
    }
}

impl Drop for Engaged {
    fn drop(&mut self) {
        self.0.state.lock().stage = Stage::Own;
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Engaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engaged").finish_non_exhaustive()
    }
}
