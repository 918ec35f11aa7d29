//! What SGLang's scheduler decides between two steps, and what becomes of their results.
//!
//! | file | idea |
//! |---|---|
//! | [`waiting`], [`order`] | the queue and its order |
//! | [`admission`], [`budget`] | which waiting requests form a prefill batch |
//! | [`running`], [`gaps`] | the decode batch, with costs that do not grow with it |
//! | [`decode`], [`ratio`] | room for a decode step, retraction when there is none |
//! | [`preempt`] | running requests that give way to more important ones |
//! | [`mixed`] | prefill and decode in one step, or one after so many of the other |
//! | [`timeout`] | requests that are here for too long |
//! | [`results`] | what a step brings: tokens, shared KV, ends |
//! | [`side`] | what the roles of an engine add |
//! | [`sending`] | a prefill engine's requests and their KV |
//! | [`receiver`], [`receiving`], [`reserve`] | a decode engine's requests, and who gets slots |
//! | [`host_tier`], [`kv_flush`] | KV on the host; when events about KV go out |
//! | [`meters`], [`loads`] | what is counted, and what is reported of it when |
//! | [`pause`] | standing still |
//! | [`seen`] | counts and invariants |
//!
//! The scheduler knows no time but what it is told for its events; the [engine](crate::engine) has the clock.

mod admission;
mod admitted;
mod budget;
mod decode;
mod gaps;
mod host_tier;
mod kv_flush;
mod loads;
mod meters;
mod mixed;
mod order;
mod pause;
mod preempt;
mod ratio;
mod receiver;
mod receiving;
mod request;
mod reserve;
mod results;
mod running;
mod seen;
mod sending;
mod side;
mod timeout;
mod waiting;

pub use host_tier::{HOST_BYTES_PER_SECOND, HostTierConfig};
pub use loads::{EngineLoads, LoadReport, QueueCounts};
pub use meters::{DecodeMoments, EngineTotals};
pub use pause::PauseMode;
pub(crate) use request::Request;

use admission::PrefillBatch;
use admitted::Admitted;
use loads::Snapshots;
use meters::Meters;
use mixed::Interval;
use order::Order;
use pause::Pause;
use ratio::NewTokenRatio;
use results::Hidden;
use running::{ABORTED, RunningBatch};
use side::Side;
use waiting::WaitingQueue;

use crate::cache::{CacheConfig, KvCache};
use crate::config::EngineConfig;
use crate::cost::PrefillWork;
use crate::handoff::{Cause, Stage};
use crate::request::{Event, FinishReason, RequestId};

/// What SGLang says of a request that is aborted before it runs.
const ABORTED_WAITING: FinishReason = FinishReason::Abort { message: "Abort in waiting queue" };

/// Queue, batches and cache of one engine.
#[derive(Debug)]
pub(crate) struct Scheduler {
    config: EngineConfig,
    cache: KvCache,
    waiting: WaitingQueue,
    /// The prefill batch in progress.
    prefill: Option<PrefillBatch>,
    /// The request whose prompt is prefilled in parts, between two of them.
    chunked: Option<Admitted>,
    running: RunningBatch,
    /// Requests that wait for another engine.
    side: Side,
    /// The newest members of the running batch whose joining has not been told of.
    joined: usize,
    /// The results of the last step, between its end and the choice of the next one.
    hidden: Option<Hidden>,
    /// Admission found no room; it is not tried again until a running request leaves.
    full: bool,
    ratio: NewTokenRatio,
    interval: Interval,
    passes: u64,
    meters: Meters,
    snapshots: Snapshots,
    pause: Option<Pause>,
    /// Its place among the ranks of a worker.
    pub(crate) rank: u32,
}

/// The step that a pass has launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launch {
    Prefill(PrefillWork),
    /// A prefill step in which the running batch makes a step too.
    Mixed {
        work: PrefillWork,
        batch: u64,
        context: u64,
    },
    Decode {
        batch: u64,
        /// Tokens attended to, those being decoded included.
        context: u64,
    },
}

