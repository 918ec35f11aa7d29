//! What the ranks tell, carried to the readers, to the books and to the other side.

use simworker_core::{Event, FinishReason, HandoffFault, RequestId};

use super::super::front::News;
use super::super::side::Side;
use super::{Counted, Inner, Live, Times};
use crate::handoff::Failed;
use crate::lag::Lag;
use crate::mailbox::{Began, Ending, Finish};
use crate::tally::Ended;

impl Inner {
    /// Carries what the engine produced to the mailboxes, and to the other side.
    pub(in crate::worker) fn deliver(&mut self, lag: &Lag) {
        while !self.events.is_empty() {
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                self.tell(event);
            }
            if self.events.is_empty() {
                // Its space is used again.
                self.events = events;
                break;
            }
        }
        if let Some(stepped) = self.stepped.take() {
            self.tell_retractions();
            self.tell_counts(stepped.at_ns);
            lag.step(stepped);
        }
    }

    /// Looks for requests that have been retracted, unless there can be none.
    fn tell_retractions(&mut self) {
        let totals = (0..self.engine.size()).map(|rank| self.engine.totals(rank).retractions);
        let retractions: u64 = totals.sum();
        if self.live.is_empty() {
            self.told_retractions = retractions;
        }
        if retractions == self.told_retractions {
            return;
        }
        for (id, times) in self.engine.retracted() {
            if let Some(live) = self.live.get(&id) {
                live.mailbox.retracted(times);
            }
        }
    }

    fn tell(&mut self, event: Event) {
        match event {
            Event::Kv { rank, events, .. } => {
                if let Some(kv) = &self.around.kv {
                    kv.publish(rank, events);
                }
            }
            Event::FirstToken { id, at_ns, cached_tokens, host_tokens, queue_ns } => {
                self.tell_first_token(id, at_ns, queue_ns, News::FirstToken { cached_tokens, host_tokens });
            }
            Event::Step { at_ns, gap_ns, tokens } => {
                self.latencies.tokens(gap_ns, tokens);
                let stepped = self.stepped.get_or_insert_default();
                stepped.at_ns = at_ns;
                stepped.gaps_ns += gap_ns * u64::from(tokens);
                stepped.tokens += u64::from(tokens);
            }
            Event::KvWanted { id, room, at_ns, tokens } => {
                if self.live.get(&id).is_some_and(|live| live.side.wants(tokens)) {
                    // Nobody is on the other side.
                    self.engine.kv_arrived(at_ns, room, 0, &mut self.events);
                }
            }
            Event::KvSent { id, room, cached_tokens, tokens, span_ns, .. } => {
                self.count_transfer(id, tokens, span_ns);
                self.answer_kv(room, Ok(cached_tokens));
            }
            Event::Finish { .. } => self.tell_finish(&event),
        }
    }

    fn tell_first_token(&mut self, id: RequestId, at_ns: u64, queue_ns: u64, news: News) {
        let Some(live) = self.live.get_mut(&id) else { return };
        live.times.first_token_ns = Some(at_ns);
        let through_ns = self.front.take(at_ns, live.traffic);
        let queued_ns = live.times.queued_ns.unwrap_or(live.arrived_ns);
        live.mailbox.began(Began { queued_ns, queue_ns, prefilled_ns: at_ns, first_token_ns: through_ns });
        // A client of a prefill worker hears nothing before its KV has arrived, or has not.
        if live.side.sends().is_none() {
            self.front.pass(through_ns, &live.mailbox, news);
        }
        let Counted { traffic, priority } = live.counted;
        let since_arrival_ns = through_ns.saturating_sub(live.arrived_ns);
        self.latencies.first_token(traffic, since_arrival_ns);
        self.tally.of(priority).first_token(traffic, since_arrival_ns);
        let is_doomed = |room: &u64| self.waiting.get(room).is_some_and(|waiting| waiting.is_doomed);
        if let Some(room) = live.side.sends().filter(is_doomed) {
            self.engine.handoff_failed(at_ns, room, HandoffFault::Transfer, &mut self.events);
        }
    }

    /// A transfer to nobody is in no figure, as in SGLang.
    fn count_transfer(&mut self, id: RequestId, tokens: u64, span_ns: u64) {
        let to_nobody = |live: &Live| matches!(live.side, Side::Prefill { is_alone: true, .. });
        if !self.live.get(&id).is_none_or(to_nobody) {
            self.tally.transfers.sent(tokens as f64 * self.around.kv_bytes_per_token, span_ns);
        }
    }

    fn tell_finish(&mut self, event: &Event) {
        let Event::Finish {
            id,
            at_ns,
            reason,
            prompt_tokens,
            cached_tokens,
            host_tokens,
            output_tokens,
            retractions,
            queue_ns,
        } = *event
        else {
            return;
        };
        let mut through_ns = at_ns;
        if let Some(live) = self.live.get(&id) {
            let queue_ns = (output_tokens > 0).then_some(queue_ns);
            through_ns = self.front.take(at_ns, live.traffic);
            let Counted { traffic, priority } = live.counted;
            self.latencies.ended(traffic, queue_ns);
            let Times { queued_ns, first_token_ns } = live.times;
            self.tally.of(priority).ended(&Ended {
                traffic,
                prompt_tokens,
                cached_tokens,
                output_tokens,
                e2e_ns: through_ns.saturating_sub(live.arrived_ns),
                decode_ns: first_token_ns.map(|first| at_ns.saturating_sub(first)),
            });
            if let Some((first, queued)) = first_token_ns.zip(queued_ns) {
                self.tally.prefilled(traffic, first - queued);
            }
            if let (Some(room), FinishReason::Error { message, .. }) = (live.side.sends(), reason) {
                self.answer_kv(room, Err(Failed(message.to_owned())));
            }
        }
        let finish = Finish { reason, cached_tokens, host_tokens, output_tokens, retractions };
        self.close(through_ns, id, Ending::Finished(finish));
    }

    /// Ends a request that the ranks do not have.
    pub(super) fn end(&mut self, at_ns: u64, id: RequestId, ending: Ending) {
        let Some(live) = self.live.get(&id) else { return };
        let through_ns = self.front.take(at_ns, live.traffic);
        self.close(through_ns, id, ending);
    }

    /// Forgets a request. Its reader is told when the news are through.
    fn close(&mut self, through_ns: u64, id: RequestId, ending: Ending) {
        let Some(live) = self.live.remove(&id) else { return };
        self.rids.remove(&live.rid);
        let news = News::End(ending, through_ns.saturating_sub(live.arrived_ns));
        self.front.pass(through_ns, &live.mailbox, news);
    }
}
