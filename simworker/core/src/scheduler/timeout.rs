//! Requests that have waited or run for too long.

use super::Scheduler;
use crate::request::{Event, FinishReason, RequestId};

const WAITED: FinishReason = FinishReason::Error { status: 503, message: "Request waiting timeout reached." };
const RAN: FinishReason = FinishReason::Error { status: 503, message: "Request running timeout reached." };

impl Scheduler {
    /// Whether the time alone can end a request that is here.
    pub(super) fn watches_time(&self) -> bool {
        let queue = self.config.queue;
        queue.running_timeout_ns.is_some() || queue.waiting_timeout_ns.is_some() && !self.waiting.is_empty()
    }

    /// Ends those that have waited too long, and lets those that have run too long end with the next result.
    pub(super) fn time_out(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        if let Some(most_ns) = self.config.queue.waiting_timeout_ns {
            let late = self.waiting.in_order().filter(|request| at_ns > request.waits_since_ns + most_ns);
            let late: Vec<RequestId> = late.map(|request| request.id).collect();
            for request in late.into_iter().filter_map(|id| self.waiting.take(id)).collect::<Vec<_>>() {
                self.end(request.finish(at_ns, WAITED), events);
            }
        }
        if let Some(most_ns) = self.config.queue.running_timeout_ns {
            self.running.stop_older(at_ns.saturating_sub(most_ns), RAN);
            if let Some(chunked) = &mut self.chunked
                && chunked.request.admitted_ns + most_ns < at_ns
            {
                chunked.request.stop.get_or_insert(RAN);
            }
        }
    }
}
