//! Holds workers back until the test lets them go on.

use std::sync::{Arc, Condvar, Mutex};

use super::PATIENCE;

/// Turns that the test gives and workers wait for. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<usize>, Condvar)>);

impl Latch {
    /// Waits for a turn and takes it; not for ever, so that a failed test leaves no threads behind.
    pub(crate) fn wait(&self) {
        let (turns, news) = &*self.0;
        let turns = turns.lock().expect("not poisoned");
        let (mut turns, late) =
            news.wait_timeout_while(turns, PATIENCE, |turns| *turns == 0).expect("not poisoned");
        if !late.timed_out() && *turns != usize::MAX {
            *turns -= 1;
        }
    }

    /// Gives so many turns.
    pub(crate) fn pass(&self, count: usize) {
        let (turns, news) = &*self.0;
        let mut turns = turns.lock().expect("not poisoned");
        *turns = turns.saturating_add(count);
        news.notify_all();
    }

    /// Nobody waits any more.
    pub(crate) fn open(&self) {
        self.pass(usize::MAX);
    }
}
