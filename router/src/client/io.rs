//! A client's socket, lent to hyper and watched at the same time.

use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::Turn;

/// What the end of a client's stream shows as, whether or not bytes before it are still unread: the kernel tells it
/// beside them, and the runtime files it under this interest, which unread bytes do not satisfy.
#[cfg(any(target_os = "linux", target_os = "android"))]
const END: Interest = Interest::PRIORITY;
/// Elsewhere only a broken connection shows; a closed one shows once hyper reads.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const END: Interest = Interest::ERROR;

/// Waits until the client has closed its side, or the connection is broken.
pub(crate) async fn left(stream: &TcpStream) {
    // An error means that the runtime is ending, and the connection with it.
    let _ = stream.ready(END).await;
}

/// Reads and writes a borrowed socket, and notes whether the client takes what is written.
#[derive(Debug)]
pub(crate) struct ClientIo<'a> {
    stream: &'a TcpStream,
    turn: &'a Turn,
}

impl<'a> ClientIo<'a> {
    pub(crate) fn new(stream: &'a TcpStream, turn: &'a Turn) -> Self {
        Self { stream, turn }
    }

    fn poll_write_by(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> std::io::Result<usize>,
    ) -> Poll<std::io::Result<usize>> {
        loop {
            let writable = self.stream.poll_write_ready(cx);
            self.turn.set_blocked(writable.is_pending());
            ready!(writable)?;
            match write(self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for ClientIo<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let room = buffer.remaining();
            match self.stream.try_read_buf(buffer) {
                Ok(read) => {
                    if 0 < read && read < room {
                        // The socket is empty now, so the next read need not ask it before it waits.
                        let empty = || Err::<(), _>(ErrorKind::WouldBlock.into());
                        let _ = self.stream.try_io(Interest::READABLE, empty);
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for ClientIo<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.poll_write_by(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        self.poll_write_by(cx, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(self.stream, rustix::net::Shutdown::Write).map_err(Into::into))
    }
}
