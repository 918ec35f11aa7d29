//! Somebody who listens to KV events over ZeroMQ.

use std::time::{Duration, Instant};

use protocol::kv_events::{Batch, KvEvent, decode};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use crate::client::{PATIENCE, Worker};

/// A message, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) topic: Vec<u8>,
    pub(crate) seq: i64,
    pub(crate) payload: Vec<u8>,
}

impl Told {
    fn of(frames: &[Vec<u8>]) -> Self {
        let [topic, seq, payload] = frames else { panic!("{} frames", frames.len()) };
        let seq = i64::from_be_bytes(seq[..].try_into().unwrap());
        Self { topic: topic.clone(), seq, payload: payload.clone() }
    }

    pub(crate) fn batch(&self) -> Batch {
        decode(&self.payload).unwrap()
    }

    pub(crate) fn events(&self) -> Vec<KvEvent> {
        self.batch().events
    }
}

/// A subscriber of one rank.
pub(crate) struct Subscriber {
    runtime: Runtime,
    socket: SubSocket,
}

impl Subscriber {
    /// Subscribes to a worker that has just started, and flushes its cache until that is told: a subscription takes its
    /// time to arrive. All that is told of these flushes is taken off.
    pub(crate) fn of(worker: &Worker, rank: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = &worker.kv_endpoints().endpoints[rank];
        let socket = runtime.block_on(async {
            let mut socket = SubSocket::new();
            socket.connect(endpoint).await.unwrap();
            socket.subscribe("kv").await.unwrap();
            socket
        });
        let mut this = Self { runtime, socket };
        // The first batch says that the cache is empty, then each flush says it again.
        for flushes in 1..1_000 {
            assert_eq!(worker.post_text("/flush_cache", "", "").status, 200);
            if let Some(mut told) = this.within(Duration::from_millis(20)) {
                while told.seq < flushes {
                    told = this.next();
                }
                return this;
            }
        }
        panic!("no subscription");
    }

    fn within(&mut self, patience: Duration) -> Option<Told> {
        let received = self.runtime.block_on(async { timeout(patience, self.socket.recv()).await });
        received.ok().map(|message| Told::of(&frames(message.unwrap())))
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Told {
        self.within(PATIENCE).unwrap()
    }
}

fn frames(message: ZmqMessage) -> Vec<Vec<u8>> {
    message.into_vec().iter().map(|frame| frame.to_vec()).collect()
}

/// What the replay has from a number on. The end mark must be there, and is not in the list.
pub(crate) fn replay(endpoint: &str, start: u64, with_topic: bool) -> Vec<Told> {
    ask(endpoint, start, with_topic, PATIENCE).unwrap()
}

/// Waits until a replay from the start has just so many batches, whatever becomes of connections meanwhile.
pub(crate) fn wait_for_replay_of(endpoint: &str, batches: usize) {
    let deadline = Instant::now() + PATIENCE;
    while ask(endpoint, 0, true, Duration::from_millis(500)).is_none_or(|told| told.len() != batches) {
        assert!(Instant::now() < deadline, "no replay of {batches} batches");
    }
}

fn ask(endpoint: &str, start: u64, with_topic: bool, patience: Duration) -> Option<Vec<Told>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut socket = DealerSocket::new();
        timeout(patience, socket.connect(endpoint)).await.ok()?.ok()?;
        let mut request = ZmqMessage::from(Vec::new());
        request.push_back(start.to_be_bytes().to_vec().into());
        // One that makes no sense is passed over.
        socket.send(ZmqMessage::from("?")).await.ok()?;
        socket.send(request).await.ok()?;
        let mut told = Vec::new();
        loop {
            let message = timeout(patience, socket.recv()).await.ok()?.ok()?;
            let mut frames = frames(message);
            assert!(frames.remove(0).is_empty(), "the frame that ends the envelope");
            if !with_topic {
                frames.insert(0, Vec::new());
            }
            let one = Told::of(&frames);
            if one.seq == -1 {
                assert_eq!((one.topic, one.payload), (Vec::new(), Vec::new()));
                return Some(told);
            }
            told.push(one);
        }
    })
}
