//! From where on a replay decides as it was recorded. One that begins in the middle does not know what was cached, in flight
//! or stuck to keys before, and learns it from what it hears.

use serde::Serialize;

use super::LEAST_SHARE;

/// Fewer decisions prove nothing.
const LEAST_DECISIONS: u64 = 100;

/// The longest stretch up to the end of which [`LEAST_SHARE`] of the decisions are identical.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Settled {
    /// It begins behind the decision about this look; 0: with the recording.
    pub after_look: u64,
    /// When that was decided, in nanoseconds of the router's clock.
    pub after_ns: u64,
    /// Decisions in it.
    pub decisions: u64,
    /// Those that are identical.
    pub identical: u64,
}

/// Finds it without keeping the decisions. Every one scores: so much that the sum over a stretch is not negative if, and only
/// if, enough of it are identical. So the stretch that is looked for begins at the first place where the sum of all before
/// was not higher than that of all: one of the places at which it was lower than ever before.
#[derive(Debug)]
pub(super) struct Finder {
    score: f64,
    /// Places with their scores, each lower than the one before; the stretch behind each.
    lows: Vec<(f64, Settled)>,
}

impl Finder {
    pub(super) fn new() -> Self {
        let whole = Settled { after_look: 0, after_ns: 0, decisions: 0, identical: 0 };
        Self { score: 0.0, lows: vec![(0.0, whole)] }
    }

    /// The next decision, which was about look `n` at `t`; so many there are and so many are identical with it.
    pub(super) fn decided(&mut self, (n, t): (u64, u64), is_same: bool, (decisions, identical): (u64, u64)) {
        self.score += if is_same { 1.0 - LEAST_SHARE } else { -LEAST_SHARE };
        if self.lows.last().is_none_or(|(lowest, _)| self.score < *lowest) {
            let before = Settled { after_look: n, after_ns: t, decisions, identical };
            self.lows.push((self.score, before));
        }
    }

    /// The stretch, after so many decisions of which so many were identical.
    pub(super) fn end(&self, (decisions, identical): (u64, u64)) -> Option<Settled> {
        // What comes of adding the same numbers in another order.
        const ROUNDING: f64 = 1e-6;
        let (_, before) = self.lows.iter().find(|(score, _)| *score <= self.score + ROUNDING)?;
        let decisions = decisions - before.decisions;
        let found = Settled { decisions, identical: identical - before.identical, ..*before };
        (decisions >= LEAST_DECISIONS).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of decisions that are identical or not.
    fn settled(same: impl IntoIterator<Item = bool>) -> Option<Settled> {
        let (mut finder, mut decisions, mut identical) = (Finder::new(), 0, 0);
        for is_same in same {
            decisions += 1;
            identical += u64::from(is_same);
            finder.decided((decisions, 10 * decisions), is_same, (decisions, identical));
        }
        finder.end((decisions, identical))
    }

    fn runs(runs: &[(usize, bool)]) -> Option<Settled> {
        settled(runs.iter().flat_map(|(count, same)| std::iter::repeat_n(*same, *count)))
    }

    fn of(after: u64, decisions: u64, identical: u64) -> Option<Settled> {
        Some(Settled { after_look: after, after_ns: 10 * after, decisions, identical })
    }

    #[test]
    fn the_longest_stretch_that_agrees_up_to_the_end_is_found() {
        assert_eq!(runs(&[(500, true)]), of(0, 500, 500));
        assert_eq!(runs(&[(1, false), (99, true)]), of(0, 100, 99), "99 % are enough");
        assert_eq!(runs(&[(2, false), (500, true)]), of(0, 502, 500), "they count little later on");
        assert_eq!(runs(&[(50, false), (500, true)]), of(45, 505, 500), "some are borne");
        assert_eq!(runs(&[(300, true), (50, false), (200, true)]), of(348, 202, 200));
        assert_eq!(runs(&[(500, true), (9, false)]), None, "the end differs");
        assert_eq!(runs(&[(9, false), (80, true)]), None, "that are too few to say it");
    }

    #[test]
    fn it_is_what_trying_every_place_finds() {
        for seed in 0..200_u64 {
            let drawn = |at: u64| protocol::tokenizer::mix(seed * 1000 + at) % 100;
            let same: Vec<bool> =
                (0..400).map(|at| drawn(at) >= 40_u64.saturating_sub(at / 4 + seed % 7)).collect();
            let enough = |from: &usize| {
                let identical = same[*from..].iter().filter(|is_same| **is_same).count();
                100 * identical >= 99 * (same.len() - from)
            };
            let expected = (0..=same.len() - LEAST_DECISIONS as usize).find(enough);
            let found = settled(same.iter().copied());
            assert_eq!(found.map(|it| it.after_look as usize), expected, "seed {seed}");
        }
    }
}
