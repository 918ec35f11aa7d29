//! The running batch: requests that decode together, one token each per step.
//!
//! A decode step must not cost time in proportion to the batch, as most steps change nothing but counts. So what
//! all members have in common is counted once for the batch ([`RunningBatch::launched`] steps), and a member only
//! notes where that count stood when it joined. The slots that steps take are a debt to the pool
//! ([`RunningBatch::settle`]) until somebody needs the members' own books to be right.

mod sums;

pub(super) use sums::Bid;

use super::admitted::Admitted;
use super::gaps::Gaps;
use super::request::Request;
use crate::cache::KvCache;
use crate::request::{Event, FinishReason, RequestId};

/// What is said of a request that is aborted while it runs.
pub(super) const ABORTED: FinishReason = FinishReason::Abort { message: "Aborted" };

#[derive(Debug)]
pub(crate) struct RunningBatch {
    members: Vec<Member>,
    /// Decode steps launched since the start of the engine.
    launched: u64,
    /// Those whose results are known: all, or all but the one in progress.
    done: u64,
    /// Those whose slots are in the members' holds.
    settled: u64,
    /// Tokens of the pool that the steps since then have taken.
    debt: u64,
    /// Members by the place of the step at which they begin a page, in the cycle of `page` steps.
    page_begins: Vec<u32>,
    /// Members of the step in progress, or of the last one.
    in_step: u64,
    /// Tokens with KV over all members.
    context: u64,
    /// The least `ends` of all members.
    next_end: u64,
    /// The most that prompt and reply of a member will take, as far as replies count.
    longest: u64,
    gaps: Gaps,
}

#[derive(Debug)]
struct Member {
    admitted: Admitted,
    /// `launched` when it joined.
    joined: u64,
    /// The decode step that makes its last token.
    ends: u64,
}

impl Member {
    /// Lets it end with the next result, or with the one that ends it anyway.
    fn stop(&mut self, done: u64, reason: FinishReason) {
        self.admitted.request.stop.get_or_insert(reason);
        self.ends = self.ends.min(done + 1);
    }

    fn produced(&self, done: u64) -> u32 {
        self.admitted.request.produced + (done - self.joined) as u32
    }
}

/// Prompt and reply, as far as the latter counts.
fn whole_len(request: &Request) -> u64 {
    request.prompt.len() as u64 + request.reserve(0)
}

// === impl RunningBatch: members ===

