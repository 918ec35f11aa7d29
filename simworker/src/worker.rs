//! One worker: its engines, the requests on their way into it, and the mailboxes of those inside.
//!
//! Everything that changes sits behind one short lock. Whoever takes it first brings the engine up to now, step by
//! step, so that HTTP tasks and the pacer see the same order of events; whoever leaves it publishes the next deadline.

mod control;
mod front;
mod inner;
mod readers;
mod side;
mod speed;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use protocol::tokenizer::{Token, mix};
use simworker_core::{CacheNames, ConfigError, HandoffFault, Limits, LoadBalance, Ranks, RequestId};
use tokio::sync::{mpsc, watch};

use crate::clock::{ScaledClock, unix_seconds};
use crate::config::WorkerConfig;
use crate::handoff::{Failed, Handoff, Life, Task};
use crate::kv::Publisher;
use crate::lag::{Lag, Teller};
use crate::latency::{Latencies, Traffic};
use crate::mailbox::{Ending, Mailbox};
use crate::pacer::Alarm;
use crate::reply::{Reply, Wish};
use crate::tally::Tally;
use crate::ticket::Ticket;
use front::Front;
use inner::{Counted, Inner, Live, Surroundings, Times};
pub(crate) use inner::{RankReport, ToldLoads};
use side::Side;
use speed::StepSpeed;

/// One request as HTTP hands it over.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) rid: String,
    pub(crate) prompt: Arc<[Token]>,
    pub(crate) wish: Wish,
    pub(crate) priority: Option<i64>,
    /// Hash of the routing key.
    pub(crate) routing_key: Option<u64>,
    /// No more of the prompt than this is looked up in the cache.
    pub(crate) match_limit: Option<u32>,
    pub(crate) namespace: u64,
    pub(crate) names: Option<Arc<CacheNames>>,
    pub(crate) traffic: Traffic,
    /// It ends with its prefill and makes no token.
    pub(crate) is_prefill_only: bool,
    /// It counts in the metrics of answers (`log_metrics`).
    pub(crate) is_counted: bool,
    /// The rank that the request names.
    pub(crate) rank: Option<u32>,
    /// The other side, where the worker does only a part of the work.
    pub(crate) handoff: Option<Handoff>,
    /// It is not let in, and ends like this.
    pub(crate) fate: Option<Ending>,
}

impl Job {
    /// A request without any particulars; its id is still to be given.
    pub(crate) fn new(prompt: Arc<[Token]>, wish: Wish) -> Self {
        Self {
            rid: String::new(),
            prompt,
            wish,
            priority: None,
            routing_key: None,
            match_limit: None,
            namespace: 0,
            names: None,
            traffic: Traffic::Whole,
            is_prefill_only: false,
            is_counted: true,
            rank: None,
            handoff: None,
            fate: None,
        }
    }
}

/// All that a worker counts, at one moment.
#[derive(Debug)]
pub(crate) struct FullReport {
    pub(crate) ranks: Vec<RankReport>,
    pub(crate) latencies: Latencies,
    pub(crate) tally: Tally,
    /// Engine time since the start of its process.
    pub(crate) up_ns: u64,
    pub(crate) is_paused: bool,
}

