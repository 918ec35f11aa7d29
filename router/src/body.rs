//! The body of an answer: our own few bytes, or a worker's stream passed through.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Frame, SizeHint};

use crate::proxy::AnswerBody;

/// What hyper writes to the client.
#[derive(Debug)]
pub(crate) enum Body {
    /// The router's own answer.
    Own(Full<Bytes>),
    /// A worker's answer.
    Answer(Box<AnswerBody>),
}

impl Body {
    /// An answer of the router itself.
    pub(crate) fn own(bytes: impl Into<Bytes>) -> Self {
        Self::Own(Full::new(bytes.into()))
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = crate::proxy::Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Own(full) => Pin::new(full).poll_frame(cx).map_err(|never| match never {}),
            Self::Answer(answer) => answer.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(full) => full.is_end_stream(),
            Self::Answer(answer) => answer.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(full) => full.size_hint(),
            Self::Answer(answer) => answer.size_hint(),
        }
    }
}
