//! One worker: its engines, the requests on their way into it, and the mailboxes of those inside.
//!
//! Everything that changes sits behind one short lock. Whoever takes it first brings the engine up to now, step by
//! step, so that HTTP tasks and the pacer see the same order of events; whoever leaves it publishes the next deadline.

mod inner;
mod side;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use protocol::tokenizer::{Token, mix, reply_block};
use simworker_core::{
    ConfigError, EngineLoads, EngineTotals, HandoffFault, Limits, LoadBalance, Ranks, RequestId,
};
use tokio::sync::{mpsc, watch};

use crate::clock::{ScaledClock, unix_seconds};
use crate::config::WorkerConfig;
use crate::handoff::{Failed, Handoff, Life, Task};
use crate::latency::{Latencies, Traffic};
use crate::mailbox::Mailbox;
use crate::pacer::Alarm;
use crate::ticket::{Reply, Ticket};
use inner::{Inner, Live, Surroundings};
use side::Side;

/// One request as HTTP hands it over.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) rid: String,
    pub(crate) prompt: Arc<[Token]>,
    pub(crate) output: Output,
    pub(crate) ignore_eos: bool,
    pub(crate) priority: i64,
    pub(crate) namespace: u64,
    pub(crate) traffic: Traffic,
    /// The rank that the request names.
    pub(crate) rank: Option<u32>,
    /// The other side, where the worker does only a part of the work.
    pub(crate) handoff: Option<Handoff>,
}

/// How long the reply is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Output {
    /// So many tokens.
    Tokens(u32),
    /// Nothing was asked for: to the end of the context, or to the end of the text if that may come first.
    Open,
}

/// Another request in flight has this id.
#[derive(Debug)]
pub(crate) struct DuplicateRid;

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) config: WorkerConfig,
    /// Place in the host.
    index: u32,
    /// Wall time of the start, seconds since the epoch, as the bits of a double.
    started: AtomicU64,
    /// The bounds on the length of requests.
    pub(crate) limits: Limits,
    clock: ScaledClock,
    alarm: Arc<Alarm>,
    /// Engine time at which something is due; `u64::MAX` when nothing is.
    deadline_ns: AtomicU64,
    /// Requests that came without an id.
    unnamed: AtomicU64,
    life: watch::Sender<Life>,
    inner: Mutex<Inner>,
}

impl Worker {
    /// An idle worker; `index` is its place in the host, and `tasks` takes what is to be done elsewhere.
    pub(crate) fn new(
        config: WorkerConfig,
        index: u32,
        clock: ScaledClock,
        alarm: Arc<Alarm>,
        tasks: mpsc::UnboundedSender<Task>,
    ) -> Result<Self, ConfigError> {
        let engine = Ranks::new(config.engine.clone(), config.dp())?;
        let limits = engine.limits();
        let tells_ranks = config.dp_size > 1 && config.dp().balance != LoadBalance::FollowBootstrapRoom;
        let inner = Inner::new(engine, Surroundings { tells_ranks, tasks });
        Ok(Self {
            config,
            index,
            started: AtomicU64::new(unix_seconds().to_bits()),
            limits,
            clock,
            alarm,
            deadline_ns: AtomicU64::new(u64::MAX),
            unnamed: AtomicU64::new(0),
            life: watch::Sender::new(Life::first(process_seed(index))),
            inner: Mutex::new(inner),
        })
    }

    /// Wall time of the start, seconds since the epoch.
    pub(crate) fn started(&self) -> f64 {
        f64::from_bits(self.started.load(Ordering::Relaxed))
    }

    /// Its process dies: requests are lost, the cache and the counters are empty.
    pub(crate) fn die(&self) {
        self.with(|inner, _| {
            // The same configuration has made an engine before.
            if let Ok(engine) = Ranks::new(self.config.engine.clone(), self.config.dp()) {
                inner.restart(engine);
            }
        });
        self.life.send_modify(|life| life.is_up = false);
    }

    /// Its process starts anew.
    pub(crate) fn begin_anew(&self) {
        self.started.store(unix_seconds().to_bits(), Ordering::Relaxed);
    }

    /// The process serves on all its ports.
    pub(crate) fn rise(&self) {
        self.life.send_modify(|life| *life = life.next());
    }

    /// The present start of its process, or the last one.
    pub(crate) fn boot(&self) -> u64 {
        self.life.borrow().boot
    }

    /// Whether its process is there, from now on.
    pub(crate) fn life(&self) -> watch::Receiver<Life> {
        self.life.subscribe()
    }

    /// From now on the load that is told is that of this moment, or again the real one.
    pub(crate) fn freeze_loads(&self, is_frozen: bool) {
        self.with(|inner, _| {
            inner.frozen = is_frozen.then(|| inner.told_loads());
        });
    }

    /// The load of each rank to tell, and the moment it is of in seconds since the epoch.
    pub(crate) fn told_loads(&self) -> (Vec<EngineLoads>, f64) {
        self.with(|inner, _| inner.told_loads())
    }

