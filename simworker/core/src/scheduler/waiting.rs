//! The waiting queue: who waits, and who has to go when it is too long.

use std::collections::VecDeque;

use super::order::{Facts, Order};
use super::request::Request;
use crate::cache::KvCache;
use crate::config::{PriorityConfig, Schedule};
use crate::request::RequestId;

#[derive(Debug)]
pub(crate) struct WaitingQueue {
    queue: VecDeque<Request>,
    /// Arrivals that the next choice of a batch does not see.
    arrivals: Vec<Request>,
    order: Order,
    /// Requests that have entered the queue.
    entered: u64,
    /// Tokens that prefill steps have computed so far.
    processed: u64,
    /// Tokens of all that wait.
    tokens: u64,
}

impl WaitingQueue {
    pub(crate) fn new(order: Order) -> Self {
        Self { queue: VecDeque::new(), arrivals: Vec::new(), order, entered: 0, processed: 0, tokens: 0 }
    }

    pub(crate) fn push(&mut self, request: Request) {
        self.tokens += request.len() as u64;
        self.enter(request);
    }

    fn enter(&mut self, mut request: Request) {
        self.entered += 1;
        request.entered = self.entered;
        request.processed_before = self.processed;
        self.queue.push_back(request);
    }

    /// Takes in a request that has no part in the queue before [`WaitingQueue::receive`].
    pub(crate) fn hold_back(&mut self, request: Request) {
        self.tokens += request.len() as u64;
        self.arrivals.push(request);
    }

    /// Lets those that were held back into the queue.
    pub(crate) fn receive(&mut self) {
        for request in std::mem::take(&mut self.arrivals) {
            self.enter(request);
        }
    }

    /// A prefill step over so many tokens has been launched.
    pub(crate) fn processed(&mut self, tokens: u64) {
        self.processed += tokens;
    }

    pub(crate) fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&Request> {
        self.queue.front()
    }

    /// Takes out the front if it is wanted.
    pub(crate) fn pop_if(&mut self, wanted: bool) -> Option<Request> {
        let request = if wanted { self.queue.pop_front() } else { None };
        request.inspect(|request| self.tokens -= request.len() as u64)
    }

    /// All that wait, those included that are held back.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.arrivals.len()
    }

    /// Whether there is nobody to choose from.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// All that wait, those included that are held back.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Request> {
        self.queue.iter().chain(&self.arrivals)
    }

    /// Those that can be chosen, in the order in which they are tried.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Request> {
        self.queue.iter()
    }

    /// Tokens of all that wait.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Takes out the request of that name.
    pub(crate) fn take(&mut self, id: RequestId) -> Option<Request> {
        let request = if let Some(at) = self.arrivals.iter().position(|request| request.id == id) {
            self.arrivals.remove(at)
        } else {
            let at = self.queue.iter().position(|request| request.id == id)?;
            self.queue.remove(at)?
        };
        self.tokens -= request.len() as u64;
        Some(request)
    }

    /// The request that gives way when the queue is full and one of `priority` comes: the one with the worst priority, the
    /// latest to enter the queue among equals, whatever the order of the queue (SGLang's `_abort_on_queued_limit`). None if
    /// it is not worse than the one that comes.
    pub(crate) fn worst(&self, priorities: PriorityConfig, priority: Option<i64>) -> Option<RequestId> {
        let queued = self.queue.iter().map(|request| (request.entered, request));
        // They will enter after all others, in this order.
        let held_back = (self.entered + 1..).zip(&self.arrivals);
        let place = |(entered, request): &(u64, &Request)| (priorities.rank(request.priority), *entered);
        let (_, worst) = queued.chain(held_back).max_by_key(place)?;
        (priorities.rank(priority) < priorities.rank(worst.priority)).then_some(worst.id)
    }

    /// By what it is ordered.
    pub(crate) fn schedule(&self) -> Schedule {
        self.order.schedule()
    }

    /// Whether the order depends on what is cached.
    pub(crate) fn is_cache_aware(&self) -> bool {
        self.order.is_cache_aware(self.queue.len())
    }

    /// Puts the queue into the order in which requests are tried.
    pub(crate) fn order(&mut self, cache: &mut KvCache, facts: &Facts<'_>) {
        self.order.apply(&mut self.queue, cache, self.processed, facts);
    }

    /// Proves the count of tokens.
    pub(crate) fn check(&self) -> Result<(), String> {
        let tokens: u64 = self.iter().map(|request| request.len() as u64).sum();
        if tokens != self.tokens {
            return Err(format!("the queue counts {} tokens, its requests {tokens}", self.tokens));
        }
        Ok(())
    }
}
