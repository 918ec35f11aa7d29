//! Streams of tokens as server-sent events.
//!
//! The body asks the mailboxes for progress when the connection wants more bytes, and only then: a slow reader gets
//! fewer and larger frames, not a queue of them. It owns the tickets, so that a connection that closes aborts what is
//! still running.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use serde::Serialize;

use super::failure::Failure;
use super::said::Said;
use super::write_json;
use crate::mailbox::{Ending, Figures, Finish, Progress};
use crate::ticket::Ticket;

const DONE: &[u8] = b"data: [DONE]\n\n";

const HEADERS: [(HeaderName, &str); 2] =
    [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];

/// By how much a chunk may exceed the last one before its buffer grows.
const SPARE: usize = 64;

/// One reply within a stream.
#[derive(Debug)]
pub(super) struct Voice {
    pub(super) ticket: Ticket,
    pub(super) index: u32,
    /// Tokens that have been sent.
    pub(super) sent: u32,
    /// What else is known of it.
    pub(super) figures: Figures,
    /// All that has been said with the next frame, where frames say it all.
    pub(super) said: Said,
}

/// News about one reply.
#[derive(Debug)]
pub(super) struct News<'a> {
    /// The reply, as it was before: `voice.sent` tokens are known to the client.
    pub(super) voice: &'a Voice,
    /// Tokens there are now.
    pub(super) tokens: u32,
    /// Set in the last frame.
    pub(super) finish: Option<&'a Finish>,
}

/// How a dialect writes its frames.
pub(super) trait Frames: Send + Unpin + 'static {
    /// Whether each frame says all that has been said before, so that [`Voice::said`] is needed.
    fn say_it_all(&self) -> bool {
        false
    }
    /// Writes the frames for some news.
    fn news(&self, news: &News<'_>, out: &mut Vec<u8>);
    /// Whether this failure is a frame like any other here, and writes it then; otherwise it ends the stream.
    fn absorb(&self, voice: &Voice, failure: &Failure, out: &mut Vec<u8>) -> bool;
    /// Writes the frame for a failure that ends the stream.
    fn failure(&self, failure: &Failure, out: &mut Vec<u8>);
    /// Writes what comes after the last reply has ended.
    fn tail(&self, voices: &[Voice], out: &mut Vec<u8>);
    /// The end of the stream.
    fn last(&self) -> &'static [u8] {
        DONE
    }
}

/// Appends `value` as one event.
pub(super) fn event(out: &mut Vec<u8>, value: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    write_json(out, value);
    out.extend_from_slice(b"\n\n");
}

/// A stream in which a request fails before it has begun to run; `write` writes the frame.
pub(super) fn failed(write: impl FnOnce(&mut Vec<u8>)) -> Response {
    let mut out = Vec::new();
    write(&mut out);
    out.extend_from_slice(DONE);
    (HEADERS, out).into_response()
}

/// The body of a streamed answer.
#[derive(Debug)]
pub(super) struct TokenStream<F> {
    /// Replies that have not ended come with `ticket.ended == false`.
    voices: Vec<Voice>,
    frames: F,
    interval: u32,
    /// Rendered and not yet taken by the connection.
    ready: Option<Bytes>,
    /// What ended the stream before anything was written.
    failed: Option<Failure>,
    begun: bool,
    over: bool,
    /// Length of the last chunk; the next will be about as long.
    last_len: usize,
}

impl<F: Frames> TokenStream<F> {
    /// A stream of these replies; `interval` tokens make a frame.
    pub(super) fn new(tickets: Vec<Ticket>, frames: F, interval: u32) -> Self {
        let voice = |(index, ticket)| Voice {
            ticket,
            index,
            sent: 0,
            figures: Figures::default(),
            said: Said::default(),
        };
        let voices = (0..).zip(tickets).map(voice).collect();
        Self { voices, frames, interval, ready: None, failed: None, begun: false, over: false, last_len: 0 }
    }

    /// Waits for the first frame, so that a failure before it still has a status of its own, unless it is the
    /// scheduler's: that is a frame like others, as the stream has begun when the scheduler speaks.
    pub(super) async fn begin(mut self) -> Result<Self, Failure> {
        self.ready = std::future::poll_fn(|context| self.poll_chunk(context)).await;
        match self.failed.take() {
            Some(failure) => Err(failure),
            None => Ok(self),
        }
    }