impl RunningBatch {
    pub(crate) fn new(page_size: u32) -> Self {
        Self {
            members: Vec::new(),
            launched: 0,
            done: 0,
            settled: 0,
            debt: 0,
            page_begins: vec![0; page_size as usize],
            in_step: 0,
            context: 0,
            next_end: u64::MAX,
            longest: 0,
            gaps: Gaps::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Every member and the output tokens it has made, in the order of joining.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (RequestId, u32)> {
        self.members.iter().map(|member| (member.admitted.request.id, member.produced(self.done)))
    }

    /// Members that were retracted before, and how often.
    pub(crate) fn retracted(&self) -> impl Iterator<Item = (RequestId, u32)> {
        let requests = self.members.iter().map(|member| &member.admitted.request);
        requests.filter(|request| request.retractions > 0).map(|request| (request.id, request.retractions))
    }

    /// The `n` members that joined last.
    pub(crate) fn newest(&mut self, n: usize) -> impl Iterator<Item = &mut Admitted> {
        let at = self.members.len() - n;
        self.members[at..].iter_mut().map(|member| &mut member.admitted)
    }

    /// Takes in requests whose prefill is complete. No step may be in progress. Their tokens are told of later, by
    /// [`RunningBatch::newest`] and [`RunningBatch::tell_joined`].
    pub(crate) fn join(&mut self, joining: Vec<Admitted>, cache: &mut KvCache) {
        debug_assert_eq!(self.launched, self.done, "batches change between steps");
        self.settle(cache);
        for admitted in joining {
            let request = &admitted.request;
            let ends = self.launched + u64::from(request.length - request.produced);
            let kv = admitted.hold.kv_len() as u64;
            self.context += kv;
            let begins = self.page_begins_at(kv);
            self.page_begins[begins] += 1;
            self.next_end = self.next_end.min(ends);
            self.longest = self.longest.max(whole_len(request));
            self.members.push(Member { admitted, joined: self.launched, ends });
        }
    }

    /// Lets a member end at the next result. False if there is no such member.
    pub(crate) fn abort(&mut self, id: RequestId) -> bool {
        let Some(member) = self.members.iter_mut().find(|m| m.admitted.request.id == id) else {
            return false;
        };
        member.stop(self.done, ABORTED);
        self.next_end = self.next_end.min(member.ends);
        true
    }

    /// Lets all members that were admitted before `than_ns` end at the next result.
    pub(crate) fn stop_older(&mut self, than_ns: u64, reason: FinishReason) {
        for member in &mut self.members {
            if member.admitted.request.admitted_ns < than_ns {
                member.stop(self.done, reason);
                self.next_end = self.next_end.min(member.ends);
            }
        }
    }

    /// Takes out the members whose last token has been made, in the order of the batch; if the next step is chosen
    /// before it is seen, only those of which that was known before.
    /// [`RunningBatch::tell_step`] still counts them, [`RunningBatch::tell_left`] no longer.
    pub(crate) fn take_ended(&mut self, cache: &mut KvCache, only_foreseen: bool) -> Vec<Admitted> {
        if self.next_end > self.done {
            return Vec::new();
        }
        self.settle(cache);
        let done = self.done;
        let has_ended = |member: &mut Member| {
            member.ends <= done && (!only_foreseen || member.admitted.request.must_end(member.produced(done)))
        };
        let ended: Vec<Member> = self.members.extract_if(.., has_ended).collect();
        self.find_bounds();
        ended.into_iter().map(|member| self.left(member)).collect()
    }

    /// Takes out the members whose last token has been seen only now: they may be in the next step already, which has taken
    /// a slot for them and makes nothing of it.
    pub(crate) fn take_surprises(&mut self, cache: &mut KvCache) -> Vec<Admitted> {
        if self.next_end > self.done {
            return Vec::new();
        }
        self.settle(cache);
        let done = self.done;
        let ended: Vec<Member> = self.members.extract_if(.., |member| member.ends <= done).collect();
        self.find_bounds();
        ended.into_iter().map(|member| self.left_told(member)).collect()
    }

    /// Takes out the member of that name, all of whose tokens are known.
    pub(crate) fn take(&mut self, id: RequestId, cache: &mut KvCache) -> Option<Admitted> {
        let at = self.members.iter().position(|member| member.admitted.request.id == id)?;
        self.settle(cache);
        let member = self.members.remove(at);
        self.find_bounds();
        Some(self.left_told(member))
    }

    /// Takes out the member that loses least when it has to start again: the fewest outputs, then the longest
    /// prompt, then the latest in the batch.
    pub(crate) fn take_victim(&mut self, cache: &mut KvCache) -> Option<Admitted> {
        self.settle(cache);
        let cost =
            |member: &Member| (member.produced(self.done), usize::MAX - member.admitted.request.prompt.len());
        let (at, _) = self.members.iter().enumerate().rev().min_by_key(|(_, member)| cost(member))?;
        let victim = self.members.remove(at);
        self.find_bounds();
        Some(self.left_told(victim))
    }

    /// Takes out all members, in the order of the batch.
    pub(crate) fn take_all(&mut self, cache: &mut KvCache) -> Vec<Admitted> {
        self.settle(cache);
        let members = std::mem::take(&mut self.members);
        self.find_bounds();
        members.into_iter().map(|member| self.left_told(member)).collect()
    }

    /// As [`RunningBatch::left`], of a member all of whose tokens are known.
    fn left_told(&mut self, member: Member) -> Admitted {
        let stepped = self.done > member.joined;
        let mut admitted = self.left(member);
        if stepped {
            admitted.request.token_ns = self.gaps.last_step_ns();
        }
        self.gaps.leave(admitted.request.token_ns);
        admitted
    }

    /// Brings the books of a member that has just been taken out up to date, and those of the batch.
    fn left(&mut self, mut member: Member) -> Admitted {
        let request = &mut member.admitted.request;
        request.produced += (self.done - member.joined) as u32;
        let kv = member.admitted.hold.kv_len() as u64;
        self.context -= kv;
        let begins = self.page_begins_at(kv);
        self.page_begins[begins] -= 1;
        member.admitted
    }

    fn find_bounds(&mut self) {
        self.next_end = self.members.iter().map(|member| member.ends).min().unwrap_or(u64::MAX);
        self.longest =
            self.members.iter().map(|member| whole_len(&member.admitted.request)).max().unwrap_or(0);
    }

    fn page_begins_at(&self, kv: u64) -> usize {
        let page = self.page_begins.len() as u64;
        let to_go = (page - kv % page) % page;
        ((self.launched + to_go) % page) as usize
    }
}

// === impl RunningBatch: steps ===

impl RunningBatch {
    pub(crate) fn launched(&self) -> u64 {
        self.launched
    }

    /// Tokens with KV over all members.
    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    /// The most that prompt and reply of a member will take, as far as replies count.
    pub(crate) fn longest(&self) -> u64 {
        self.longest
    }

    /// Tokens of the pool that are free once the debt is paid.
    pub(crate) fn free(&self, cache: &KvCache) -> u64 {
        cache.free() - self.debt
    }

    /// Tokens that the next step takes: a page for each member that begins one.
    pub(crate) fn demand(&self) -> u64 {
        let page = self.page_begins.len() as u64;
        u64::from(self.page_begins[(self.launched % page) as usize]) * page
    }

    /// Members of the step in progress, those included that have been taken out of the batch since.
    pub(crate) fn in_step(&self) -> u64 {
        self.in_step
    }

    /// Launches a step; [`RunningBatch::demand`] tokens must be free.
    pub(crate) fn launch(&mut self) {
        self.in_step = self.members.len() as u64;
        self.debt += self.demand();
        self.launched += 1;
        self.context += self.members.len() as u64;
    }

    /// Whether it takes part in the step in progress.
    pub(crate) fn is_in_step(&self) -> bool {
        self.launched > self.done
    }

    /// The step in progress has ended.
    pub(crate) fn land(&mut self) {
        self.done = self.launched;
    }

    /// The tokens that the newest `members` joined with have become known.
    pub(crate) fn tell_joined(&mut self, token_ns: u64, members: usize) {
        self.gaps.join(token_ns, members as u32);
    }

    /// The tokens of a step have become known.
    pub(crate) fn tell_step(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        self.gaps.step(at_ns, events);
    }

    /// The end of a member has become known, with the step told of last.
    pub(crate) fn tell_left(&mut self) {
        self.gaps.leave(self.gaps.last_step_ns());
    }

    /// Pays the debt: every hold gets the slots of the steps since the last time.
    pub(crate) fn settle(&mut self, cache: &mut KvCache) {
        let steps = (self.launched - self.settled) as usize;
        if steps == 0 {
            return;
        }
        for member in &mut self.members {
            let paid = cache.extend(&mut member.admitted.hold, steps);
            debug_assert!(paid.is_ok(), "a step is launched only with its slots free");
        }
        self.settled = self.launched;
        self.debt = 0;
    }

    /// How many steps from the one in progress on nothing happens but one more token for each: until a member
    /// ends, or the pool could run short of `available` tokens. At least 1.
    pub(crate) fn quiet_steps(&self, available: u64) -> u64 {
        let page = self.page_begins.len() as u64;
        let until_end = self.next_end.saturating_sub(self.done);
        let until_short = 1 + page * (available / page / self.members.len().max(1) as u64);
        until_end.min(until_short).max(1)
    }
}
