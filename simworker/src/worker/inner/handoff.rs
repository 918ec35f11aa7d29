//! The hand-off of KV, as far as a worker's requests are concerned: who waits for it, and what came of it.

use simworker_core::{HandoffFault, RequestId};
use tokio::sync::oneshot;

use super::{Inner, Waiting};
use crate::handoff::Failed;

impl Inner {
    /// Prefill: the decode side has slots for the KV of `room`, which it believes to be on `rank`.
    pub(in crate::worker) fn want_kv(
        &mut self,
        now_ns: u64,
        rank: u32,
        room: u64,
        is_doomed: bool,
    ) -> oneshot::Receiver<Result<u32, Failed>> {
        let (tell, sent) = oneshot::channel();
        self.waiting.insert(room, Waiting { rank, is_doomed, tell });
        // One that is not here yet is told when it comes, if somebody waits still. And a rank does not know what others
        // have: then both sides wait in vain.
        if self.engine.has_room(room) && self.engine.rank_of(room) == Some(rank) {
            self.engine.kv_wanted(now_ns, room, &mut self.events);
        }
        sent
    }

    /// Prefill: nobody waits for the KV of `room` any more, unless somebody else does.
    pub(in crate::worker) fn forget_kv(&mut self, room: u64) {
        if self.waiting.get(&room).is_some_and(|waiting| waiting.tell.is_closed()) {
            self.waiting.remove(&room);
        }
    }

    pub(super) fn answer_kv(&mut self, room: u64, outcome: Result<u32, Failed>) {
        if let Some(waiting) = self.waiting.remove(&room) {
            // Who has gone away need not be told.
            let _ = waiting.tell.send(outcome);
        }
    }

    /// Decode: what came of the hand-off of a request. One that has ended may have left its room to another.
    pub(in crate::worker) fn kv_outcome(
        &mut self,
        now_ns: u64,
        id: RequestId,
        room: u64,
        outcome: Result<u32, HandoffFault>,
    ) {
        if !self.live.contains_key(&id) {
            return;
        }
        match outcome {
            Ok(cached_tokens) => self.engine.kv_arrived(now_ns, room, cached_tokens, &mut self.events),
            Err(fault) => self.engine.handoff_failed(now_ns, room, fault, &mut self.events),
        };
    }
}
