//! The body of an answer, with the faults that befall it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::garble::Garbler;
use super::line::Line;
use super::visit::Visit;
use crate::fault::{Cut, How, Plan, Point};
use crate::instant::AnswerBody;

/// An answer's body on its way to the client.
#[derive(Debug)]
pub(super) struct Reply {
    inner: AnswerBody,
    line: Arc<Line>,
    visit: Visit,
    cut: Option<Cut>,
    delay_chunk: Option<Duration>,
    close_after: bool,
    garbler: Option<Garbler>,
    chunks: u64,
    /// A chunk that is not yet due.
    held: Option<(Bytes, Pin<Box<Sleep>>)>,
    /// The inner body is at its end.
    is_over: bool,
}

type Step = Poll<Option<Result<Frame<Bytes>, axum::Error>>>;

impl Reply {
    /// `is_stream`: the body is one of events.
    pub(super) fn new(
        inner: AnswerBody,
        line: Arc<Line>,
        visit: Visit,
        plan: &Plan,
        is_stream: bool,
    ) -> Self {
        // The head is still to be written.
        line.written_to();
        let is_over = inner.is_end_stream();
        if let (true, Some(Cut { point: Point::Head, how })) = (is_over, plan.cut)
            && how != How::Stall
        {
            line.end_when_flushed(how);
        }
        Self {
            inner,
            line,
            visit,
            cut: plan.cut,
            delay_chunk: plan.delay_chunk,
            close_after: plan.close_after,
            garbler: plan.garbage.map(|what| Garbler::new(what, is_stream)),
            chunks: 0,
            held: None,
            is_over,
        }
    }

    /// Bytes that may still go out before the cut.
    fn room(&self) -> u64 {
        match self.cut.map(|cut| cut.point) {
            None => u64::MAX,
            Some(Point::Chunks(most)) if self.chunks < most => u64::MAX,
            Some(Point::Bytes(most)) => most.saturating_sub(self.visit.sent_bytes),
            Some(_) => 0,
        }
    }

    /// Ends as the cut says, once all before it is written.
    fn end(&mut self, how: How) -> Step {
        if how == How::Stall {
            self.visit.fault(how.key());
            return Poll::Pending;
        }
        ready!(self.line.poll_flushed());
        self.visit.fault(how.key());
        if how == How::Reset {
            self.line.reset_request();
        }
        Poll::Ready(Some(Err(axum::Error::new(io::Error::from(io::ErrorKind::ConnectionAborted)))))
    }

    /// The next chunk, when it is due.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, axum::Error>>> {
        loop {
            if let Some((_, timer)) = &mut self.held {
                ready!(timer.as_mut().poll(context));
                return Poll::Ready(self.held.take().map(|(bytes, _)| Ok(bytes)));
            }
            let bytes = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => bytes,
                    // No route answers with trailers.
                    Err(_) => continue,
                },
            };
            match self.delay_chunk {
                Some(span) if self.chunks > 0 => {
                    self.held = Some((bytes, Box::pin(sleep_until(Instant::now() + span))));
                }
                _ => return Poll::Ready(Some(Ok(bytes))),
            }
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Step {
        let this = self.get_mut();
        if let (Some(cut), 0) = (this.cut, this.room()) {
            return this.end(cut.how);
        }
        let Some(chunk) = ready!(this.poll_chunk(context)) else {
            this.is_over = true;
            return Poll::Ready(None);
        };
        let mut bytes = match &mut this.garbler {
            Some(garbler) => garbler.garble(&chunk?),
            None => chunk?,
        };
        if let Ok(room) = usize::try_from(this.room()) {
            bytes.truncate(room);
        }
        this.chunks += 1;
        this.visit.sent_bytes += bytes.len() as u64;
        this.is_over = this.inner.is_end_stream();
        this.line.written_to();
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        // A cut may be due after the last byte.
        self.is_over && self.held.is_none() && (self.cut.is_none() || self.room() > 0)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.is_over && self.held.is_none() {
            self.visit.answered();
            if self.close_after {
                self.line.end_when_flushed(How::Close);
            }
        }
    }
}
