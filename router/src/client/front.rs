//! What hyper reads from and writes to: the client's socket, or what TLS makes of it.

use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Turn;
use crate::error::Refusal;

/// Longest answer that hyper gives on its own account, with room to spare.
const MAX_OWN_ANSWER: usize = 256;

/// Notes that bytes of a request have come, and keeps hyper from refusing one in its own way: without a body, an id or
/// a trace in the metrics. The connection is then told by [`Turn::over`] to do it in ours.
#[derive(Debug)]
pub(crate) struct Front<'a, IO> {
    inner: IO,
    turn: &'a Turn,
}

impl<'a, IO> Front<'a, IO> {
    pub(crate) fn new(inner: IO, turn: &'a Turn) -> Self {
        Self { inner, turn }
    }

    pub(crate) fn into_inner(self) -> IO {
        self.inner
    }

    /// Whether these bytes are not to be written.
    fn withholds(&self, bytes: &[u8]) -> bool {
        refusal_of_hyper(bytes).is_some_and(|refusal| self.turn.refuse(refusal))
    }
}

/// The refusal, if this is an answer that hyper gives to a head that it does not understand. All of ours have an id.
fn refusal_of_hyper(bytes: &[u8]) -> Option<Refusal> {
    let status = bytes.strip_prefix(b"HTTP/1.")?.get(1..5)?;
    let refusal = match status {
        b" 400" => Refusal::HeadInvalid,
        b" 414" => Refusal::UriTooLong,
        b" 431" => Refusal::HeadTooLarge,
        _ => return None,
    };
    let has = |part: &str| memmem::find(bytes, part.as_bytes()).is_some();
    let is_whole = bytes.len() <= MAX_OWN_ANSWER && bytes.ends_with(b"\r\n\r\n");
    (is_whole && has("\r\ncontent-length: 0\r\n") && !has("\r\nx-request-id:")).then_some(refusal)
}

impl<IO: AsyncRead + Unpin> AsyncRead for Front<'_, IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.turn.hear();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Front<'_, IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.withholds(bytes) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        if let [only] = parts
            && self.withholds(only)
        {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_hyper_says_by_itself_is_its_refusal() {
        let own = |status: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\ndate: now\r\n\r\n")
        };
        let of = |text: &str| refusal_of_hyper(text.as_bytes());
        assert_eq!(of(&own("400 Bad Request")), Some(Refusal::HeadInvalid));
        assert_eq!(of(&own("414 URI Too Long")), Some(Refusal::UriTooLong));
        assert_eq!(of(&own("431 Request Header Fields Too Large")), Some(Refusal::HeadTooLarge));
        let ours = "HTTP/1.1 400 Bad Request\r\nx-request-id: a\r\ncontent-length: 0\r\n\r\n";
        let with_body = "HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\n\r\n\r\n";
        for other in [own("200 OK"), own("404 Not Found"), ours.into(), with_body.into(), "HTTP/1.1 4".into()]
        {
            assert_eq!(of(&other), None, "{other}");
        }
    }
}
