//! The body of a worker's answer on its way to the client.
//!
//! Frames go from the upstream socket to the client's writer by being polled: nothing is queued here, so a client
//! that does not read holds back its worker. The body owns the connection, the lease and the meter; ending or
//! dropping it settles all three at once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use router_core::Outcome;

use super::lease::Lease;
use super::meter::Meter;
use super::note::Note;
use crate::client::Engaged;
use crate::upstream::{Connection, Pool, PoolKey};

/// Least time between two reports of progress to the decision core.
const PROGRESS_INTERVAL_NS: u64 = 100_000_000;

/// The worker's connection broke before the answer's end. The client's is broken off: never a clean end.
#[derive(Debug, thiserror::Error)]
#[error("the worker's answer broke off: {0}")]
pub(crate) struct Cut(#[source] hyper::Error);

/// See the module's description.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    inner: Incoming,
    meter: Meter,
    status: StatusCode,
    next_progress_ns: u64,
    /// To be told at the next poll.
    cut: Option<Cut>,
    /// Gone once the answer is settled.
    booked: Option<Booked>,
}

/// What an answer under way holds.
#[derive(Debug)]
pub(crate) struct Booked {
    pub(crate) held: Held,
    pub(crate) lease: Lease,
    pub(crate) note: Note,
    /// Has the connection to the client watched.
    pub(crate) engaged: Engaged,
}

/// The connection that an answer comes from, and where it goes afterwards.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) connection: Connection,
    pub(crate) pool: Arc<Pool>,
    pub(crate) key: PoolKey,
}

impl AnswerBody {
    pub(crate) fn new(inner: Incoming, is_stream: bool, status: StatusCode, booked: Booked) -> Self {
        let meter = Meter::new(is_stream && status.is_success());
        Self { inner, meter, status, next_progress_ns: 0, cut: None, booked: Some(booked) }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(cut) = self.cut.take() {
            return Poll::Ready(Some(Err(cut)));
        }
        match self.poll_inner(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(bytes) = frame.data_ref() {
                    self.measure(bytes);
                }
                if self.inner.is_end_stream() {
                    self.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => self.break_off(Cut(error), cx),
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
        }
    }

    /// Ends the answer before its end. An error makes hyper drop what it has not written yet; so it is told a moment
    /// later, after it has had the chance to write what the worker did send.
    fn break_off<T>(&mut self, cut: Cut, cx: &mut Context<'_>) -> Poll<T> {
        tracing::warn!("{cut}");
        self.settle(Outcome::Failed);
        self.cut = Some(cut);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the body, and between two attempts the connection that feeds it.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let first = Pin::new(&mut self.inner).poll_frame(cx);
        match (&first, &mut self.booked) {
            (Poll::Pending, Some(booked)) => {
                booked.held.connection.drive(cx);
                Pin::new(&mut self.inner).poll_frame(cx)
            }
            _ => first,
        }
    }

    fn measure(&mut self, bytes: &[u8]) {
        let came = self.meter.see(bytes);
        let Some(Booked { lease, note, .. }) = &mut self.booked else { return };
        let now_ns = lease.now_ns();
        if came {
            lease.first_token(now_ns);
            note.first_token(now_ns);
        }
        if now_ns >= self.next_progress_ns && self.meter.output_tokens() > 0 {
            self.next_progress_ns = now_ns + PROGRESS_INTERVAL_NS;
            lease.progress(now_ns, self.meter.output_tokens());
        }
    }

    /// The answer has been read to its end, so its connection may serve another request.
    fn complete(&mut self) {
        let counts = self.meter.counts();
        let outcome = Outcome::of_status(self.status.as_u16(), counts.cached_tokens, counts.prompt_tokens);
        if let Some(Held { connection, pool, key }) = self.settle(outcome) {
            pool.give_back(key, connection);
        }
    }

    /// Closes the books, once; what is left is the connection, which is closed unless somebody keeps it.
    fn settle(&mut self, outcome: Outcome) -> Option<Held> {
        let Booked { held, lease, note, engaged: _engaged } = self.booked.take()?;
        note.finish(lease.shared(), lease.now_ns(), self.status, self.meter.counts(), &outcome);
        lease.finish(outcome);
        Some(held)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // A body without a byte is never polled.
        if self.inner.is_end_stream() {
            self.complete();
        } else {
            let expired = self.booked.as_ref().is_some_and(|booked| booked.engaged.has_expired());
            self.settle(if expired { Outcome::Failed } else { Outcome::ClientGone });
        }
    }
}
