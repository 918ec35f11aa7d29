//! How large a difference of live figures must be to matter.

use std::str::FromStr;

use super::figures;
use crate::report::{Better, Metric};

/// A difference matters when it is beyond both bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// The figure.
    pub metric: &'static str,
    /// Largest harmless difference as a share of the baseline.
    pub relative: f64,
    /// Largest harmless difference in the figure's own unit; shares are from 0 to 1.
    pub absolute: f64,
}

/// What is judged unless told otherwise, and how. Eight figures, so that five repeats that are all worse can still pass
/// Holm's correction. No means, which one outlier moves.
///
/// The bounds are chosen, not measured: they are the changes from which on one would look into it. A failure is always one.
/// The hit rate depends on times only through the order of requests, so half a point is much. A time has a share, and an
/// absolute bound besides, because some milliseconds are the pauses of a busy scheduler. A 99th percentile rests on a
/// hundredth of the requests and so has more than twice the median's share. `--tolerance` is for who knows better.
const DEFAULTS: [Tolerance; 8] = [
    Tolerance { metric: "failed", relative: 0.0, absolute: 0.0 },
    Tolerance { metric: "hit_rate", relative: 0.0, absolute: 0.005 },
    Tolerance { metric: "input_tok_s", relative: 0.05, absolute: 0.0 },
    Tolerance { metric: "ttft_ms.p50", relative: 0.10, absolute: 2.0 },
    Tolerance { metric: "ttft_ms.p99", relative: 0.25, absolute: 5.0 },
    Tolerance { metric: "e2e_ms.p50", relative: 0.10, absolute: 2.0 },
    Tolerance { metric: "e2e_ms.p99", relative: 0.25, absolute: 5.0 },
    Tolerance { metric: "imbalance", relative: 0.10, absolute: 0.0 },
];

impl Tolerance {
    /// Whether the difference of two values is large enough to matter.
    pub(super) fn is_exceeded(&self, before: f64, after: f64) -> bool {
        let change = (after - before).abs();
        change > self.absolute && change > self.relative * before.abs()
    }
}

impl FromStr for Tolerance {
    type Err = String;

    /// Reads `METRIC=RELATIVE` or `METRIC=RELATIVE:ABSOLUTE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write METRIC=RELATIVE or METRIC=RELATIVE:ABSOLUTE, for example ttft_ms.p90=0.15:3";
        let (name, bounds) = text.split_once('=').ok_or(form)?;
        let metric = Metric::named(name.trim())
            .ok_or_else(|| format!("{name} is no figure of summary.json; {form}"))?;
        if figures::better(metric.name) == Better::Neither {
            return Err(format!("{name} is neither better nor worse when it changes"));
        }
        let (relative, absolute) = bounds.split_once(':').unwrap_or((bounds, "0"));
        let bound = |text: &str| {
            let value = text.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
            value.ok_or_else(|| format!("{text:?} is no bound; {form}"))
        };
        Ok(Self { metric: metric.name, relative: bound(relative)?, absolute: bound(absolute)? })
    }
}

/// How two snapshots are judged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rules {
    tolerances: Vec<Tolerance>,
    /// Whether live figures of another machine count.
    pub any_machine: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { tolerances: DEFAULTS.to_vec(), any_machine: false }
    }
}

impl Rules {
    /// The defaults with other bounds for some figures; figures that have none so far are judged too.
    #[must_use]
    pub(crate) fn with(others: &[Tolerance], any_machine: bool) -> Self {
        let mut rules = Self { any_machine, ..Self::default() };
        for other in others {
            match rules.tolerances.iter_mut().find(|tolerance| tolerance.metric == other.metric) {
                Some(tolerance) => *tolerance = *other,
                None => rules.tolerances.push(*other),
            }
        }
        rules
    }

    /// The figures that live cells are judged by.
    #[must_use]
    pub(crate) fn tolerances(&self) -> &[Tolerance] {
        &self.tolerances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_must_be_passed() {
        let tolerance: Tolerance = "ttft_ms.p50=0.1:2".parse().unwrap();
        for (before, after, exceeded) in [
            (100.0, 109.0, false),
            (100.0, 111.0, true),
            (100.0, 88.0, true),
            (5.0, 6.9, false),
            (5.0, 7.0, false),
            (5.0, 7.1, true),
        ] {
            assert_eq!(tolerance.is_exceeded(before, after), exceeded, "{before} {after}");
        }
        let none: Tolerance = "failed=0".parse().unwrap();
        assert!(none.is_exceeded(0.0, 1.0) && !none.is_exceeded(1.0, 1.0));
    }

    #[test]
    fn flags_replace_and_add() {
        let given = ["hit_rate=0:0.02", "ttft_ms.p90=0.2"].map(|text| text.parse().unwrap());
        let rules = Rules::with(&given, false);
        assert_eq!(rules.tolerances().len(), DEFAULTS.len() + 1);
        assert!(given.iter().all(|tolerance| rules.tolerances().contains(tolerance)));
        for bad in ["hit_rate", "hitrate=1", "requests=0.1", "hit_rate=-1", "hit_rate=0.1:x", "hit_rate=nan"]
        {
            assert!(bad.parse::<Tolerance>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_default_names_a_figure_with_a_direction() {
        assert!(DEFAULTS.iter().all(|tolerance| figures::better(tolerance.metric) != Better::Neither));
    }
}