/// Another request in flight has this id, or another one of the same body.
#[derive(Debug)]
pub(crate) struct DuplicateRid(pub(crate) String);

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) config: WorkerConfig,
    /// The way out for KV events.
    pub(crate) kv: Option<Arc<Publisher>>,
    /// Place in the host.
    index: u32,
    /// Wall time of the start, seconds since the epoch, as the bits of a double.
    started: AtomicU64,
    /// The bounds on the length of requests.
    pub(crate) limits: Limits,
    clock: ScaledClock,
    alarm: Arc<Alarm>,
    /// How late it is.
    pub(crate) lag: Lag,
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
        teller: &Arc<Teller>,
        tasks: mpsc::UnboundedSender<Task>,
        kv: Option<Arc<Publisher>>,
    ) -> Result<Self, ConfigError> {
        let engine = Ranks::new(config.engine.clone(), config.dp())?;
        let limits = engine.limits();
        let tells_ranks = config.dp_size > 1 && config.dp().balance != LoadBalance::FollowBootstrapRoom;
        let front = Front::new(config.live.token_overhead_ns, config.stream_interval);
        let speed = StepSpeed::new(&config.live, u64::from(index));
        let kv_bytes_per_token = config.engine.handoff.kv_bytes_per_token / f64::from(config.preset.gpus);
        let around = Surroundings { tells_ranks, tasks, kv: kv.clone(), kv_bytes_per_token };
        let inner = Inner::new(engine, around, front, speed, clock);
        let lag = Lag::new(clock, index, config.live.tells_lag.then(|| Arc::clone(teller)));
        Ok(Self {
            config,
            kv,
            index,
            started: AtomicU64::new(unix_seconds().to_bits()),
            limits,
            clock,
            alarm,
            lag,
            deadline_ns: AtomicU64::new(u64::MAX),
            unnamed: AtomicU64::new(0),
            life: watch::Sender::new(Life::first(process_seed(index))),
            inner: Mutex::new(inner),
        })
    }

    /// Its place in the host.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Wall time of the start, seconds since the epoch.
    pub(crate) fn started(&self) -> f64 {
        f64::from_bits(self.started.load(Ordering::Relaxed))
    }

    /// Its process dies: requests are lost, the cache and the counters are empty.
    pub(crate) fn die(&self) {
        // First, so that who hears of the loss can wait for the next start.
        self.life.send_modify(|life| life.is_up = false);
        self.with(|inner, now_ns| {
            // The same configuration has made an engine before.
            if let Ok(engine) = Ranks::new(self.config.engine.clone(), self.config.dp()) {
                inner.restart(now_ns, engine);
            }
        });
    }

    /// Its process starts anew.
    pub(crate) fn begin_anew(&self) {
        self.started.store(unix_seconds().to_bits(), Ordering::Relaxed);
        self.with(|inner, now_ns| inner.started_ns = now_ns);
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
        self.with(|inner, now_ns| {
            inner.frozen = is_frozen.then(|| inner.told_loads(now_ns));
        });
    }

    /// From now on steps take so many times as long as they should; 1 is as they should.
    pub(crate) fn set_slowness(&self, slowness: f64) {
        self.with(|inner, now_ns| inner.set_slowness(now_ns, slowness));
    }

    /// Requests in its queues, and on their way there.
    pub(crate) fn queued(&self) -> u64 {
        self.with(|inner, _| inner.queued())
    }

    /// The load of each rank to tell: what the ranks reported last.
    pub(crate) fn told_loads(&self) -> Vec<ToldLoads> {
        self.with(|inner, now_ns| inner.told_loads(now_ns))
    }

    /// An answer about the load took so long.
    pub(crate) fn has_told_loads(&self, took: Duration) {
        self.with(|inner, _| inner.tally.told_loads(took));
    }

    /// When the pacer must look at this worker next, in engine time.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Ordering::Acquire)
    }

    /// Does all that is due.
    pub(crate) fn catch_up(&self) {
        self.with(|_, _| ());
    }

    /// Sends a request on its way. Its id is taken until it ends.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<Ticket, DuplicateRid> {
        let rid = job.rid.clone();
        let tickets = self.submit_all(vec![job])?;
        tickets.into_iter().next().ok_or(DuplicateRid(rid))
    }

    /// Whether these ids are free and differ from each other.
    pub(crate) fn check_rids<'a>(&self, rids: impl Iterator<Item = &'a str>) -> Result<(), DuplicateRid> {
        self.with(|inner, _| inner.check_rids(rids))
    }

    /// Sends requests on their way, all of them or none. Their ids are taken until they end.
    pub(crate) fn submit_all(self: &Arc<Self>, jobs: Vec<Job>) -> Result<Vec<Ticket>, DuplicateRid> {
        let room = |prompt: &[Token]| self.config.engine.context_len.saturating_sub(prompt.len() as u32);
        // Before the lock is taken: stop strings are looked for in the whole reply.
        let draft = |job: Job| {
            let reply = Reply::new(&job.prompt, &job.wish, room(&job.prompt));
            (job, reply)
        };
        let drafts: Vec<(Job, Reply)> = jobs.into_iter().map(draft).collect();
        self.with(|inner, now_ns| {
            inner.check_rids(drafts.iter().map(|(job, _)| job.rid.as_str()))?;
            let tickets = drafts.into_iter().map(|(job, reply)| self.enlist(inner, now_ns, job, reply));
            Ok(tickets.collect())
        })
    }

    fn enlist(self: &Arc<Self>, inner: &mut Inner, now_ns: u64, job: Job, reply: Reply) -> Ticket {
        let mailbox = Arc::new(Mailbox::new());
        let prompt_tokens = u32::try_from(job.prompt.len()).unwrap_or(u32::MAX);
        let (rid, prompt) = (job.rid.clone(), Arc::clone(&job.prompt));
        let live = Live {
            rid: job.rid.clone(),
            mailbox: Arc::clone(&mailbox),
            traffic: job.traffic,
            counted: self.counted(&job),
            arrived_ns: now_ns,
            due_ns: Some(now_ns.saturating_add(self.config.request_overhead_ns)),
            side: Side::Alone,
            times: Times::default(),
        };
        let id = match job.fate.clone() {
            None => inner.enlist(job, &reply, live),
            Some(ending) => inner.turn_away(now_ns, &live, ending),
        };
        let worker = Arc::clone(self);
        Ticket { worker, id, mailbox, rid, prompt, prompt_tokens, arrived_ns: now_ns, reply, ended: false }
    }

    fn counted(&self, job: &Job) -> Counted {
        Counted {
            traffic: if job.is_counted { job.traffic } else { Traffic::Probe },
            priority: job.priority.filter(|_| self.config.engine.queue.priority.is_some()),
        }
    }

    /// Wall time of an engine time, seconds since the epoch.
    pub(crate) fn unix_s(&self, engine_ns: u64) -> f64 {
        self.clock.unix_s(engine_ns)
    }

    /// An id for a request that came without one: unique, and not a function of the wall clock's resolution.
    pub(crate) fn fresh_rid(&self) -> String {
        let count = self.unnamed.fetch_add(1, Ordering::Relaxed);
        let seed = mix(self.started().to_bits() ^ mix(count ^ u64::from(self.index) << 40));
        format!("{seed:016x}{:016x}", mix(seed))
    }

    /// What each rank counts.
    pub(crate) fn report(&self) -> Vec<RankReport> {
        self.with(|inner, now_ns| inner.report(now_ns))
    }

    /// The same, and the books of all requests so far.
    pub(crate) fn full_report(&self) -> FullReport {
        self.with(|inner, now_ns| FullReport {
            ranks: inner.report(now_ns),
            latencies: inner.latencies.clone(),
            tally: inner.tally.clone(),
            up_ns: now_ns.saturating_sub(inner.started_ns),
            is_paused: inner.engine.is_paused(),
        })
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
        inner.catch_up(now_ns, &self.lag);
        let result = act(&mut inner, now_ns);
        inner.deliver(&self.lag);
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
