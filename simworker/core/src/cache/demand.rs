//! Arithmetic of demand: how many slots something takes, the same for every caller.

use super::{Hold, KvCache};

impl KvCache {
    /// `len` rounded down to whole pages.
    #[must_use]
    pub fn floor_to_page(&self, len: usize) -> usize {
        len - len % self.pool.page_size() as usize
    }

    /// `len` rounded up to whole pages.
    #[must_use]
    pub fn ceil_to_page(&self, len: usize) -> usize {
        len.next_multiple_of(self.pool.page_size() as usize)
    }

    /// Tokens of the pool that [`extend`](Self::extend) by `n` would take: the pages that begin in that range.
    #[must_use]
    pub fn extend_cost(&self, hold: &Hold, n: usize) -> u64 {
        (self.ceil_to_page(hold.kv_len + n) - self.ceil_to_page(hold.kv_len)) as u64
    }

    /// What SGLang asks to be free before a prefill batch of `requests` computes `tokens`: with pages, one page
    /// too many per request.
    #[must_use]
    pub fn prefill_demand(&self, tokens: u64, requests: u64) -> u64 {
        if self.pool.page_size() == 1 { tokens } else { tokens + requests * u64::from(self.pool.page_size()) }
    }

    /// What SGLang asks to be free before a decode step of `requests`, whether or not new pages begin.
    #[must_use]
    pub fn decode_demand(&self, requests: u64) -> u64 {
        requests * u64::from(self.pool.page_size())
    }

    /// What the feasibility check before a decode step asks for: a page for each hold that has none begun.
    #[must_use]
    pub fn decode_check<'a>(&self, holds: impl IntoIterator<Item = &'a Hold>) -> u64 {
        holds.into_iter().map(|hold| self.extend_cost(hold, 1)).sum()
    }

    /// Slots that a hold has for itself.
    pub(super) fn private_of(&self, hold: &Hold) -> u64 {
        (self.ceil_to_page(hold.kv_len) - hold.protected_len) as u64
    }
}
