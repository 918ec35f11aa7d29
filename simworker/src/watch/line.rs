//! A connection that can be ended in the way that a fault wants.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::station::Station;
use crate::connection::Connection;
use crate::fault::How;

/// What the parts of a connection tell each other.
#[derive(Debug)]
pub(super) struct Line {
    /// The number of the connection on its worker.
    pub(super) number: u64,
    /// It is to end with a reset.
    reset: AtomicBool,
    /// It is to end when all is written.
    end_when_flushed: AtomicBool,
    /// Something may not have been written yet.
    unflushed: AtomicBool,
    /// The task wants to run when it has.
    wake_when_flushed: AtomicBool,
    /// Requests share it (HTTP/2): a fault of one of them ends that one, and not the connection.
    shared: AtomicBool,
    /// No more requests are to begin.
    wind_down: Notify,
    busy: Mutex<Busy>,
    turned: Notify,
}

/// Requests that are being answered.
#[derive(Debug)]
struct Busy {
    requests: u32,
    /// Since when there has been none.
    idle_since: Instant,
}

impl Line {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            reset: AtomicBool::new(false),
            end_when_flushed: AtomicBool::new(false),
            unflushed: AtomicBool::new(false),
            wake_when_flushed: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            wind_down: Notify::new(),
            busy: Mutex::new(Busy { requests: 0, idle_since: Instant::now() }),
            turned: Notify::new(),
        }
    }

    /// Requests share it from now on.
    pub(super) fn is_shared(&self) {
        self.shared.store(true, Ordering::Relaxed);
    }

    /// The connection ends with a reset when it is dropped.
    pub(super) fn reset(&self) {
        self.reset.store(true, Ordering::Relaxed);
    }

    /// A request ends like that, and the connection with it if they do not share it.
    pub(super) fn reset_request(&self) {
        if !self.shared.load(Ordering::Relaxed) {
            self.reset();
        }
    }

    /// Waits until no more requests are to begin.
    pub(super) async fn winds_down(&self) {
        self.wind_down.notified().await;
    }

    /// The connection ends when all is written; a shared one when all requests on it are answered.
    pub(super) fn end_when_flushed(&self, how: How) {
        if self.shared.load(Ordering::Relaxed) {
            self.wind_down.notify_one();
            return;
        }
        if how == How::Reset {
            self.reset();
        }
        self.end_when_flushed.store(true, Ordering::Relaxed);
    }

    /// Something has been handed to the server that has to be written.
    pub(super) fn written_to(&self) {
        self.unflushed.store(true, Ordering::Relaxed);
    }

    /// Ready when all is written.
    pub(super) fn poll_flushed(&self) -> Poll<()> {
        // The frames of a shared one are in order anyway: what was handed over goes out before the end of its stream.
        if !self.shared.load(Ordering::Relaxed) && self.unflushed.load(Ordering::Relaxed) {
            self.wake_when_flushed.store(true, Ordering::Relaxed);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// A request has come.
    pub(super) fn busy(&self) {
        self.busy.lock().requests += 1;
    }

    /// It has ended.
    pub(super) fn idle(&self) {
        let mut busy = self.busy.lock();
        busy.requests = busy.requests.saturating_sub(1);
        busy.idle_since = Instant::now();
        drop(busy);
        self.turned.notify_one();
    }

    pub(super) fn idle_since(&self) -> Option<Instant> {
        let busy = self.busy.lock();
        (busy.requests == 0).then_some(busy.idle_since)
    }

    /// Waits until a request has ended.
    pub(super) async fn turned(&self) {
        self.turned.notified().await;
    }

    fn flushed(&self, context: &mut Context<'_>) -> io::Result<()> {
        self.unflushed.store(false, Ordering::Relaxed);
        if self.wake_when_flushed.swap(false, Ordering::Relaxed) {
            context.waker().wake_by_ref();
        }
        if self.end_when_flushed.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

/// A connection and its line.
#[derive(Debug)]
pub(super) struct Tapped {
    connection: Connection,
    line: Arc<Line>,
    station: Arc<Station>,
}

impl Tapped {
    pub(super) fn new(connection: Connection, line: Arc<Line>, station: Arc<Station>) -> Self {
        station.opened();
        Self { connection, line, station }
    }
}

impl Drop for Tapped {
    fn drop(&mut self) {
        if self.line.reset.load(Ordering::Relaxed) {
            self.connection.reset_on_drop();
        }
        self.station.closed();
    }
}

impl AsyncRead for Tapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.connection).poll_flush(context))?;
        Poll::Ready(self.line.flushed(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}
