//! What a fault does to a request: one variant each, and the part of a [`Plan`] that it is.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Options;
use super::plan::{Cut, HandoffPlan, How, Plan, Point, StatusAnswer};

/// A fault, with its value.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// The response head comes so much later.
    DelayHead(Duration),
    /// So much time before each chunk of a body but the first.
    DelayChunk(Duration),
    /// From this point on the connection is silent, and stays open.
    Stall(Point),
    /// At this point the connection is reset.
    Reset(Point),
    /// At this point the connection is closed.
    Close(Point),
    /// The answer is this status.
    Status(u16),
    /// Nobody listens.
    Refuse(Refuse),
    /// Connections without a request for so long are closed.
    IdleClose(Duration),
    /// Connections are closed after an answer that did not say so.
    CloseAfterAnswer,
    /// Health checks are answered by this pattern: a status and how many checks get it, over and over.
    Health(Vec<(u16, u32)>),
    /// Loads are not what they should be.
    Loads(Lie),
    /// A transfer of KV from this worker fails.
    KvFail,
    /// KV from this worker arrives so much later.
    KvDelay(Duration),
    /// A batch of KV events does not get through as it should.
    KvEvents(Mangle),
    /// The process is gone.
    Die,
    /// Steps of the engine take so many times as long.
    Slow(f64),
    /// So many bytes of a request's body are read in a second.
    SlowRead(u64),
    /// Bodies are not what they should be.
    Garbage(Garbage),
    /// Requests are refused that would make the queue longer than that.
    RejectAbove(u64),
    /// Times in loads are off.
    LoadsSkew(Skew),
}

/// What is wrong with bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Garbage {
    /// JSON that is none, in whole answers and in the events of streams.
    Json,
    /// Streams whose events are none.
    Sse,
}

/// By how much a clock is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    /// It is in the future.
    Ahead(Duration),
    /// It is in the past.
    Behind(Duration),
}

impl Skew {
    /// In seconds.
    pub(crate) fn seconds(self) -> f64 {
        match self {
            Self::Ahead(span) => span.as_secs_f64(),
            Self::Behind(span) => -span.as_secs_f64(),
        }
    }
}

/// Who is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuse {
    /// Who connects.
    New,
    /// Those who are connected too: their connections are reset.
    All,
}

/// What becomes of a batch of KV events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mangle {
    /// Subscribers do not get it; a replay has it.
    Drop,
    /// They get it after the next one.
    Swap,
}

/// What is told in place of the loads.
#[derive(Debug, Clone, PartialEq)]
pub enum Lie {
    /// The values of the moment at which this was set.
    Frozen,
    /// A text that is no JSON.
    Garbage,
    /// All counts below zero.
    Negative,
    /// Nothing, for ever.
    Hang,
    /// This status.
    Status(u16),
    /// These members, in every rank's entry.
    Given(Map<String, Value>),
}

impl Kind {
    /// Adds what this fault does to a request, unless a fault before it does the like; whether it was added.
    /// `hits` is how many requests it has been added to, `queued` how many are in the worker's queue.
    pub(super) fn plan(
        &self,
        options: &Options,
        hits: u64,
        queued: &dyn Fn() -> u64,
        plan: &mut Plan,
    ) -> bool {
        let made_up = |key, status| {
            let (body, retry_after) = (options.body.clone(), options.retry_after.clone());
            StatusAnswer { key, status, body, retry_after }
        };
        match self {
            Self::DelayHead(span) => set(&mut plan.delay_head, *span),
            Self::DelayChunk(span) => set(&mut plan.delay_chunk, *span),
            Self::Stall(point) => set(&mut plan.cut, Cut { point: *point, how: How::Stall }),
            Self::Reset(point) => set(&mut plan.cut, Cut { point: *point, how: How::Reset }),
            Self::Close(point) => set(&mut plan.cut, Cut { point: *point, how: How::Close }),
            Self::Status(status) => set(&mut plan.status, made_up("status", *status)),
            Self::RejectAbove(most) => {
                queued() >= *most && set(&mut plan.status, made_up("reject-above", 503))
            }
            Self::SlowRead(rate) => set(&mut plan.read_rate, *rate),
            Self::Garbage(what) => set(&mut plan.garbage, *what),
            Self::LoadsSkew(skew) => set(&mut plan.skew, *skew),
            Self::CloseAfterAnswer => !std::mem::replace(&mut plan.close_after, true),
            Self::Health(pattern) => match check(pattern, hits) {
                200 => true,
                status => set(&mut plan.status, StatusAnswer::bare("health", status)),
            },
            Self::Loads(Lie::Status(status)) => set(&mut plan.status, StatusAnswer::bare("loads", *status)),
            Self::Loads(lie) => set(&mut plan.lie, lie.clone()),
            Self::Refuse(_)
            | Self::IdleClose(_)
            | Self::Die
            | Self::Slow(_)
            | Self::KvFail
            | Self::KvDelay(_)
            | Self::KvEvents(_) => false,
        }
    }

    /// Adds what this fault does to a hand-off, unless a fault before it does the like; whether it was added.
    pub(super) fn plan_handoff(&self, plan: &mut HandoffPlan) -> bool {
        match self {
            Self::KvFail => !std::mem::replace(&mut plan.fails, true),
            Self::KvDelay(span) => set(&mut plan.delay, *span),
            _ => false,
        }
    }
}

impl Kind {
    /// What this fault does to a batch of KV events, unless a fault before it does the like; whether it was added.
    pub(super) fn plan_kv_batch(&self, plan: &mut Option<Mangle>) -> bool {
        match self {
            Self::KvEvents(mangle) => set(plan, *mangle),
            _ => false,
        }
    }
}

fn set<T>(slot: &mut Option<T>, value: T) -> bool {
    let is_free = slot.is_none();
    if is_free {
        *slot = Some(value);
    }
    is_free
}

/// The status of check number `number` in a pattern that repeats.
pub(super) fn check(pattern: &[(u16, u32)], number: u64) -> u16 {
    let whole: u64 = pattern.iter().map(|(_, count)| u64::from(*count)).sum();
    let mut place = number % whole.max(1);
    for (status, count) in pattern {
        match place.checked_sub(u64::from(*count)) {
            Some(rest) => place = rest,
            None => return *status,
        }
    }
    200
}
