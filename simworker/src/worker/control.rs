//! What a worker is told to do with its requests: end them, hold them up, go on; and to empty its cache.

use simworker_core::{PauseMode, RequestId};

use super::Worker;

impl Worker {
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
        self.with(|inner, now_ns| inner.abort_all(now_ns));
    }

    /// Empties the cache; false while requests are on their way, waiting or running, in a pause only while one holds KV.
    pub(crate) fn flush(&self) -> bool {
        self.with(|inner, _| inner.flush())
    }

    /// The same, but in a pause too all requests must have ended.
    pub(crate) fn flush_when_idle(&self) -> bool {
        self.with(|inner, _| inner.is_idle() && inner.flush())
    }

    /// The engine makes no more steps until [`Self::resume`].
    pub(crate) fn pause(&self, mode: PauseMode) -> Former {
        self.with(|inner, now_ns| {
            inner.pause(now_ns, mode);
            Former(inner.arrived())
        })
    }

    /// The engine goes on.
    pub(crate) fn resume(&self) {
        self.with(|inner, now_ns| inner.resume(now_ns));
    }

    /// Whether one of these requests has not ended.
    pub(crate) fn has_any(&self, former: Former) -> bool {
        self.with(|inner, _| inner.has_before(former.0))
    }
}

/// All requests that had come when something was done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Former(RequestId);
