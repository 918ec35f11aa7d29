//! Standing still: SGLang's `/pause_generation` and `/continue_generation`.

use super::{Engine, Event, PauseMode, Until};

impl Engine {
    /// Stops making steps. The one in progress ends and its results are told; requests that come wait in the queue. What
    /// becomes of those that are here says `mode`.
    ///
    /// In SGLang's mode `abort` the scheduler goes on until all requests have ended, while the front end keeps new ones
    /// back. Here those wait in the queue, so the engine stands still in that mode too.
    pub fn pause(&mut self, now_ns: u64, mode: PauseMode, events: &mut Vec<Event>) {
        self.catch_up(now_ns, Until::Before, events);
        if mode == PauseMode::Abort {
            self.abort_all(now_ns, events);
        }
        self.scheduler.pause(mode);
        self.wake(now_ns);
    }

    /// Goes on after a pause. Without one, nothing happens.
    pub fn resume(&mut self, now_ns: u64, events: &mut Vec<Event>) {
        self.catch_up(now_ns, Until::Before, events);
        self.scheduler.end_pause();
        self.wake(now_ns);
    }

    /// Whether the engine has been paused and not resumed.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.scheduler.is_paused()
    }

    /// Aborts every request, as [`Engine::abort`] does. Returns how many there were.
    pub fn abort_all(&mut self, now_ns: u64, events: &mut Vec<Event>) -> usize {
        self.catch_up(now_ns, Until::Before, events);
        #[expect(clippy::disallowed_methods, reason = "sorted at once")]
        let mut ids: Vec<_> = self.live.iter().copied().collect();
        ids.sort_unstable();
        ids.into_iter().filter(|id| self.abort(now_ns, *id, events)).count()
    }
}
