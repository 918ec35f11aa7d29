//! A request that has been admitted: it holds KV and is in a prefill batch, or between two chunks.

use super::request::{FirstRun, Request};
use crate::cache::{Hold, KvCache};
use crate::request::{Event, FinishReason};

/// A request with KV.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) request: Request,
    pub(crate) hold: Hold,
}

impl Admitted {
    /// Notes the first time that a request is scheduled.
    pub(crate) fn new(mut request: Request, mut hold: Hold, at_ns: u64) -> Self {
        hold.set_names(request.names.clone());
        let host = u32::try_from(hold.loaded_len()).unwrap_or(u32::MAX);
        let cached = u32::try_from(hold.matched_len()).unwrap_or(u32::MAX);
        let queue_ns = at_ns.saturating_sub(request.arrived_ns);
        request.admitted_ns = at_ns;
        request.first_run.get_or_insert(FirstRun { cached, host, queue_ns });
        Self { request, hold }
    }

    /// Tokens that a prefill still has to compute.
    pub(crate) fn rest(&self) -> u64 {
        (self.request.len() - self.hold.kv_len()) as u64
    }

    /// Shares what prefill steps have computed so far. KV of tokens that were decoded since stays private.
    pub(crate) fn checkpoint(&mut self, cache: &mut KvCache) {
        let Self { request, hold } = self;
        let up_to = hold.kv_len().min(request.len() - 1);
        let (prompt_len, spelling) = (request.prompt.len(), cache.spelling());
        cache.checkpoint(
            hold,
            request.spelled_with_kv(up_to, spelling).all(),
            up_to,
            prompt_len,
            request.namespace,
            request.priority.unwrap_or_default(),
        );
    }

    /// Ends the request with all its KV shared.
    pub(crate) fn finish(self, cache: &mut KvCache, at_ns: u64, reason: FinishReason) -> Event {
        let Self { request, hold } = self;
        let prompt_len = request.prompt.len();
        // Before the first token there is KV of a part of the prompt only.
        let spelled = request.spelled_with_kv(hold.kv_len(), cache.spelling());
        cache.finish(
            hold,
            spelled.all(),
            prompt_len,
            request.namespace,
            request.priority.unwrap_or_default(),
        );
        drop(spelled);
        request.finish(at_ns, reason)
    }

    /// Ends the hold without sharing anything.
    pub(crate) fn withdraw(self, cache: &mut KvCache) -> Request {
        cache.drop_private(self.hold);
        self.request
    }
}
