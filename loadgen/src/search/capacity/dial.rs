//! What changes the load of a scenario.

use std::ops::RangeInclusive;

use crate::scenario::{RATES, SPEEDUPS, Template};
use crate::search::SearchError;

/// The key that the load is changed by, and what is counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Dial {
    pub(super) path: [&'static str; 2],
    /// The unit of a load.
    pub unit: &'static str,
    /// What the key can be set to.
    pub(super) range: RangeInclusive<f64>,
}

impl Dial {
    /// What changes the load of `scenario`, and where it stands.
    ///
    /// # Errors
    /// Its arrivals have no rate.
    pub fn of(template: &Template) -> Result<(Self, f64), SearchError> {
        let is_trace = template.word(&["workload", "kind"]) == Some("trace");
        let kind = template.word(&["arrival", "kind"]).unwrap_or(if is_trace { "trace" } else { "" });
        let (dial, start) = if is_trace && kind == "trace" {
            let dial = Self { path: ["workload", "speedup"], unit: "x the recorded speed", range: SPEEDUPS };
            let start = template.number(&dial.path).unwrap_or(1.0);
            (dial, Some(start))
        } else {
            let dial = Self { path: ["arrival", "rate"], unit: "requests/s", range: RATES };
            let start = template.number(&dial.path);
            (dial, start)
        };
        let start = start.filter(|_| kind != "burst" && kind != "closed");
        let refused = || {
            let remedy = "use poisson, constant or gamma (--set arrival.kind=poisson --set arrival.rate=10), or replay a trace \
                          by its own times";
            SearchError::Asked(format!(
                "capacity changes the rate of arrivals, and kind = \"{kind}\" has none; {remedy}"
            ))
        };
        start.map(|start| (dial, start)).ok_or_else(refused)
    }
}