    /// When the pacer must look at this worker next, in engine time.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Ordering::Acquire)
    }

    /// Does all that is due.
    pub(crate) fn catch_up(&self) {
        self.with(|_, _| ());
    }

    /// Sends a request on its way. `rid` is taken until the request ends.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<Ticket, DuplicateRid> {
        let reply = Reply { block: reply_block(&job.prompt) };
        let length = self.output_length(&job, reply);
        let mailbox = Arc::new(Mailbox::new());
        let prompt_tokens = u32::try_from(job.prompt.len()).unwrap_or(u32::MAX);
        let (rid, prompt) = (job.rid.clone(), Arc::clone(&job.prompt));
        let id = self.with(|inner, now_ns| {
            let live = Live {
                rid: job.rid.clone(),
                mailbox: Arc::clone(&mailbox),
                traffic: job.traffic,
                arrived_ns: now_ns,
                due_ns: Some(now_ns.saturating_add(self.config.request_overhead_ns)),
                side: Side::Alone,
            };
            inner.enlist(job, length.tokens, live)
        })?;
        Ok(Ticket {
            worker: Arc::clone(self),
            id,
            mailbox,
            rid,
            prompt,
            prompt_tokens,
            reply,
            ends_by_itself: length.ends_by_itself,
            ended: false,
        })
    }

    fn output_length(&self, job: &Job, reply: Reply) -> Length {
        let room = self.config.engine.context_len.saturating_sub(job.prompt.len() as u32).max(1);
        match job.output {
            Output::Tokens(tokens) => Length { tokens, ends_by_itself: false },
            Output::Open if job.ignore_eos => Length { tokens: room, ends_by_itself: false },
            Output::Open => {
                let text = length_of_text(reply);
                Length { tokens: text.min(room), ends_by_itself: text < room }
            }
        }
    }

    /// An id for a request that came without one: unique, and not a function of the wall clock's resolution.
    pub(crate) fn fresh_rid(&self) -> String {
        let count = self.unnamed.fetch_add(1, Ordering::Relaxed);
        let seed = mix(self.started().to_bits() ^ mix(count ^ u64::from(self.index) << 40));
        format!("{seed:016x}{:016x}", mix(seed))
    }

    /// Ends one request.
    pub(crate) fn abort(&self, id: RequestId) {
        self.with(|inner, now_ns| inner.abort(now_ns, id));
    }

    /// Ends all requests whose ids begin with this: SGLang's scheduler takes an id for a prefix. (A lone front end
    /// passes on only ids in flight, several pass on every one; this is what several do.) No id, no end.
    pub(crate) fn abort_named(&self, rid: &str) {
        if !rid.is_empty() {
            self.with(|inner, now_ns| inner.abort_matching(now_ns, rid));
        }
    }

    /// Ends all requests.
    pub(crate) fn abort_all(&self) {
        self.with(|inner, now_ns| inner.abort_matching(now_ns, ""));
    }

    /// Empties the cache; false while requests are on their way, waiting or running.
    pub(crate) fn flush(&self) -> bool {
        self.with(|inner, _| inner.live.is_empty() && inner.engine.flush())
    }

    /// The load of each rank and its counters, at one moment.
    pub(crate) fn report(&self) -> Vec<(EngineLoads, EngineTotals)> {
        self.with(|inner, _| inner.report())
    }

    /// The same, and the latencies of all requests so far.
    pub(crate) fn full_report(&self) -> (Vec<(EngineLoads, EngineTotals)>, Latencies) {
        self.with(|inner, _| (inner.report(), inner.latencies.clone()))
    }

    /// Prefill: waits until the KV of `room` has been handed off by `rank`, and tells how many of its tokens were found
    /// in the cache. `is_doomed` lets the transfer fail.
    pub(crate) async fn want_kv(&self, rank: u32, room: u64, is_doomed: bool) -> Result<u32, Failed> {
        let sent = self.with(|inner, now_ns| inner.want_kv(now_ns, rank, room, is_doomed));
        let _waits = Waits { worker: self, room };
        match sent.await {
            Ok(outcome) => outcome,
            // The request has ended in a way that the decode side is not told of: its own timeouts tell.
            Err(_) => std::future::pending().await,
        }
    }

    /// Decode: the KV of a request has arrived, with so many tokens from the cache of the other side, or it will not.
    pub(crate) fn kv_outcome(&self, id: RequestId, room: u64, outcome: Result<u32, HandoffFault>) {
        self.with(|inner, now_ns| inner.kv_outcome(now_ns, id, room, outcome));
    }

    /// Runs `act` on the engine as of now, delivers what came of it and publishes the next deadline.
    fn with<T>(&self, act: impl FnOnce(&mut Inner, u64) -> T) -> T {
        let mut inner: MutexGuard<'_, Inner> = self.inner.lock();
        // Read under the lock, so that the engine never sees time go back.
        let now_ns = self.clock.now_ns();
        inner.catch_up(now_ns);
        let result = act(&mut inner, now_ns);
        inner.deliver();
        let deadline_ns = inner.next_deadline();
        self.deadline_ns.store(deadline_ns, Ordering::Release);
        drop(inner);
        self.alarm.ring(deadline_ns);
        result
    }
}

/// Somebody waits for the KV of a room; no longer when this is dropped.
struct Waits<'a> {
    worker: &'a Worker,
    room: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.worker.with(|inner, _| inner.forget_kv(self.room));
    }
}

/// Differs from worker to worker, and from process to process on the same ports.
fn process_seed(index: u32) -> u64 {
    unix_seconds().to_bits() ^ mix(u64::from(index) << 32 | u64::from(std::process::id()))
}

struct Length {
    tokens: u32,
    ends_by_itself: bool,
}

/// How long a reply is when nobody says: 64 to 511 tokens, a function of the prompt.
fn length_of_text(reply: Reply) -> u32 {
    64 + (mix(reply.block) % 448) as u32
}