    /// The same with something before it, which is sent at once.
    pub(super) fn after(self, opening: Vec<u8>) -> Self {
        Self { ready: Some(opening.into()), begun: true, ..self }
    }

    /// The answer with this body.
    pub(super) fn response(self) -> Response {
        (HEADERS, axum::body::Body::new(self)).into_response()
    }

    fn poll_chunk(&mut self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        if self.over {
            return Poll::Ready(None);
        }
        let mut out = Vec::new();
        for index in 0..self.voices.len() {
            if let Err(failure) = self.poll_voice(index, context, &mut out) {
                self.fail(failure, &mut out);
                return Poll::Ready(Some(out.into()));
            }
        }
        if self.voices.iter().all(|voice| voice.ticket.ended) {
            self.frames.tail(&self.voices, &mut out);
            self.close(&mut out);
        }
        if out.is_empty() {
            return Poll::Pending;
        }
        self.begun = true;
        self.last_len = out.len();
        Poll::Ready(Some(out.into()))
    }

    fn poll_voice(&mut self, index: usize, context: &Context<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
        let voice = &mut self.voices[index];
        if voice.ticket.ended {
            return Ok(());
        }
        let want = next_frame(voice.sent, self.interval);
        let Poll::Ready(Progress { tokens, figures, ending, .. }) = voice.ticket.poll(context, want) else {
            return Ok(());
        };
        voice.figures = figures;
        let finish = match &ending {
            None => None,
            Some(ending) => match outcome(ending) {
                Ok(finish) => Some(finish),
                Err(failure) if self.frames.absorb(voice, &failure, out) => return Ok(()),
                Err(failure) => return Err(failure),
            },
        };
        if self.frames.say_it_all() {
            voice.said.grow(&voice.ticket.reply, tokens);
        }
        out.reserve(self.last_len + SPARE);
        self.frames.news(&News { voice, tokens, finish }, out);
        voice.sent = tokens;
        Ok(())
    }

    fn fail(&mut self, failure: Failure, out: &mut Vec<u8>) {
        self.frames.failure(&failure, out);
        // SGLang leaves its loop over the tokens there, and tells the usage all the same.
        if failure.is_by_scheduler() {
            self.frames.tail(&self.voices, out);
        }
        self.close(out);
        if !self.begun && !failure.is_by_scheduler() {
            self.failed = Some(failure);
        }
        // What still runs beside the failed reply is of no use to anybody.
        self.voices.clear();
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.frames.last());
        self.over = true;
    }
}

/// The count of tokens that completes the frame after `sent` tokens: 1, 1 + interval, 1 + 2·interval, …
fn next_frame(sent: u32, interval: u32) -> u32 {
    match sent.checked_sub(1) {
        None => 1,
        Some(later) => (later / interval).saturating_add(1).saturating_mul(interval).saturating_add(1),
    }
}

/// What an ending means for the client: a last frame, or a failure.
pub(super) fn outcome(ending: &Ending) -> Result<&Finish, Failure> {
    use simworker_core::FinishReason;
    match ending {
        Ending::Finished(Finish { reason: FinishReason::Error { status, message }, .. }) => {
            Err(Failure::engine(*status, *message, true))
        }
        Ending::Finished(finish) => Ok(finish),
        Ending::Refused { status, message, by_scheduler } => {
            Err(Failure::engine(*status, message.clone(), *by_scheduler))
        }
    }
}

impl<F: Frames> Body for TokenStream<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(chunk) = this.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        this.poll_chunk(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.over && self.ready.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::next_frame;

    #[test]
    fn frames_are_the_first_token_and_then_every_interval() {
        let frames = |interval| {
            std::iter::successors(Some(next_frame(0, interval)), move |sent| {
                Some(next_frame(*sent, interval))
            })
        };
        assert_eq!(frames(1).take(4).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(frames(8).take(4).collect::<Vec<_>>(), [1, 9, 17, 25]);
        assert_eq!(next_frame(12, 8), 17, "after a merged frame the grid is found again");
    }
}
