//! The clock that the decision core is fed with.

use std::time::{Duration, Instant};

/// Nanoseconds since the process's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts at 0 now.
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The time now, in nanoseconds.
    pub(crate) fn now_ns(self) -> u64 {
        nanoseconds(self.origin.elapsed())
    }

    /// The instant of `at_ns`, for the runtime's timers.
    pub(crate) fn instant(self, at_ns: u64) -> tokio::time::Instant {
        (self.origin + Duration::from_nanos(at_ns)).into()
    }
}

/// A length of time in nanoseconds, as the decision core counts it.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds in seconds, at least 1. Rounded up, so that whoever waits as long as told is not too early.
pub(crate) fn whole_seconds(nanoseconds: u64) -> u64 {
    nanoseconds.div_ceil(1_000_000_000).max(1)
}
