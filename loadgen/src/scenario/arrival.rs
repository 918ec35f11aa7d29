//! `[arrival]`: when the requests are sent.

use super::document::Node;
use super::error::ScenarioError;
use super::section::{Field, Kind, Section};
use super::workload::Workload;

/// The kinds of `[arrival]` and the keys of each.
pub(super) const KINDS: &[Kind] = &[
    ("burst", &["over"]),
    ("poisson", &["rate"]),
    ("constant", &["rate"]),
    ("closed", &["concurrency"]),
    ("trace", &[]),
];

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// Evenly over a span from the start.
    Burst {
        /// The span, in nanoseconds; 0 sends all at once.
        over_ns: u64,
    },
    /// With gaps drawn from an exponential distribution, independent of the answers.
    Poisson {
        /// Mean requests per second.
        rate: f64,
    },
    /// With equal gaps, independent of the answers.
    Constant {
        /// Requests per second.
        rate: f64,
    },
    /// A next one when one is answered.
    Closed {
        /// Requests in flight at any time.
        concurrency: u32,
    },
    /// When the trace says.
    Trace,
}

/// Reads `[arrival]`; a trace without one is replayed by its own stamps.
pub(super) fn read(
    node: Option<&Node>,
    workload: &Workload,
    root: &Section<'_>,
) -> Result<Arrival, ScenarioError> {
    let is_trace = matches!(workload, Workload::Trace(_));
    let node = match node {
        None if is_trace => return Ok(Arrival::Trace),
        None => root.need("arrival")?.node,
        Some(node) => node,
    };
    let (section, kind) = Section::open_kind(node, "arrival", KINDS)?;
    let rate = |field: Field<'_>| field.number(1e-6..=1e6);
    Ok(match kind {
        "burst" => Arrival::Burst { over_ns: section.need("over")?.duration_ns()? },
        "poisson" => Arrival::Poisson { rate: rate(section.need("rate")?)? },
        "constant" => Arrival::Constant { rate: rate(section.need("rate")?)? },
        "closed" => Arrival::Closed { concurrency: section.need("concurrency")?.whole(1..=100_000)? },
        _ if is_trace => Arrival::Trace,
        _ => {
            let remedy =
                "use it with workload.kind = \"trace\", or choose burst, poisson, constant or closed";
            return Err(section.need("kind")?.error("this workload has no recorded times", remedy));
        }
    })
}
