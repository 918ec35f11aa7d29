//! Requests that wait because every prefill worker that could have them has as many decode streams as it may.
//!
//! They stand in line, one line for the prefill workers of each model. The first one tries anew when a stream has ended or
//! something has changed about the workers; those that come later stand behind it, so nobody is passed by for ever.
//!
//! A request that only some of the workers can have, because it names one or has been tried on others, stands beside the line:
//! while it waits for its own, the others' may be free.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use router_core::ids::ScopeId;
use tokio::sync::{OwnedMutexGuard, watch};

/// After so long the first one tries anew without news: breakers close by themselves.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Most requests that wait for the prefill workers of a model, in line and beside it.
const MOST_WAITING: usize = 1 << 12;

/// All lines.
#[derive(Debug)]
pub(crate) struct Dispatch {
    /// Without a limit nobody ever waits.
    is_limited: AtomicBool,
    lines: Mutex<HashMap<ScopeId, Arc<Line>>>,
}

#[derive(Debug, Default)]
struct Line {
    /// Who holds it is the first. It is fair.
    front: Arc<tokio::sync::Mutex<()>>,
    /// How many stand in line, the first one too.
    length: AtomicUsize,
    /// How many stand beside it.
    beside: AtomicUsize,
    /// A stream has ended.
    ended: watch::Sender<()>,
}

/// A place in a line; dropping it is leaving.
#[derive(Debug)]
pub(super) struct Place {
    line: Arc<Line>,
    is_beside: bool,
    ended: watch::Receiver<()>,
    front: Option<OwnedMutexGuard<()>>,
}

impl Dispatch {
    /// Lines, if decode streams are limited at all.
    pub(crate) fn new(is_limited: bool) -> Self {
        Self { is_limited: AtomicBool::new(is_limited), lines: Mutex::default() }
    }

    /// The limit is another one now; there is none unless `is_limited`. Who waits tries anew.
    pub(crate) fn limit(&self, is_limited: bool) {
        self.is_limited.store(is_limited, Ordering::Release);
        self.wake();
    }

    /// Whether requests wait for the prefill workers of this scope.
    pub(super) fn is_waited_for(&self, scope: ScopeId) -> bool {
        self.is_limited.load(Ordering::Acquire) && self.is_line(scope)
    }

    fn is_line(&self, scope: ScopeId) -> bool {
        self.lines.lock().get(&scope).is_some_and(|line| line.length.load(Ordering::Acquire) > 0)
    }

    /// How many requests wait; `None` without a limit.
    pub(crate) fn waiting(&self) -> Option<u64> {
        let is_limited = self.is_limited.load(Ordering::Acquire);
        is_limited.then(|| self.lines.lock().values().map(|line| line.waiting() as u64).sum())
    }

    /// A decode stream has ended.
    pub(super) fn stream_ended(&self) {
        if self.is_limited.load(Ordering::Acquire) {
            self.wake();
        }
    }

    fn wake(&self) {
        self.lines.lock().values().for_each(|line| line.ended.send_replace(()));
    }

    /// A place behind all others that wait for the prefill workers of this scope, or beside them; `None` if there are too
    /// many of them.
    pub(super) fn stand_in_line(&self, scope: ScopeId, is_beside: bool) -> Option<Place> {
        let line = Arc::clone(self.lines.lock().entry(scope).or_default());
        if line.waiting() >= MOST_WAITING {
            return None;
        }
        line.count(is_beside).fetch_add(1, Ordering::AcqRel);
        Some(Place { ended: line.ended.subscribe(), line, is_beside, front: None })
    }
}

impl Line {
    fn waiting(&self) -> usize {
        self.length.load(Ordering::Acquire) + self.beside.load(Ordering::Acquire)
    }

    fn count(&self, is_beside: bool) -> &AtomicUsize {
        if is_beside { &self.beside } else { &self.length }
    }
}

impl Place {
    /// Waits until there may be something for this place: it is the first, or it was or stands beside and there is news.
    /// `changed` ends when something has changed about the workers.
    pub(super) async fn turn(&mut self, changed: impl Future<Output = ()>) {
        if self.front.is_none() && !self.is_beside {
            self.front = Some(Arc::clone(&self.line.front).lock_owned().await);
            return;
        }
        tokio::select! {
            _ = self.ended.changed() => {}
            () = changed => {}
            () = tokio::time::sleep(LONGEST_PAUSE) => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.line.count(self.is_beside).fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: ScopeId = ScopeId(0);

    #[test]
    fn who_stands_beside_holds_nobody_back_and_no_more_wait_than_may() {
        let dispatch = Dispatch::new(true);
        let stand = |is_beside| dispatch.stand_in_line(SCOPE, is_beside);
        let beside = stand(true).expect("a place");
        assert!(!dispatch.is_waited_for(SCOPE));
        let mut places: Vec<_> = std::iter::repeat_with(|| stand(false)).map_while(|place| place).collect();
        assert_eq!(places.len(), MOST_WAITING - 1);
        assert!(dispatch.is_waited_for(SCOPE) && stand(true).is_none());
        places.pop();
        assert!(stand(true).is_some());
        drop((places, beside));
        assert!(!dispatch.is_waited_for(SCOPE));
    }
}