impl Scheduler {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let cache = KvCache::new(CacheConfig {
            page_size: config.page_size,
            capacity_tokens: config.capacity(),
            eviction: config.eviction,
            disabled: config.caches_nothing(),
        });
        let cache = host_tier::equip(cache, &config);
        let cache = if config.names_pages() { cache.of_page_names() } else { cache };
        Self {
            cache,
            waiting: WaitingQueue::new(Order::new(&config)),
            prefill: None,
            chunked: None,
            running: RunningBatch::new(config.page_size),
            side: Side::new(&config),
            joined: 0,
            hidden: None,
            full: false,
            ratio: NewTokenRatio::new(config.conservativeness),
            interval: Interval::new(config.prefill_interval),
            passes: 0,
            meters: Meters::new(config.decode_log_interval),
            snapshots: Snapshots::default(),
            pause: None,
            rank: 0,
            config,
        }
    }

    /// Puts a request into the waiting queue.
    fn queue(&mut self, request: Request) {
        if self.config.overlap {
            self.waiting.hold_back(request);
        } else {
            self.waiting.push(request);
        }
    }

    /// Decides what the next step is. None when there is nothing to do.
    ///
    /// With the overlap schedule SGLang does this while the former step still runs, then waits for the results of
    /// that step, then looks for arrivals (`event_loop_overlap` in `scheduler.py`). So the choice is made without
    /// either, and only where it finds nothing to do it is made again.
    pub(crate) fn pass(&mut self, at_ns: u64, events: &mut Vec<Event>) -> Option<Launch> {
        if self.is_paused() {
            self.stand_still(at_ns, events);
            return None;
        }
        self.passes += 1;
        self.time_out(at_ns, events);
        let ahead = self.launch(at_ns, events);
        self.reveal(at_ns, events);
        self.receive();
        if let Some(launch) = ahead.or_else(|| self.launch(at_ns, events)) {
            return Some(launch);
        }
        debug_assert!(self.is_parked(), "with nothing running, the first in the queue fits");
        self.ratio.reset(self.running.launched());
        self.meters.idle();
        self.take_snapshot(at_ns);
        self.flush_kv_events(at_ns, events);
        None
    }

    /// Aborts a request: a waiting one ends now, any other one with the next result that it has a part in.
    pub(crate) fn abort(&mut self, at_ns: u64, id: RequestId, events: &mut Vec<Event>) -> bool {
        if self.abort_in_handoff(at_ns, id, events) {
            return true;
        }
        if let Some(request) = self.waiting.take(id) {
            self.end(request.finish(at_ns, ABORTED_WAITING), events);
            return true;
        }
        if let Some(request) = self.computing(id) {
            request.stop.get_or_insert(ABORTED);
            return true;
        }
        self.running.abort(id)
    }

    /// The request of that name if it is in a prefill step, between two of them, or has just ended.
    fn computing(&mut self, id: RequestId) -> Option<&mut Request> {
        let prefilling = self.prefill.iter_mut().flat_map(PrefillBatch::members_mut);
        let leaving = self.hidden.iter_mut().flat_map(Hidden::leaving_mut);
        let mut requests = prefilling.chain(&mut self.chunked).chain(leaving).map(|a| &mut a.request);
        requests.find(|request| request.id == id)
    }

    /// Lets those in that have come during the last step.
    fn receive(&mut self) {
        self.waiting.receive();
        if let Side::Decode(receiver) = &mut self.side {
            receiver.receive();
        }
    }

    /// Whether all requests that have not ended wait in the queue, and none holds KV.
    pub(crate) fn only_queues(&self) -> bool {
        self.requests() == self.waiting.len()
    }

    /// Empties the cache; false if a request holds a part of it.
    pub(crate) fn flush(&mut self) -> bool {
        self.cache.flush()
    }

    /// Whether the next pass may admit a request.
    pub(crate) fn may_admit(&self) -> bool {
        let is_shut = self.full && self.preemption().is_none();
        self.chunked.is_some() || !(is_shut || self.waiting.is_empty())
    }

    /// How many steps from the decode step in progress on bring nothing but one more token for each.
    pub(crate) fn quiet_steps(&self) -> u64 {
        let news = self.may_admit() || self.waiting.has_arrivals() || self.may_receive();
        if news || self.is_paused() || self.watches_time() || self.running.is_empty() {
            return 1;
        }
        self.running.quiet_steps(self.running.free(&self.cache) + self.cache.evictable())
    }

    /// Launches the next step, if there is any that has room.
    fn launch(&mut self, at_ns: u64, events: &mut Vec<Event>) -> Option<Launch> {
        if let Some(launch) = self.launch_prefill(at_ns, events) {
            return Some(launch);
        }
        self.receive_kv(at_ns, events);
        while !self.running.is_empty() {
            if self.make_room(at_ns, events) {
                return Some(self.launch_decode());
            }
            // The last running request has failed for lack of KV; what it held is there for the waiting ones.
            if let Some(launch) = self.launch_prefill(at_ns, events) {
                return Some(launch);
            }
            self.receive_kv(at_ns, events);
        }
        None
    }

    fn launch_prefill(&mut self, at_ns: u64, events: &mut Vec<Event>) -> Option<Launch> {
        let batch = self.admit(at_ns, events)?;
        let work = batch.work();
        self.interval.prefilled();
        let (rows, launch) = if self.mix_in(&batch) {
            let (batch, context) = (self.running.len() as u64, self.running.context());
            (batch, Launch::Mixed { work, batch, context })
        } else {
            (0, Launch::Prefill(work))
        };
        self.waiting.processed(work.new_tokens() + rows);
        self.prefill = Some(batch);
        Some(launch)
    }

    fn launch_decode(&mut self) -> Launch {
        self.running.launch();
        Launch::Decode { batch: self.running.len() as u64, context: self.running.context() }
    }

    /// Reports the end of a request whose KV could not be handed over.
    fn fail(&mut self, request: &Request, at_ns: u64, stage: Stage, cause: Cause, events: &mut Vec<Event>) {
        self.meters.handoff_failed(stage);
        self.end(request.finish(at_ns, stage.failed(cause)), events);
    }

    /// Reports the end of a request.
    fn end(&mut self, finish: Event, events: &mut Vec<Event>) {
        self.meters.ended(&finish);
        events.push(finish);
    }
}
