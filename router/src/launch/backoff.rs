//! How long a worker that has ended waits for its next start.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// A worker that lived as long has proven that it can.
const PROVEN: Duration = Duration::from_secs(60);

/// Doubles from start to start.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Backoff {
    /// The pause after a life of this length.
    pub(super) fn after(&mut self, lived: Duration) -> Duration {
        if lived >= PROVEN {
            self.0 = FIRST;
        }
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_a_worker_has_lived() {
        let mut backoff = Backoff::default();
        let lives = [0, 1, 59, 0, 0, 0, 59, 60, 0, 3600];
        let pauses = lives.map(|secs| backoff.after(Duration::from_secs(secs)).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 1, 2, 1]);
    }
}
