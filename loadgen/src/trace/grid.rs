//! The clock that wrote a trace: did it round to coarse steps? (The Mooncake conversation trace: 3 s.)

use std::collections::BTreeMap;

/// Stamps that lie no further apart than this are one stamp, written by a clock that rounds.
pub(crate) const ROUNDING_NS: u64 = 2_000_000;
/// Steps finer than this are taken for a clock's resolution, not for a grid.
const FINEST_NS: f64 = 20e6;
/// Gaps of more different lengths than this come from no grid.
const MOST_GAPS: usize = 1 << 16;

/// Looks for a grid among stamps that come in order; holds no more than the different gaps.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    former_ns: Option<u64>,
    /// How often each gap was seen.
    gaps: BTreeMap<u64, u64>,
    none: bool,
}

impl Grid {
    /// Takes the next stamp.
    pub fn add(&mut self, at_ns: u64) {
        let former_ns = self.former_ns.replace(at_ns).unwrap_or(at_ns);
        let gap_ns = at_ns - former_ns;
        if self.none || gap_ns <= ROUNDING_NS {
            return;
        }
        *self.gaps.entry(gap_ns).or_default() += 1;
        if self.gaps.len() > MOST_GAPS {
            self.none = true;
            self.gaps.clear();
        }
    }

    /// The step of the clock, in nanoseconds, if it is a coarse one: nearly all gaps between different stamps are multiples
    /// of it, give or take two milliseconds.
    #[must_use]
    pub fn step_ns(&self) -> Option<u64> {
        let finest = self.gaps.keys().next().map(|gap| *gap as f64).filter(|gap| *gap >= FINEST_NS)?;
        let sum = |of: &dyn Fn(f64) -> f64| -> f64 {
            self.gaps.iter().map(|(gap, times)| of(*gap as f64) * *times as f64).sum()
        };
        // The finest gap may have been rounded; the mean over all steps is not.
        let step = sum(&|gap| gap) / sum(&|gap| (gap / finest).round());
        let off_grid = |gap: f64| ((gap / step).round() * step - gap).abs() > ROUNDING_NS as f64;
        let misfits = sum(&|gap| f64::from(u8::from(off_grid(gap))));
        (misfits * 20.0 <= sum(&|_| 1.0)).then(|| (step / 1e6).round() as u64 * 1_000_000)
    }
}

impl FromIterator<u64> for Grid {
    fn from_iter<I: IntoIterator<Item = u64>>(stamps: I) -> Self {
        let mut grid = Self::default();
        stamps.into_iter().for_each(|at_ns| grid.add(at_ns));
        grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_found_and_fine_clocks_are_none() {
        let grid = |at_ms: &[u64]| {
            at_ms.iter().map(|at| at * 1_000_000).collect::<Grid>().step_ns().map(|step| step / 1_000_000)
        };
        assert_eq!(grid(&[0, 0, 3000, 6000, 6000, 9000]), Some(3000));
        assert_eq!(grid(&[0, 2999, 2999, 6000, 12_001, 15_000]), Some(3000), "give or take 1 ms");
        assert_eq!(grid(&[0, 3000, 6000, 6001, 9000, 21_000]), Some(3000), "one step, two stamps");
        assert_eq!(grid(&[0, 40, 277, 471, 1000, 1123]), None, "a clock of 1 ms");
        assert_eq!(grid(&[0, 1, 2, 3]), None);
        assert_eq!(grid(&[7, 7, 7]), None);
        assert_eq!(grid(&[]), None);
    }

    #[test]
    fn a_trace_of_ever_new_gaps_is_on_no_grid_and_takes_no_memory() {
        let mut at_ns = 0;
        let stamps = (0..200_000).map(|i| {
            at_ns += 30_000_000 + i;
            at_ns
        });
        let grid: Grid = stamps.collect();
        assert_eq!(grid.step_ns(), None);
        assert!(grid.gaps.is_empty());
    }
}
