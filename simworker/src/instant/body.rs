//! Bodies of canned answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::canned::{Canned, Kind};

/// A whole body, or a stream.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    /// All of it at once.
    Whole(Option<Bytes>),
    /// Chunk by chunk.
    Stream(TokenStream),
    /// From a route that is not canned.
    Routed(axum::body::Body),
}

impl AnswerBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(stream) => {
                stream.poll_chunk(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Routed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Stream(stream) => stream.is_over(),
            Self::Routed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
            Self::Routed(body) => body.size_hint(),
        }
    }
}

/// Chunks, each of which goes out in a write of its own, and the end of the stream in one more.
#[derive(Debug)]
pub(crate) struct TokenStream {
    canned: Arc<Canned>,
    kind: Kind,
    /// The next chunk; `total` is the end of the stream, `total + 1` is past it.
    next: u32,
    total: u32,
    with_usage: bool,
    /// The last chunk may not have been written yet.
    must_flush: bool,
    pace: Option<Pace>,
}

/// Chunk `n` is due `n` intervals after the first.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    first: Instant,
    timer: Pin<Box<Sleep>>,
}

impl TokenStream {
    /// A stream of `total` chunks, at least 1, with `interval` from one to the next; zero does without.
    pub(super) fn new(
        canned: Arc<Canned>,
        kind: Kind,
        total: u32,
        with_usage: bool,
        interval: Duration,
    ) -> Self {
        let pace = (!interval.is_zero()).then(|| {
            let first = Instant::now();
            Pace { interval, first, timer: Box::pin(sleep_until(first)) }
        });
        Self { canned, kind, next: 0, total: total.max(1), with_usage, must_flush: false, pace }
    }

    fn is_over(&self) -> bool {
        self.next > self.total
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_over() {
            return Poll::Ready(None);
        }
        if std::mem::take(&mut self.must_flush) {
            // The server writes what it has when there is nothing more, and asks again at once.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.next < self.total
            && let Some(pace) = &mut self.pace
        {
            ready!(pace.poll(self.next, context));
        }
        let chunk = if self.next == self.total {
            self.canned.tail(self.kind, self.total, self.with_usage)
        } else {
            self.canned.chunk(self.kind, self.next, self.total)
        };
        self.next += 1;
        self.must_flush = true;
        Poll::Ready(Some(chunk))
    }
}

impl Pace {
    fn poll(&mut self, chunk: u32, context: &mut Context<'_>) -> Poll<()> {
        let due = self.first + self.interval * chunk;
        if Instant::now() >= due {
            return Poll::Ready(());
        }
        if self.timer.deadline() != due {
            self.timer.as_mut().reset(due);
        }
        self.timer.as_mut().poll(context)
    }
}
