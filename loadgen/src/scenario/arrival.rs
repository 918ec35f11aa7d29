//! `[arrival]`: when the requests are sent.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::document::Node;
use super::error::ScenarioError;
use super::resolve::Resolver;
use super::section::{Field, Kind, Section};
use super::windows::{self, Windows};
use super::workload::{SPEEDUPS, Workload};

/// The kinds of `[arrival]` and the keys of each.
pub(super) const KINDS: &[Kind] = &[
    ("burst", &["over"]),
    ("poisson", &["rate"]),
    ("constant", &["rate"]),
    ("closed", &["concurrency"]),
    ("trace", &[]),
    ("gamma", &["rate", "burstiness"]),
    ("ramp", &["from", "to", "over"]),
    ("servegen", &["path", "skip", "speedup"]),
];

/// The way out where there are no recorded times.
const CHOOSE: &str = "use kind = \"trace\" with a trace that has times, or choose burst, poisson, constant, gamma, ramp, \
                      servegen or closed";
/// Requests per second.
pub(crate) const RATES: RangeInclusive<f64> = 1e-6..=1e6;

/// When requests are sent.
#[derive(Debug, Clone, PartialEq)]
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
    /// With gaps drawn from a gamma distribution, independent of the answers.
    Gamma {
        /// Mean requests per second.
        rate: f64,
        /// The distribution's shape, as vLLM means it: gaps vary by 1/√burstiness of their mean. 1 is Poisson, less comes in
        /// bursts, more is more even.
        burstiness: f64,
    },
    /// A Poisson process whose rate changes evenly over a span and then stays.
    Ramp {
        /// Requests per second at the start.
        from: f64,
        /// Requests per second at the end, and from then on.
        to: f64,
        /// The span, in nanoseconds.
        over_ns: u64,
    },
    /// By windows of a recorded client, each with its own rate and distribution of gaps; after the last window, the first.
    Servegen {
        /// The windows.
        windows: Arc<Windows>,
        /// 2.0 plays twice as fast as recorded.
        speedup: f64,
    },
}

/// Reads `[arrival]`; a trace without one is replayed by its own stamps.
pub(super) fn read(
    node: Option<&Node>,
    workload: &Workload,
    root: &Section<'_>,
    resolver: &Resolver<'_>,
) -> Result<Arrival, ScenarioError> {
    let untimed = match workload {
        Workload::Trace(replay) if replay.trace.timed => None,
        Workload::Trace(_) => Some("this trace has no times"),
        _ => Some("this workload has no recorded times"),
    };
    let is_trace = matches!(workload, Workload::Trace(_));
    let node = match (node, untimed) {
        (None, None) => return Ok(Arrival::Trace),
        (None, Some(why)) if is_trace => {
            return Err(root.error("arrival", format!("is missing, and {why}"), CHOOSE));
        }
        (None, _) => root.need("arrival")?.node,
        (Some(node), _) => node,
    };
    let (section, kind) = Section::open_kind(node, "arrival", KINDS)?;
    let rate = |field: Field<'_>| field.number(RATES);
    Ok(match kind {
        "burst" => Arrival::Burst { over_ns: section.need("over")?.duration_ns()? },
        "poisson" => Arrival::Poisson { rate: rate(section.need("rate")?)? },
        "constant" => Arrival::Constant { rate: rate(section.need("rate")?)? },
        "closed" => Arrival::Closed { concurrency: section.need("concurrency")?.whole(1..=100_000)? },
        "gamma" => Arrival::Gamma {
            rate: rate(section.need("rate")?)?,
            burstiness: section.need("burstiness")?.number(0.01..=1e6)?,
        },
        "ramp" => ramp(&section)?,
        "servegen" => servegen(&section, resolver)?,
        _ => match untimed {
            None => Arrival::Trace,
            Some(why) => return Err(section.need("kind")?.error(why, CHOOSE)),
        },
    })
}

fn ramp(section: &Section<'_>) -> Result<Arrival, ScenarioError> {
    let over = section.need("over")?;
    let over_ns = over.duration_ns()?;
    if over_ns == 0 {
        return Err(over.error("is no span", "use a longer one, or kind = \"poisson\""));
    }
    Ok(Arrival::Ramp {
        from: section.need("from")?.number(0.0..=*RATES.end())?,
        to: section.need("to")?.number(RATES)?,
        over_ns,
    })
}

fn servegen(section: &Section<'_>, resolver: &Resolver<'_>) -> Result<Arrival, ScenarioError> {
    let path = section.need("path")?;
    let skip_ns = section.get("skip").map_or(Ok(0), |field| field.duration_ns())?;
    let windows = windows::read(&resolver.beside_scenario(path.text()?), skip_ns)
        .map_err(|problem| path.error(problem, windows::FORM))?;
    let speedup = section.get("speedup").map_or(Ok(1.0), |field| field.number(SPEEDUPS))?;
    Ok(Arrival::Servegen { windows: Arc::new(windows), speedup })
}
