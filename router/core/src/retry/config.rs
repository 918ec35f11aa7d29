//! What is retried, how often and how soon.

use super::Cause;

const MILLISECOND_NS: u64 = 1_000_000;

/// When a request is tried again.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryConfig {
    /// Most attempts, the first one included. 0 means 1.
    pub max_attempts: u32,
    /// Nanoseconds before the second attempt, where one has to wait.
    pub initial_backoff_ns: u64,
    /// Most nanoseconds between two attempts, jitter apart; also the longest `Retry-After` of a worker that is waited for.
    pub max_backoff_ns: u64,
    /// By how much each wait is longer than the one before.
    pub multiplier: f64,
    /// Largest share of a wait by which it is made longer or shorter.
    pub jitter: f64,
    /// Statuses of answers that are retried.
    pub statuses: StatusSet,
    /// Whether a request is retried whose connection was lost before any byte of the response, reused or fresh, although
    /// the worker may have read it and done the work.
    pub on_reset: bool,
    /// Most retries as a share of all requests, in percent; see [`super::RetryBudget`].
    pub budget_percent: f64,
    /// Retries within the budget's window that are free of this share.
    pub budget_floor: u32,
}

/// A set of HTTP statuses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StatusSet([u64; StatusSet::WORDS]);

// === impl RetryConfig ===

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_backoff_ns: 50 * MILLISECOND_NS,
            max_backoff_ns: 30_000 * MILLISECOND_NS,
            multiplier: 1.5,
            jitter: 0.2,
            statuses: [408, 429, 500, 502, 503, 504].into_iter().collect(),
            on_reset: true,
            budget_percent: 20.0,
            budget_floor: 100,
        }
    }
}

impl RetryConfig {
    /// One attempt and no more.
    #[must_use]
    pub fn disabled() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// Whether a failure of this kind is worth another attempt.
    #[must_use]
    pub fn retries(&self, cause: Cause) -> bool {
        match cause {
            Cause::Connect | Cause::Duplicate | Cause::OtherRanks => true,
            // On a reused connection too the worker may have read the request.
            Cause::StaleConnection | Cause::Reset => self.on_reset,
            Cause::Status(status) => self.statuses.contains(status),
        }
    }

    /// Nanoseconds to wait before retry `retry` (the first is 0): the initial backoff grown by the multiplier each time, at
    /// most the largest one, in whole milliseconds, and then made longer or shorter by at most the jitter. The formula of
    /// SGLang's gateway. `draw` is uniform in [0, 1).
    #[must_use]
    pub fn backoff_ns(&self, retry: u32, draw: f64) -> u64 {
        let grown =
            self.initial_backoff_ns as f64 * self.multiplier.powi(i32::try_from(retry).unwrap_or(i32::MAX));
        // Nothing times infinity is no number, and no wait.
        let grown = if grown.is_nan() { 0.0 } else { grown.min(self.max_backoff_ns as f64) };
        let whole_ms = grown as u64 / MILLISECOND_NS * MILLISECOND_NS;
        let stretch = 1.0 + self.jitter * (2.0 * draw - 1.0);
        (whole_ms as f64 * stretch) as u64
    }
}

// === impl StatusSet ===

impl StatusSet {
    /// Statuses have three digits.
    const WORDS: usize = 1024 / 64;

    /// No status.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; Self::WORDS])
    }

    /// Puts a status in; whether it is one of three digits or fewer, as others are left out.
    pub fn insert(&mut self, status: u16) -> bool {
        let fits = status < 1000;
        if fits {
            self.0[usize::from(status / 64)] |= 1 << (status % 64);
        }
        fits
    }

    /// Whether a status is in.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.get(usize::from(status / 64)).is_some_and(|word| word >> (status % 64) & 1 == 1)
    }

    /// The statuses in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..1000).filter(|status| self.contains(*status))
    }
}

impl Default for StatusSet {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<u16> for StatusSet {
    fn from_iter<I: IntoIterator<Item = u16>>(statuses: I) -> Self {
        let mut set = Self::new();
        for status in statuses {
            set.insert(status);
        }
        set
    }
}

impl std::fmt::Debug for StatusSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
