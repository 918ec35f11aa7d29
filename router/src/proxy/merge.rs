//! The bytes of an answer as they come to the client: what was read of them before, what comes, and, where a prefill worker
//! knows the log-probabilities of the prompt, these among them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, header};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use protocol::pd::{Frames, InputLists};

use super::beside::Beside;
use super::tries::Paired;
use crate::upstream::Connection;

/// Longest answer in one piece into which something is merged; a longer one goes on as it is.
const MAX_WHOLE: usize = 64 << 20;

/// Where an answer comes from.
#[derive(Debug)]
pub(crate) struct Source {
    inner: Incoming,
    paired: Option<Box<Paired>>,
    merge: Option<Merge>,
}

/// How something is merged into an answer.
#[derive(Debug)]
enum Merge {
    /// It is one piece, of which this has come.
    Whole(InputLists, Vec<u8>),
    /// It is a stream.
    Stream(Frames),
    /// The rest goes on as it comes.
    Rest,
}

impl Source {
    /// An answer with these header fields.
    pub(super) fn new(inner: Incoming, mut paired: Option<Box<Paired>>, headers: &HeaderMap) -> Self {
        // What is compressed cannot be read.
        let is_plain = || !headers.contains_key(header::CONTENT_ENCODING);
        let lists = paired.as_mut().and_then(|paired| paired.lists.take()).filter(|_| is_plain());
        let merge = lists.map(|lists| {
            let first = paired.as_ref().and_then(|paired| paired.first.as_deref()).unwrap_or_default();
            match first.trim_ascii_start().first() {
                Some(b'{' | b'[') | None => Merge::Whole(lists, Vec::new()),
                Some(_) => Merge::Stream(Frames::new(lists)),
            }
        });
        Self { inner, paired, merge }
    }

    /// Polls the answer, and between two attempts the connection that feeds it.
    pub(super) fn poll(
        &mut self,
        connection: Option<&mut Connection>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(first) = self.paired.as_mut().and_then(|paired| paired.first.take()) {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let first = Pin::new(&mut self.inner).poll_frame(cx);
        match (&first, connection) {
            (Poll::Pending, Some(connection)) => {
                connection.drive(cx);
                Pin::new(&mut self.inner).poll_frame(cx)
            }
            _ => first,
        }
    }

    /// Whether something is merged into it.
    pub(super) fn merges(&self) -> bool {
        self.merge.is_some()
    }

    /// What goes on to the client by these bytes, where something is merged.
    pub(super) fn merge(&mut self, bytes: Bytes) -> Bytes {
        let Some(merge) = &mut self.merge else { return bytes };
        match merge {
            Merge::Rest => bytes,
            Merge::Stream(frames) => {
                let merged = frames.push(&bytes);
                if frames.is_done() {
                    *merge = Merge::Rest;
                }
                merged.into()
            }
            Merge::Whole(_, held) => {
                held.extend_from_slice(&bytes);
                if held.len() <= MAX_WHOLE {
                    return Bytes::new();
                }
                let held = std::mem::take(held);
                *merge = Merge::Rest;
                held.into()
            }
        }
    }

    /// The same for its end.
    pub(super) fn finish(&mut self) -> Bytes {
        match self.merge.take() {
            None | Some(Merge::Rest) => Bytes::new(),
            Some(Merge::Stream(mut frames)) => frames.finish().into(),
            Some(Merge::Whole(lists, held)) => lists.merged(&held).unwrap_or(held).into(),
        }
    }

    /// Whether all that the worker sends has come.
    pub(super) fn is_over(&self) -> bool {
        self.paired.as_ref().is_none_or(|paired| paired.first.is_none()) && self.inner.is_end_stream()
    }

    /// Whether the client has all of it.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.merge.is_none() && self.is_over()
    }

    /// What it still comes to.
    pub(crate) fn size_hint(&self) -> SizeHint {
        let first =
            self.paired.as_ref().and_then(|paired| paired.first.as_ref()).map_or(0, Bytes::len) as u64;
        match self.inner.size_hint().exact() {
            Some(rest) if self.merge.is_none() => SizeHint::with_exact(first + rest),
            _ => SizeHint::default(),
        }
    }

    /// The leg beside it, where one goes on. The rooms of both are let go.
    pub(super) fn part(&mut self) -> Option<Beside> {
        self.paired.take()?.beside
    }
}
