//! Whether a decode engine has room for one more prompt: the arithmetic of preallocation.
//!
//! KV that is on its way cannot be taken back, so what is promised must leave enough for those that run. SGLang keeps
//! the larger of two amounts free (`DecodePreallocQueue._allocatable_tokens` in `disaggregation/decode.py`): some
//! tokens for each request that holds KV; and what the longest running request still needs once all others are
//! retracted.

/// The KV of a decode engine at one moment, in tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserve {
    /// Free, or cached and idle.
    pub(crate) available: u64,
    /// Kept free per request (`--num-reserved-decode-tokens`).
    pub(crate) each: u64,
    /// Requests that hold KV.
    pub(crate) holders: u64,
    /// Of the running requests: what they would give back in all if they were retracted.
    pub(crate) retractable: u64,
    /// Of the running requests: the most that prompt and reply of one will take.
    pub(crate) longest: u64,
}

/// What a request asks for, in tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    /// Taken now, in whole pages.
    pub(crate) slots: u64,
    /// Prompt and reply, as far as it counts.
    pub(crate) total: u64,
}

impl Reserve {
    /// What may be given to requests that have never run. 0 when the reserve is not even whole.
    pub(crate) fn allocatable(&self) -> u64 {
        let last = self.longest.saturating_sub(self.retractable);
        self.available.saturating_sub((self.each * self.holders).max(last))
    }

    /// What may be given to requests that come back: others are running, or they would not have left.
    pub(crate) fn resumable(&self) -> u64 {
        self.available.saturating_sub(self.each * self.holders)
    }

    /// Whether a new request fits into `allocatable`. With nobody else there, nobody needs a reserve: SGLang would let
    /// a prompt that leaves no room for it wait for ever.
    pub(crate) fn fits(&self, ask: Ask, allocatable: u64) -> bool {
        if self.holders == 0 {
            return ask.slots <= self.available;
        }
        ask.slots + self.each <= allocatable && ask.total.saturating_sub(self.retractable) <= allocatable
    }

    /// Whether a request that comes back fits into `resumable`.
    pub(crate) fn fits_again(&self, slots: u64, resumable: u64) -> bool {
        if self.holders == 0 {
            return slots <= self.available;
        }
        slots + self.each <= resumable
    }

    /// Whether a request that does not fit now cannot fit before somebody leaves: decode steps only take, and of what
    /// the rule looks at nothing but the first amount is sure not to shrink with them.
    pub(crate) fn blocks_until_somebody_leaves(&self, ask: Ask) -> bool {
        ask.slots + self.each > self.resumable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(available: u64, holders: u64, retractable: u64, longest: u64) -> Reserve {
        Reserve { available, each: 512, holders, retractable, longest }
    }

    fn fits(reserve: Reserve, slots: u64, total: u64) -> bool {
        reserve.fits(Ask { slots, total }, reserve.allocatable())
    }

    #[test]
    fn each_holder_keeps_its_share_and_so_does_the_new_one() {
        let two = reserve(10_000, 2, 0, 0);
        assert_eq!(two.allocatable(), 10_000 - 1024);
        assert!(fits(two, 10_000 - 3 * 512, 0));
        assert!(!fits(two, 10_000 - 3 * 512 + 1, 0));
        assert!(two.fits_again(10_000 - 3 * 512, two.resumable()));
        assert!(!two.fits_again(10_000 - 3 * 512 + 1, two.resumable()));
    }

    #[test]
    fn the_longest_must_be_able_to_end_alone() {
        let long = reserve(6_000, 1, 1_000, 5_000);
        assert_eq!((long.allocatable(), long.resumable()), (6_000 - 4_000, 6_000 - 512));
        let lost = reserve(100, 1, 1_000, 5_000);
        assert_eq!(lost.allocatable(), 0);
    }

    #[test]
    fn the_new_one_must_be_able_to_end_alone_too() {
        let some = reserve(5_000, 1, 2_000, 0);
        assert!(fits(some, 300, 5_000 - 512 + 2_000));
        assert!(!fits(some, 300, 5_000 - 512 + 2_001));
    }

    #[test]
    fn alone_it_needs_no_reserve() {
        let empty = reserve(1_000, 0, 0, 0);
        assert!(fits(empty, 1_000, 1_000) && empty.fits_again(1_000, empty.resumable()));
        assert!(!fits(empty, 1_001, 1_001) && !empty.fits_again(1_001, empty.resumable()));
    }

    #[test]
    fn only_the_share_of_each_blocks_for_good() {
        let long = reserve(6_000, 1, 1_000, 5_000);
        let ask = |slots, total| Ask { slots, total };
        assert!(!long.fits(ask(2_000, 2_100), long.allocatable()));
        assert!(!long.blocks_until_somebody_leaves(ask(2_000, 2_100)));
        assert!(long.blocks_until_somebody_leaves(ask(5_000, 5_100)));
    }
}
