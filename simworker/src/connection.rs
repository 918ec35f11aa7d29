//! Connections that notice when the client goes away, whatever it has sent before.
//!
//! While a request is being answered, hyper looks for the end of the connection only as long as it holds no unread
//! bytes of it: a stray line after a body, or a pipelined request, hides that the client has gone, and the engine
//! would work for nobody. But hyper flushes whenever it is polled. So each flush reads ahead here, into a buffer of
//! this connection, and fails at the end of what the client sends, which drops the connection with all it waits for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes that are read ahead. The end of a connection is not seen behind more than that.
const MOST_AHEAD: usize = 256 << 10;

/// A connection to a client.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes that nobody has asked for yet.
    ahead: BytesMut,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        // Frames are small and must not wait for each other; a connection that refuses the option still works.
        let _ = stream.set_nodelay(true);
        Self { stream, ahead: BytesMut::new() }
    }

    /// The client gets a reset, and not an end, when this is dropped. What has not been sent by then is lost.
    pub(crate) fn reset_on_drop(&self) {
        // Where this is refused the client gets an end, which is the next best.
        let _ = self.stream.set_zero_linger();
    }

    /// Reads ahead what is there.
    ///
    /// # Errors
    /// At the end of what the client sends. When there was something before it, that is left to be read first, and the
    /// error comes with the next look.
    fn look_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let before = self.ahead.len();
        while self.ahead.len() < MOST_AHEAD {
            let mut space = [0; 4096];
            let mut space = ReadBuf::new(&mut space);
            if Pin::new(&mut self.stream).poll_read(context, &mut space)?.is_pending() {
                break;
            }
            if space.filled().is_empty() {
                if self.ahead.len() == before {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                break;
            }
            self.ahead.extend_from_slice(space.filled());
        }
        if self.ahead.len() > before {
            // Whoever reads has been told that there is nothing, and is not woken for what has been taken here.
            context.waker().wake_by_ref();
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look_ahead(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
