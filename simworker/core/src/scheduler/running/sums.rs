//! Sums over the members of the running batch, for admission, preemption and retraction.

use super::{Member, RunningBatch};
use crate::request::RequestId;
use crate::scheduler::request::Request;

/// What a member has to offer to a request that would take its place.
#[derive(Debug, Clone, Copy)]
pub(in crate::scheduler) struct Bid {
    pub(in crate::scheduler) id: RequestId,
    pub(in crate::scheduler) priority: Option<i64>,
    pub(in crate::scheduler) entered: u64,
    /// Tokens of its reply to come that are reserved.
    pub(in crate::scheduler) reserved: u64,
}

impl Member {
    /// Tokens of its reply to come that admission reserves: `ratio` of them, all of them where no early end is possible.
    fn reserved(&self, done: u64, ratio: f64) -> u64 {
        let request = &self.admitted.request;
        let to_come = request.reserve(self.produced(done));
        if request.ignore_eos { to_come } else { (to_come as f64 * ratio) as u64 }
    }
}

// === impl RunningBatch ===

impl RunningBatch {
    /// Output still to come that admission reserves: `ratio` of it, all of it where no early end is possible.
    pub(crate) fn reserved(&self, ratio: f64) -> u64 {
        let (mut sure, mut likely) = (0, 0);
        for member in &self.members {
            let request = &member.admitted.request;
            let to_come = request.reserve(member.produced(self.done));
            if request.ignore_eos { sure += to_come } else { likely += to_come }
        }
        sure + (likely as f64 * ratio) as u64
    }

    /// What each member has to offer to a request that would take its place.
    pub(in crate::scheduler) fn bids(&self, ratio: f64) -> impl Iterator<Item = Bid> {
        self.members.iter().map(move |member| {
            let Request { id, priority, entered, .. } = member.admitted.request;
            Bid { id, priority, entered, reserved: member.reserved(self.done, ratio) }
        })
    }

    /// The routing keys of the members that have one.
    pub(in crate::scheduler) fn routing_keys(&self) -> impl Iterator<Item = u64> {
        self.members.iter().filter_map(|member| member.admitted.request.routing_key)
    }

    /// How many routing keys the members have; none where one of them has no key, as SGLang counts only then.
    pub(in crate::scheduler) fn unique_routing_keys(&self) -> Option<u64> {
        let keys: Option<Vec<u64>> =
            self.members.iter().map(|member| member.admitted.request.routing_key).collect();
        let mut keys = keys.filter(|keys| !keys.is_empty())?;
        keys.sort_unstable();
        keys.dedup();
        Some(keys.len() as u64)
    }

    /// The priorities of the members.
    pub(in crate::scheduler) fn priorities(&self) -> impl Iterator<Item = Option<i64>> {
        self.members.iter().map(|member| member.admitted.request.priority)
    }

    /// Whether a member asks for log probabilities of its prompt.
    pub(in crate::scheduler) fn wants_logprobs(&self) -> bool {
        self.members.iter().any(|member| member.admitted.request.wants_logprobs())
    }

    /// Output tokens made so far and to be made in all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        self.members.iter().fold((0, 0), |(produced, max_new), member| {
            let request = &member.admitted.request;
            (produced + u64::from(member.produced(self.done)), max_new + u64::from(request.max_new))
        })
    }

    /// Proves the counts of the batch against its members.
    pub(crate) fn check(&self) -> Result<(), String> {
        let unsettled = self.launched - self.settled;
        let context: u64 = self.members.iter().map(|m| m.admitted.hold.kv_len() as u64 + unsettled).sum();
        if context != self.context {
            return Err(format!(
                "the batch counts {} tokens of context, its members {context}",
                self.context
            ));
        }
        let mut begins = vec![0; self.page_begins.len()];
        for member in &self.members {
            begins[self.page_begins_at(member.admitted.hold.kv_len() as u64 + unsettled)] += 1;
        }
        if begins != self.page_begins {
            return Err(format!("pages begin at {:?}, by the members at {begins:?}", self.page_begins));
        }
        let next_end = self.members.iter().map(|m| m.ends).min().unwrap_or(u64::MAX);
        if next_end != self.next_end {
            return Err(format!("next end {}, by the members {next_end}", self.next_end));
        }
        Ok(())
    }

    /// Whether the last token of a member has been made.
    pub(crate) fn has_surprises(&self) -> bool {
        self.next_end <= self.done
    }

    /// Members of whose newest token but one, or newest, the time is known.
    pub(crate) fn told(&self) -> u64 {
        self.gaps.members()
    }
}
