//! Running requests that give way to a waiting one of higher priority (SGLang's `preempt_to_schedule` in
//! `schedule_policy.py`).
//!
//! It happens only where *places* are short (`--max-running-requests`), not where KV is, and only if what the victims
//! would still have written, together with what is free, covers the newcomer. That their prompts give up KV too is not
//! counted, as in the original.

use super::Scheduler;
use super::budget::Budget;
use super::request::Request;
use super::running::Bid;
use crate::config::{EngineRole, PriorityConfig};
use crate::request::{Event, FinishReason};

impl Scheduler {
    /// The meaning of priorities, and the least difference that does not preempt; none if nobody ever gives way.
    pub(super) fn preemption(&self) -> Option<(PriorityConfig, i64)> {
        let priorities = self.config.queue.priority?;
        priorities.preempts_above.map(|threshold| (priorities, threshold))
    }

    /// Makes running requests give way to the first in the queue. They are put into `preempted`, and wait for the next
    /// pass. False, and nothing done, if they cannot or need not.
    ///
    /// Every result must be known: SGLang would lose the token of a step whose result it has not seen.
    pub(super) fn preempt_for_front(&mut self, budget: &mut Budget, preempted: &mut Vec<Request>) -> bool {
        let Some((priorities, threshold)) = self.preemption() else { return false };
        let Some(front) = self.waiting.front() else { return false };
        let rank = priorities.rank(front.priority);
        let mut lacking = budget.lacking(&self.cache, front);
        let ratio = self.new_token_ratio();
        let mut bids: Vec<Bid> = self.running.bids(ratio).collect();
        bids.sort_by_key(|bid| std::cmp::Reverse((priorities.rank(bid.priority), bid.entered)));
        let mut victims = Vec::new();
        for bid in bids {
            if priorities.rank(bid.priority) - rank <= i128::from(threshold) {
                break;
            }
            victims.push(bid);
            lacking -= bid.reserved as i64;
            if lacking <= 0 {
                break;
            }
        }
        if victims.is_empty() || lacking > 0 {
            return false;
        }
        for victim in victims {
            self.give_way(victim, budget, preempted);
        }
        true
    }

    /// Whether the queue has no room for one more. SGLang has no limit on queues of which a part waits for another engine.
    pub(crate) fn is_queue_full(&self) -> bool {
        let most = self.config.max_queued.filter(|_| self.config.role == EngineRole::Whole);
        most.is_some_and(|most| self.waiting.len() >= most as usize)
    }

    /// Ends the least important request of the queue for one of `priority`. False if there is none that is less important.
    pub(crate) fn displace(&mut self, at_ns: u64, priority: Option<i64>, events: &mut Vec<Event>) -> bool {
        let Some(priorities) = self.config.queue.priority else { return false };
        let worst = self.waiting.worst(priorities, priority).and_then(|id| self.waiting.take(id));
        let Some(request) = worst else { return false };
        let message = "The request is aborted by a higher priority request.";
        self.end(request.finish(at_ns, FinishReason::Error { status: 503, message }), events);
        true
    }

    fn give_way(&mut self, victim: Bid, budget: &mut Budget, preempted: &mut Vec<Request>) {
        let Some(admitted) = self.running.take(victim.id, &mut self.cache) else { return };
        budget.release(victim.reserved);
        let mut request = admitted.withdraw(&mut self.cache);
        request.retractions += 1;
        self.evict_for_retraction();
        preempted.push(request);
    }
}
