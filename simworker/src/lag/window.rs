//! The judgement: was a second late?

use std::fmt;

use crate::quantiles::Quantiles;

/// How long a window is at least.
const LENGTH_NS: u64 = 1_000_000_000;
/// One that has become longer has seen idle time, and says nothing about a second.
const LONGEST_NS: u64 = 4 * LENGTH_NS;
/// A window with fewer frames or steps than that goes on: one hiccup is no lack of speed.
const LEAST: u64 = 16;
/// So many are enough if they are late by a whole window: who is as slow as that has few of them. One alone may be of a
/// reader that stopped.
const LEAST_BEHIND: u64 = 4;
/// What is late by no more than this is not late.
const ALLOWED_NS: u64 = 2_000_000;
/// Nor is what is late by no more than this share of the time between two tokens.
const ALLOWED_SHARE: f64 = 0.03;
/// For so long after its end a window is the last word.
const SPEAKS_FOR_NS: u64 = 3 * LENGTH_NS;

/// Lags of about the last second.
#[derive(Debug, Clone)]
pub(super) struct Window {
    began_ns: u64,
    steps: Quantiles,
    frames: Quantiles,
    /// Between tokens.
    gaps_ns: u64,
    tokens: u64,
    /// When the last window ended that was late, if the very last one was.
    late_at_ns: Option<u64>,
}

/// A window that was late.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Late {
    pub(super) lasted_ns: u64,
    median_ns: u64,
    p99_ns: u64,
    allowed_ns: u64,
    per_second: f64,
}

impl Window {
    pub(super) fn new(now_ns: u64) -> Self {
        let none = Quantiles::default;
        Self { began_ns: now_ns, steps: none(), frames: none(), gaps_ns: 0, tokens: 0, late_at_ns: None }
    }

    pub(super) fn step(&mut self, late_ns: u64, gaps_ns: u64, tokens: u64) {
        self.steps.observe(late_ns, 1);
        self.gaps_ns += gaps_ns;
        self.tokens += tokens;
    }

    pub(super) fn frame(&mut self, late_ns: u64) {
        self.frames.observe(late_ns, 1);
    }

    /// Ends the window if it is long enough and begins the next; what it was, if it was late.
    pub(super) fn close(&mut self, now_ns: u64) -> Option<Late> {
        let lasted_ns = now_ns.saturating_sub(self.began_ns);
        let has_idled = lasted_ns > LONGEST_NS;
        let is_behind = |lags: &&Quantiles| lags.at(0.5) >= Some(LENGTH_NS);
        let are_enough = |lags: &&Quantiles| {
            (is_behind(lags) && lags.count() >= LEAST_BEHIND) || (!has_idled && lags.count() >= LEAST)
        };
        let lags = [&self.frames, &self.steps];
        let goes_on = !has_idled || lags.iter().any(is_behind);
        if lasted_ns < LENGTH_NS || (goes_on && !lags.iter().any(are_enough)) {
            return None;
        }
        let allowed_ns = self.allowed_ns();
        let late = |lags: &Quantiles| {
            let median_ns = lags.at(0.5).filter(|median| *median > allowed_ns)?;
            let p99_ns = lags.at(0.99).unwrap_or(median_ns);
            let per_second = self.frames.count() as f64 * 1e9 / lasted_ns as f64;
            let lasted_ns = if has_idled { lasted_ns.min(p99_ns) } else { lasted_ns };
            Some(Late { lasted_ns, median_ns, p99_ns, allowed_ns, per_second })
        };
        let late = lags.into_iter().filter(are_enough).find_map(late);
        let late_at_ns = late.as_ref().map(|_| now_ns).or(self.late_at_ns.filter(|_| has_idled));
        *self = Self { late_at_ns, ..Self::new(now_ns) };
        late
    }

    fn allowed_ns(&self) -> u64 {
        let gap_ns = self.gaps_ns as f64 / self.tokens.max(1) as f64;
        ALLOWED_NS.max((ALLOWED_SHARE * gap_ns) as u64)
    }

    /// Whether the last window was late, and not so long ago that it says nothing about now.
    pub(super) fn was_late(&self, now_ns: u64) -> bool {
        self.late_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < SPEAKS_FOR_NS)
    }
}

