//! The body of a worker's answer on its way to the client.
//!
//! Frames go from the upstream socket to the client's writer by being polled: nothing is queued here, so a client
//! that does not read holds back its worker. The body owns the connection, the lease and the meter; ending or
//! dropping it settles all three at once.
//!
//! A worker that falls silent is given up after a while. The silence that counts is the worker's: while the client
//! does not take what there is, nobody asks the worker for more.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Frame, SizeHint};
use router_core::Outcome;
use tokio::time::Instant;

use super::beside::Beside;
use super::lease::Lease;
pub(crate) use super::merge::Source;
use super::note::Note;
use crate::alarm::Alarm;
use crate::client::{Engaged, Expiry};
use crate::clock::nanoseconds;
use crate::fleet::Member;
use crate::gate::Permit;
use crate::upstream::{Connection, Pool};

/// Least time between two reports of progress to the decision core.
const PROGRESS_INTERVAL_NS: u64 = 100_000_000;

/// The answer ended before its end. The client's is broken off: never a clean end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the worker's answer broke off: {0}")]
    Broken(#[source] hyper::Error),
    #[error("the worker's answer fell silent")]
    Silent,
}

/// A worker's answer as the body of ours.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    inner: Source,
    status: StatusCode,
    /// When the head came, or the last bytes.
    heard_ns: u64,
    next_progress_ns: u64,
    silence: Option<Silence>,
    /// To be told at the next poll.
    cut: Option<Cut>,
    /// Gone once the answer is settled.
    booked: Option<Booked>,
}

/// How long the worker may say nothing.
#[derive(Debug)]
struct Silence {
    limit: Duration,
    /// Since when it does; `None` while it speaks.
    since: Option<Instant>,
    alarm: Alarm,
}

/// What an answer under way holds.
#[derive(Debug)]
pub(crate) struct Booked {
    pub(crate) held: Held,
    pub(crate) lease: Lease,
    pub(crate) note: Note,
    /// Has the connection to the client watched.
    pub(crate) engaged: Engaged,
    /// Lets the next request in, once this is over.
    pub(crate) permit: Option<Permit>,
}

/// The connection that an answer comes from, and where it goes afterwards.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) connection: Connection,
    pub(crate) pool: Arc<Pool>,
    pub(crate) member: Arc<Member>,
}

impl AnswerBody {
    /// The answer of a worker that may be silent for `silence` at a time.
    pub(crate) fn new(inner: Source, status: StatusCode, silence: Option<Duration>, booked: Booked) -> Self {
        let silence = silence.map(|limit| Silence { limit, since: None, alarm: Alarm::default() });
        let heard_ns = booked.lease.now_ns();
        Self { inner, status, heard_ns, next_progress_ns: 0, silence, cut: None, booked: Some(booked) }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        while self.inner.merges() {
            let merged = match ready!(self.poll_plain(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.inner.merge(bytes),
                    // Trailers are those of what was not merged.
                    Err(_) => continue,
                },
                Some(Err(cut)) => return Poll::Ready(Some(Err(cut))),
                None => self.inner.finish(),
            };
            if !merged.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(merged))));
            }
        }
        self.poll_plain(cx)
    }

    /// The next of what the worker sends.
    fn poll_plain(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(cut) = self.cut.take() {
            return Poll::Ready(Some(Err(cut)));
        }
        match self.poll_inner(cx) {
            Poll::Pending => {
                if !self.silence.as_mut().is_some_and(|silence| silence.poll_over(cx).is_ready()) {
                    return Poll::Pending;
                }
                if let Some(booked) = &mut self.booked {
                    booked.note.timed_out();
                }
                self.break_off(Cut::Silent, cx)
            }
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(silence) = &mut self.silence {
                    silence.since = None;
                }
                if let Some(bytes) = frame.data_ref() {
                    self.measure(bytes);
                }
                if self.inner.is_over() {
                    self.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => self.break_off(Cut::Broken(error), cx),
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
        }
    }

    /// Ends the answer before its end. An error makes hyper drop what it has not written yet; so it is told a moment
    /// later, after it has had the chance to write what the worker did send.
    fn break_off<T>(&mut self, cut: Cut, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(booked) = &self.booked {
            booked.note.complain_of_answer(&cut);
        }
        self.settle(Outcome::Failed);
        self.cut = Some(cut);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.inner.poll(self.booked.as_mut().map(|booked| &mut booked.held.connection), cx)
    }

    fn measure(&mut self, bytes: &[u8]) {
        let Some(Booked { lease, note, .. }) = &mut self.booked else { return };
        let now_ns = lease.now_ns();
        self.heard_ns = now_ns;
        let seen = note.see(now_ns, bytes);
        if seen.first_token {
            lease.first_token(now_ns);
        }
        if now_ns >= self.next_progress_ns && seen.output_tokens > 0 {
            self.next_progress_ns = now_ns + PROGRESS_INTERVAL_NS;
            lease.progress(now_ns, seen.output_tokens);
        }
    }

    /// The answer has been read to its end, so its connection may serve another request.
    fn complete(&mut self) {
        let outcome = Outcome::of_status(self.status.as_u16());
        // Its part is done, or will be.
        self.inner.part().into_iter().for_each(Beside::release);
        if let Some(Held { connection, pool, member }) = self.settle(outcome) {
            pool.give_back(&member, connection);
        }
    }

    /// Closes the books, once; what is left is the connection, which is closed unless somebody keeps it.
    fn settle(&mut self, outcome: Outcome) -> Option<Held> {
        let Booked { held, mut lease, note, engaged: _engaged, permit: _permit } = self.booked.take()?;
        let cached_tokens = note.end(&outcome);
        // A client that left has not made a worker fail: its legs are closed, and no more.
        self.inner.part().into_iter().filter(|_| outcome != Outcome::ClientGone).for_each(Beside::cancel);
        lease.settle_told(outcome, cached_tokens);
        Some(held)
    }

    /// How it ended if its end never came: the client left, or the request's time was over. That is the worker's fault
    /// only if most of the time went by without a byte of its answer.
    fn abandoned(&mut self) -> Outcome {
        let Some(booked) = &mut self.booked else { return Outcome::ClientGone };
        let Some(expiry) = booked.engaged.expiry() else { return Outcome::ClientGone };
        booked.note.timed_out();
        booked.note.complain_of_answer("the answer took longer than the request's time limit");
        let silent_ns = booked.lease.now_ns().saturating_sub(self.heard_ns);
        match expiry {
            Expiry::ByWorker { limit } if silent_ns >= nanoseconds(limit) / 2 => Outcome::Failed,
            Expiry::ByWorker { .. } => Outcome::Refused,
            Expiry::ByClient => Outcome::ClientGone,
        }
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
        if self.inner.is_over() {
            self.complete();
        } else {
            let outcome = self.abandoned();
            self.settle(outcome);
        }
    }
}

impl Silence {
    /// Ready once the worker has been silent for too long.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.alarm.poll_until(since + self.limit, cx)
    }
}
