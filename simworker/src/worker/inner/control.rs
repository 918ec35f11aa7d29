//! Aborts, pauses and flushes.

use std::ops::Bound;

use simworker_core::{FinishReason, PauseMode, RequestId};

use super::Inner;
use crate::mailbox::{Ending, Finish};

/// What SGLang's scheduler says about a request that is aborted before it ran.
const ABORTED_WAITING: &str = "Abort in waiting queue";

impl Inner {
    /// Ends a request, wherever it is.
    pub(in crate::worker) fn abort(&mut self, now_ns: u64, id: RequestId) {
        if !self.abort_on_its_way(now_ns, id) && self.live.contains_key(&id) {
            self.engine.abort(now_ns, id, &mut self.events);
        }
    }

    /// Ends a request that the ranks do not have yet. False if it is not such a one.
    fn abort_on_its_way(&mut self, now_ns: u64, id: RequestId) -> bool {
        let Some(due_ns) = self.live.get(&id).and_then(|live| live.due_ns) else { return false };
        self.arrivals.remove(&(due_ns, id));
        let reason = FinishReason::Abort { message: ABORTED_WAITING };
        let finish = Finish { reason, cached_tokens: 0, host_tokens: 0, output_tokens: 0, retractions: 0 };
        self.end(now_ns, id, Ending::Finished(finish));
        true
    }

    /// Ends all requests whose ids begin with this.
    pub(in crate::worker) fn abort_matching(&mut self, now_ns: u64, prefix: &str) {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let matching = self.rids.range::<str, _>(from).take_while(|(rid, _)| rid.starts_with(prefix));
        let ids: Vec<RequestId> = matching.map(|(_, id)| *id).collect();
        for id in ids {
            self.abort(now_ns, id);
        }
    }

    /// Ends all requests.
    pub(in crate::worker) fn abort_all(&mut self, now_ns: u64) {
        self.abort_arrivals(now_ns);
        self.engine.abort_all(now_ns, &mut self.events);
    }

    fn abort_arrivals(&mut self, now_ns: u64) {
        let ids: Vec<RequestId> = self.arrivals.keys().map(|(_, id)| *id).collect();
        for id in ids {
            self.abort_on_its_way(now_ns, id);
        }
    }

    /// Makes no more steps.
    pub(in crate::worker) fn pause(&mut self, now_ns: u64, mode: PauseMode) {
        if mode == PauseMode::Abort {
            self.abort_arrivals(now_ns);
        }
        self.engine.pause(now_ns, mode, &mut self.events);
    }

    /// Makes steps again.
    pub(in crate::worker) fn resume(&mut self, now_ns: u64) {
        self.engine.resume(now_ns, &mut self.events);
    }

    /// Empties the caches. False, and nothing done, while requests are on their way, waiting or running; in a pause only
    /// while one holds KV, or is part of a hand-off.
    pub(in crate::worker) fn flush(&mut self) -> bool {
        (self.live.is_empty() || self.engine.is_paused()) && self.engine.flush()
    }

    /// Whether nobody is on its way, waiting or running.
    pub(in crate::worker) fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// The requests that have arrived before the next one.
    pub(in crate::worker) fn arrived(&self) -> RequestId {
        RequestId(self.next_id)
    }

    /// Whether one of the requests is left that came before this one.
    pub(in crate::worker) fn has_before(&self, next: RequestId) -> bool {
        self.live.keys().any(|id| *id < next)
    }
}