impl fmt::Display for Late {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        write!(
            out,
            "is late: its frames leave {:.1} ms (median; p99 {:.1} ms) after engine time, more than {:.1} ms, at {:.0} \
             frames/s; latencies are this machine's, not the engine's: send less, read faster, choose a lower --speed, \
             or give it more CPU",
            ms(self.median_ns),
            ms(self.p99_ns),
            ms(self.allowed_ns),
            self.per_second,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A second of frames that are so late, with so long between tokens.
    fn second(window: &mut Window, from_ns: u64, late_ns: u64, gap_ns: u64, frames: u64) -> Option<Late> {
        for _ in 0..frames {
            window.step(0, gap_ns, 1);
            window.frame(late_ns);
        }
        assert_eq!(window.close(from_ns + LENGTH_NS - 1), None, "not yet a second");
        window.close(from_ns + LENGTH_NS)
    }

    #[test]
    fn late_is_more_than_two_milliseconds_and_three_percent_of_a_gap() {
        for (late_ns, gap_ns, is_late) in [
            (MS, 10 * MS, false),
            (3 * MS, 10 * MS, true),
            (3 * MS, 200 * MS, false),
            (7 * MS, 200 * MS, true),
        ] {
            let mut window = Window::new(0);
            let late = second(&mut window, 0, late_ns, gap_ns, 100);
            assert_eq!(late.is_some(), is_late, "{late_ns} of {gap_ns}");
            assert_eq!(window.was_late(LENGTH_NS + 5), is_late);
        }
    }

    #[test]
    fn a_few_frames_are_no_evidence_alone() {
        let mut window = Window::new(0);
        assert_eq!(second(&mut window, 0, 50 * MS, 10 * MS, LEAST - 1), None);
        window.frame(50 * MS);
        let late = window.close(2 * LENGTH_NS).expect("now there are enough");
        assert_eq!((late.lasted_ns, late.per_second), (2 * LENGTH_NS, 8.0));
    }

    #[test]
    fn a_burst_after_idle_time_is_no_late_hour() {
        let mut window = Window::new(0);
        for _ in 0..LEAST {
            window.frame(50 * MS);
        }
        assert_eq!(window.close(3_600 * LENGTH_NS), None);
        assert!(
            second(&mut window, 3_600 * LENGTH_NS, 9 * MS, 10 * MS, 100).is_some(),
            "the next one counts"
        );
    }

    // So expensive frames that only some leave within a window.
    #[test]
    fn a_worker_that_is_behind_by_more_than_a_window_says_so_by_a_few_frames() {
        for (after_ns, late_ns, expected) in [
            (LENGTH_NS, LENGTH_NS, Some(1)),
            (LENGTH_NS, LENGTH_NS / 2, None),
            (16 * LENGTH_NS, 15 * LENGTH_NS, Some(15)),
            (3_600 * LENGTH_NS, 2 * LENGTH_NS, Some(2)),
            (3_600 * LENGTH_NS, LENGTH_NS / 2, None),
        ] {
            let mut window = Window::new(0);
            (0..10 * LEAST).for_each(|_| window.step(0, 10 * MS, 1));
            (1..LEAST_BEHIND).for_each(|_| window.frame(late_ns));
            assert_eq!(window.clone().close(after_ns), None, "readers may have stopped");
            window.frame(late_ns);
            let late = window.close(after_ns);
            let lasted_s = late.map(|late| (late.lasted_ns as f64 / LENGTH_NS as f64).round() as u64);
            // Of idle time before it nobody can say that it was late.
            assert_eq!(lasted_s, expected, "{late_ns} after {after_ns}");
        }
    }

    #[test]
    fn so_few_frames_need_not_come_within_one_window() {
        let mut window = Window::new(0);
        for second in 1..LEAST_BEHIND {
            window.frame(10 * LENGTH_NS);
            assert_eq!(window.close(5 * second * LENGTH_NS), None);
        }
        window.frame(10 * LENGTH_NS);
        assert!(window.close(5 * LEAST_BEHIND * LENGTH_NS).is_some());
    }

    #[test]
    fn steps_that_nobody_waits_for_can_be_late_too() {
        let mut window = Window::new(0);
        for _ in 0..LEAST {
            window.step(9 * MS, 10 * MS, 1);
        }
        assert!(window.close(LENGTH_NS).is_some());
    }

    #[test]
    fn a_late_second_is_forgotten() {
        let mut window = Window::new(0);
        assert!(second(&mut window, 0, 9 * MS, 10 * MS, 100).is_some());
        assert!(!window.was_late(LENGTH_NS + SPEAKS_FOR_NS));
        assert_eq!(second(&mut window, LENGTH_NS, 0, 10 * MS, 100), None);
        assert!(!window.was_late(2 * LENGTH_NS + 1), "the last one was in time");
    }

    #[test]
    fn the_line_says_how_late_and_what_helps() {
        let mut window = Window::new(0);
        let line = second(&mut window, 0, 9 * MS, 10 * MS, 100).unwrap().to_string();
        for word in ["9.0 ms", "more than 2.0 ms", "100 frames/s", "--speed"] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
}
