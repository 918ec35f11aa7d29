//! The prompts of the last seconds: their lengths, and how many characters each worker got.

use std::collections::{BTreeMap, VecDeque};

use crate::WorkerId;

/// Most prompts that are kept; above it the oldest go early.
const MAX_PROMPTS: usize = 1 << 16;

/// One prompt.
#[derive(Debug, Clone, Copy)]
struct Prompt {
    at_ns: u64,
    worker: WorkerId,
    chars: u64,
}

/// A sliding window over prompts. Reading takes the time, so that it is exact between two sweeps too.
#[derive(Debug)]
pub(super) struct LengthWindow {
    span_ns: u64,
    /// In order of recording.
    prompts: VecDeque<Prompt>,
    /// Characters in `prompts` per worker.
    chars: BTreeMap<WorkerId, u64>,
    total: u64,
}

impl LengthWindow {
    pub(super) fn new(span_ns: u64) -> Self {
        Self { span_ns, prompts: VecDeque::new(), chars: BTreeMap::new(), total: 0 }
    }

    pub(super) fn record(&mut self, now_ns: u64, worker: WorkerId, chars: u64) {
        self.expire(now_ns);
        if self.prompts.len() >= MAX_PROMPTS {
            self.drop_oldest();
        }
        self.prompts.push_back(Prompt { at_ns: now_ns, worker, chars });
        *self.chars.entry(worker).or_default() += chars;
        self.total += chars;
    }

    /// Drops what has left the window.
    pub(super) fn expire(&mut self, now_ns: u64) {
        while self.prompts.front().is_some_and(|prompt| self.is_old(now_ns, prompt)) {
            self.drop_oldest();
        }
    }

    /// Drops what a worker got.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.prompts.retain(|prompt| prompt.worker != worker);
        self.total -= self.chars.remove(&worker).unwrap_or(0);
    }

    /// Characters that a worker got within the window.
    pub(super) fn chars(&self, now_ns: u64, worker: WorkerId) -> u64 {
        let kept = self.chars.get(&worker).copied().unwrap_or(0);
        let old = self.prompts.iter().take_while(|prompt| self.is_old(now_ns, prompt));
        kept - old.filter(|prompt| prompt.worker == worker).map(|prompt| prompt.chars).sum::<u64>()
    }

    /// The lengths of all prompts within the window.
    pub(super) fn lengths(&self, now_ns: u64) -> Vec<u64> {
        self.prompts.iter().filter(|prompt| !self.is_old(now_ns, prompt)).map(|prompt| prompt.chars).collect()
    }

    /// Characters of all prompts that were not dropped.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether all prompts were dropped.
    pub(super) fn is_empty(&self) -> bool {
        self.prompts.is_empty()
    }

    fn is_old(&self, now_ns: u64, prompt: &Prompt) -> bool {
        now_ns.saturating_sub(prompt.at_ns) >= self.span_ns
    }

    fn drop_oldest(&mut self) {
        let Some(prompt) = self.prompts.pop_front() else { return };
        if let Some(chars) = self.chars.get_mut(&prompt.worker) {
            *chars -= prompt.chars;
        }
        self.total -= prompt.chars;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_is_exact_between_sweeps() {
        let (a, b) = (WorkerId(0), WorkerId(1));
        let mut window = LengthWindow::new(10);
        window.record(0, a, 100);
        window.record(4, b, 30);
        window.record(9, a, 5);
        let at = |now_ns| (window.chars(now_ns, a), window.chars(now_ns, b), window.lengths(now_ns).len());
        assert_eq!(at(9), (105, 30, 3));
        assert_eq!(at(10), (5, 30, 2));
        assert_eq!(at(14), (5, 0, 1));
        assert_eq!(at(19), (0, 0, 0));
        window.expire(14);
        assert_eq!((window.total(), window.chars(14, a), window.prompts.len()), (5, 5, 1));
    }

    #[test]
    fn a_forgotten_worker_leaves_nothing() {
        let mut window = LengthWindow::new(10);
        window.record(0, WorkerId(0), 100);
        window.record(1, WorkerId(1), 50);
        window.forget(WorkerId(0));
        assert_eq!((window.total(), window.chars(1, WorkerId(0)), window.lengths(1)), (50, 0, vec![50]));
        window.expire(100);
        assert!(window.is_empty());
    }
}
