//! One request's entry in the books, and its body, which is measured as it is read.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, Sleep, sleep_until};

use super::line::Line;
use super::seen::End;
use super::station::Station;

/// Most bytes of the body of an abort that are looked at.
const MOST_OF_ABORT: usize = 4096;

/// A request that has not ended. Dropping it means that the client went away.
#[derive(Debug)]
pub(super) struct Visit {
    station: Arc<Station>,
    line: Arc<Line>,
    /// Its number, if books are kept.
    seq: Option<u64>,
    pub(super) sent_bytes: u64,
    ended: bool,
}

impl Visit {
    pub(super) fn new<B>(station: &Arc<Station>, line: &Arc<Line>, request: &Request<B>) -> Self {
        line.busy();
        let seq = station.log().map(|log| log.arrived(line.number, request));
        Self { station: Arc::clone(station), line: Arc::clone(line), seq, sent_bytes: 0, ended: false }
    }

    /// The request's body, to be read through this.
    pub(super) fn body(&self, inner: Incoming, is_abort: bool, rate: Option<u64>) -> SeenBody {
        let record = self.seq.map(|seq| {
            let head = is_abort.then(Vec::new);
            Record { station: Arc::clone(&self.station), seq, hash: Sha256::new(), bytes: 0, head }
        });
        SeenBody { inner, record, pace: rate.map(Pace::new) }
    }

    pub(super) fn status(&self, status: u16) {
        if let (Some(log), Some(seq)) = (self.station.log(), self.seq) {
            log.status(seq, status);
        }
    }

    /// All of the answer has been handed out.
    pub(super) fn answered(&mut self) {
        self.end(End::Answered, None);
    }

    /// This fault ends the request.
    pub(super) fn fault(&mut self, key: &'static str) {
        self.end(End::Fault, Some(key));
    }

    fn end(&mut self, end: End, fault: Option<&'static str>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let (Some(log), Some(seq)) = (self.station.log(), self.seq) {
            log.ended(seq, end, fault, self.sent_bytes);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.end(End::ClientLeft, None);
        self.line.idle();
    }
}

/// A request's body.
#[derive(Debug)]
pub(crate) struct SeenBody {
    inner: Incoming,
    /// If books are kept and the body has not ended.
    record: Option<Record>,
    /// If it is read slowly.
    pace: Option<Pace>,
}

/// Reading so many bytes a second. What has been read is handed on when it could have come at that rate, and nothing is
/// read meanwhile, so that the client has to wait too.
#[derive(Debug)]
struct Pace {
    rate: u64,
    due: Instant,
    held: Option<(Frame<Bytes>, Pin<Box<Sleep>>)>,
}

impl Pace {
    fn new(rate: u64) -> Self {
        Self { rate, due: Instant::now(), held: None }
    }

    fn hold(&mut self, frame: Frame<Bytes>) {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        self.due += Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        self.held = Some((frame, Box::pin(sleep_until(self.due))));
    }

    /// What is held, when it is due; none when nothing is held.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Some((_, timer)) = &mut self.held {
            ready!(timer.as_mut().poll(context));
        }
        Poll::Ready(self.held.take().map(|(frame, _)| frame))
    }
}

#[derive(Debug)]
struct Record {
    station: Arc<Station>,
    seq: u64,
    hash: Sha256,
    bytes: u64,
    /// The beginning, if that is of interest.
    head: Option<Vec<u8>>,
}

impl Record {
    fn take(&mut self, data: &[u8]) {
        self.hash.update(data);
        self.bytes += data.len() as u64;
        if let Some(head) = &mut self.head {
            let room = MOST_OF_ABORT.saturating_sub(head.len());
            head.extend_from_slice(&data[..data.len().min(room)]);
        }
    }

    fn finish(self, is_whole: bool) {
        let Some(log) = self.station.log() else { return };
        let hex = |digest: &[u8]| digest.iter().map(|byte| format!("{byte:02x}")).collect();
        log.body(self.seq, self.bytes, is_whole.then(|| hex(&self.hash.finalize())));
        if let Some(head) = self.head {
            log.aborted(&head);
        }
    }
}

impl SeenBody {
    fn finish(&mut self, is_whole: bool) {
        if let Some(record) = self.record.take() {
            record.finish(is_whole);
        }
    }
}

impl Drop for SeenBody {
    fn drop(&mut self) {
        let is_whole = self.inner.is_end_stream();
        self.finish(is_whole);
    }
}

impl SeenBody {
    /// Reads and books what the client sends.
    fn poll_inner(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(record), Some(data)) = (&mut self.record, frame.data_ref()) {
                    record.take(data);
                }
                if self.inner.is_end_stream() {
                    self.finish(true);
                }
            }
            Some(Err(_)) => {
                if let Some(Record { station, seq, .. }) = &self.record
                    && let Some(log) = station.log()
                {
                    log.body_failed(*seq);
                }
                self.finish(false);
            }
            None => self.finish(true),
        }
        Poll::Ready(frame)
    }
}

impl Body for SeenBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        loop {
            if let Some(pace) = &mut self.pace
                && let Some(frame) = ready!(pace.poll(context))
            {
                return Poll::Ready(Some(Ok(frame)));
            }
            let frame = ready!(self.poll_inner(context));
            match (frame, &mut self.pace) {
                (Some(Ok(frame)), Some(pace)) => pace.hold(frame),
                (frame, _) => return Poll::Ready(frame),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && self.pace.as_ref().is_none_or(|pace| pace.held.is_none())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.pace {
            // Something may be held that is no longer to come.
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }
}
