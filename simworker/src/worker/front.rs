//! The front end between the ranks and the readers: one process that takes the same time for each frame, one by one.
//!
//! With no time at all, as by default, it is not there: news go straight to the mailboxes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::latency::Traffic;
use crate::mailbox::{Ending, Mailbox};

/// News about a request.
#[derive(Debug)]
pub(super) enum News {
    /// It has its first token, and so many of its prompt's were cached.
    FirstToken { cached_tokens: u32, host_tokens: u32 },
    /// It has so many tokens.
    Tokens(u32),
    /// It has ended, so long after its arrival.
    End(Ending, u64),
}

impl News {
    fn tell(self, mailbox: &Mailbox, at_ns: u64) {
        match self {
            Self::FirstToken { cached_tokens, host_tokens } => {
                mailbox.first_token(at_ns, cached_tokens, host_tokens);
            }
            Self::Tokens(tokens) => mailbox.tokens(at_ns, tokens),
            Self::End(ending, e2e_ns) => mailbox.end(at_ns, ending, e2e_ns),
        }
    }
}

/// The front end.
#[derive(Debug)]
pub(super) struct Front {
    frame_ns: u64,
    interval: u32,
    /// When it will have done all that it has.
    free_ns: u64,
    /// By the time at which it is done.
    queue: VecDeque<(u64, Arc<Mailbox>, News)>,
}

impl Front {
    /// One that takes so long for each frame of `interval` tokens.
    pub(super) fn new(frame_ns: u64, interval: u32) -> Self {
        Self { frame_ns, interval, free_ns: 0, queue: VecDeque::new() }
    }

    /// The same one without anything to do.
    pub(super) fn emptied(&self) -> Self {
        Self::new(self.frame_ns, self.interval)
    }

    /// Whether it takes any time.
    pub(super) fn is_there(&self) -> bool {
        self.frame_ns > 0
    }

    /// When news of this moment are through.
    pub(super) fn take(&mut self, at_ns: u64, traffic: Traffic) -> u64 {
        if !self.is_there() {
            return at_ns;
        }
        let work_ns = if traffic == Traffic::Streamed { self.frame_ns } else { 0 };
        self.free_ns = self.free_ns.max(at_ns).saturating_add(work_ns);
        self.free_ns
    }

    /// Whether the ranks tell it of a stream's token: they tell of those that complete a frame.
    pub(super) fn is_told(&self, tokens: u32, traffic: Traffic) -> bool {
        traffic == Traffic::Streamed && tokens.saturating_sub(1).is_multiple_of(self.interval)
    }

    /// Passes on news that are through at a time it has given.
    pub(super) fn pass(&mut self, through_ns: u64, mailbox: &Arc<Mailbox>, news: News) {
        if self.is_there() {
            self.queue.push_back((through_ns, Arc::clone(mailbox), news));
        } else {
            news.tell(mailbox, through_ns);
        }
    }

    /// When the next news are through; `u64::MAX` when there are none.
    pub(super) fn next_ns(&self) -> u64 {
        self.queue.front().map_or(u64::MAX, |(through_ns, ..)| *through_ns)
    }

    /// Tells the readers what is through by then.
    pub(super) fn release(&mut self, now_ns: u64) {
        while self.next_ns() <= now_ns
            && let Some((through_ns, mailbox, news)) = self.queue.pop_front()
        {
            news.tell(&mailbox, through_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_wait_for_each_other() {
        let mut front = Front::new(10, 1);
        let times = [5, 5, 5, 100].map(|at_ns| front.take(at_ns, Traffic::Streamed));
        assert_eq!(times, [15, 25, 35, 110]);
        assert_eq!(
            front.take(111, Traffic::Whole),
            111,
            "whole answers take none of it, but keep their turn"
        );
        assert_eq!(Front::new(0, 1).take(7, Traffic::Streamed), 7);
    }

    #[test]
    fn news_come_in_order_and_not_too_early() {
        let mut front = Front::new(10, 1);
        let (first, second) = (Arc::new(Mailbox::new()), Arc::new(Mailbox::new()));
        front.pass(10, &first, News::FirstToken { cached_tokens: 0, host_tokens: 0 });
        front.pass(20, &second, News::Tokens(3));
        front.release(9);
        assert_eq!(front.next_ns(), 10);
        front.release(19);
        assert_eq!(front.next_ns(), 20);
        front.release(20);
        assert_eq!(front.next_ns(), u64::MAX);
    }

    #[test]
    fn only_frames_are_told() {
        let front = Front::new(1, 4);
        let told: Vec<u32> = (1..12).filter(|tokens| front.is_told(*tokens, Traffic::Streamed)).collect();
        assert_eq!(told, [1, 5, 9]);
        assert!(!front.is_told(1, Traffic::Whole));
    }
}
