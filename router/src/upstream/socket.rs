//! A socket to a worker that remembers whether the worker has said anything.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Whether a byte has come since somebody last began to listen. A request may be sent again only if none has.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<AtomicBool>);

impl Heard {
    /// Forgets what came before.
    pub(super) fn listen(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether something came since.
    pub(super) fn anything(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What bytes go through. The plain one is what most have; the other is larger by far.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Calls the method of whichever stream it is.
macro_rules! either {
    ($socket:expr, $stream:ident => $call:expr) => {
        match &mut $socket.stream {
            Stream::Plain($stream) => $call,
            Stream::Tls($stream) => $call,
        }
    };
}

/// A connected socket and the mark that it sets when a byte comes.
#[derive(Debug)]
pub(super) struct Socket {
    stream: Stream,
    heard: Heard,
}

impl Socket {
    pub(super) fn new(stream: Stream, heard: Heard) -> Self {
        Self { stream, heard }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = either!(self, stream => Pin::new(stream).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            self.heard.0.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
