//! Standing still between two steps.

use super::results::leave;
use super::{ABORTED, Scheduler, Side};
use crate::request::Event;

/// What becomes of running requests in a pause (`mode` of `/pause_generation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseMode {
    /// They keep their KV and go on after it.
    InPlace,
    /// They lose their KV and wait, as the last, to be prefilled with the outputs they have.
    Retract,
    /// They have been aborted, and end with the step in progress, whatever their part in it.
    Abort,
}

/// How far a pause has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// The results of the step in progress are still to come.
    Begins(PauseMode),
    Lasts,
}

impl Scheduler {
    pub(crate) fn pause(&mut self, mode: PauseMode) {
        self.pause = Some(Pause::Begins(mode));
    }

    pub(crate) fn end_pause(&mut self) {
        self.pause = None;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// What is left of a pass in a pause: results are told, arrivals are let in.
    ///
    /// With the overlap schedule, SGLang has launched one more step when it hears of the pause, whose results it holds
    /// back until it goes on. Here that step is launched then.
    pub(super) fn stand_still(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        self.reveal(at_ns, events);
        self.receive();
        match self.pause {
            Some(Pause::Begins(PauseMode::Retract)) => self.retract_all(at_ns, events),
            Some(Pause::Begins(PauseMode::Abort)) => self.end_all(at_ns, events),
            Some(Pause::Begins(PauseMode::InPlace) | Pause::Lasts) | None => {}
        }
        self.pause = Some(Pause::Lasts);
        self.flush_kv_events(at_ns, events);
    }

    /// Ends what is not in the queue. No step would do it: nothing is in one any more.
    fn end_all(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let mut left = self.running.take_all(&mut self.cache);
        left.extend(self.chunked.take());
        for mut admitted in left {
            admitted.request.stop.get_or_insert(ABORTED);
            leave(admitted, &mut self.side, &mut self.cache, &mut self.meters, at_ns, events);
        }
        self.full = false;
    }

    /// A prefill engine keeps the request that it is in the middle of, as its KV is on its way. A decode engine would
    /// fetch the KV again from the prefill side; here it keeps it on the host, as in any retraction.
    fn retract_all(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let mut retracted = self.running.take_all(&mut self.cache);
        if !matches!(self.side, Side::Prefill(_)) {
            retracted.extend(self.chunked.take());
        }
        for admitted in retracted {
            let mut request = admitted.withdraw(&mut self.cache);
            request.retractions += 1;
            self.wait_again(at_ns, request, events);
        }
        self.full = false;
    }
}
