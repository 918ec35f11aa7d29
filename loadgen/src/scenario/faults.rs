//! `[faults]`: what goes wrong in a virtual run. Every share is drawn by seed.

use super::document::Node;
use super::error::ScenarioError;
use super::section::{Field, Section};

/// The keys of `[faults]`.
pub(super) const KEYS: &[&str] = &[
    "prefill_failure",
    "decode_failure",
    "transfer_failure",
    "handshake_lost",
    "peer_lost",
    "bad_room",
    "late_legs",
    "client_gone",
    "prefill_lost",
    "prefill_back",
    "decode_lost",
    "decode_back",
];

/// What goes wrong. Faults of a role that no worker has never happen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    /// Share of the legs to prefill workers that are answered 500.
    pub prefill_failure: f64,
    /// Share of the legs to decode workers, and to those that do both, that are answered 500.
    pub decode_failure: f64,
    /// Share of the hand-offs of KV that fail: a quarter each before anything is sent, up to 100 ms later, and when the
    /// prompt is computed, which both sides notice, and with the last byte, which only the decode side notices.
    pub transfer_failure: f64,
    /// Share of the hand-offs of which the prefill side never hears: both sides wait for their timeouts.
    pub handshake_lost: f64,
    /// Share of the hand-offs whose decode side cannot reach the prefill side, and notices that after two missed signs of
    /// life.
    pub peer_lost: f64,
    /// Share of the pairs that are told a wrong room: half of them none, half of them that of another request.
    pub bad_room: f64,
    /// Share of the legs, and of their aborts, that come 1 ms to 100 ms late.
    pub late_legs: f64,
    /// Share of the clients that leave; when is drawn, from 1 ms to 10 s after the request was sent.
    pub client_gone: f64,
    /// When the first prefill worker dies, and for how long.
    pub prefill_outage: Option<Outage>,
    /// The same of the first decode worker; without any, of the first one that does both.
    pub decode_outage: Option<Outage>,
}

/// A worker dies with all that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// How long until it is back with a cold cache; `None` is never.
    pub back_after_ns: Option<u64>,
}

impl Faults {
    /// Whether anything ever goes wrong.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Reads `[faults]`.
    pub(super) fn read(node: &Node) -> Result<Self, ScenarioError> {
        let section = Section::open(node, "faults", KEYS)?;
        let share = |key: &str| section.get(key).map_or(Ok(0.0), |field| field.number(0.0..=1.0));
        Ok(Self {
            prefill_failure: share("prefill_failure")?,
            decode_failure: share("decode_failure")?,
            transfer_failure: share("transfer_failure")?,
            handshake_lost: share("handshake_lost")?,
            peer_lost: share("peer_lost")?,
            bad_room: share("bad_room")?,
            late_legs: share("late_legs")?,
            client_gone: share("client_gone")?,
            prefill_outage: outage(&section, "prefill_lost", "prefill_back")?,
            decode_outage: outage(&section, "decode_lost", "decode_back")?,
        })
    }
}

fn outage(section: &Section<'_>, lost: &str, back: &str) -> Result<Option<Outage>, ScenarioError> {
    let time = |field: Field<'_>| field.short_duration_ns();
    let back_after_ns = section.get(back).map(time).transpose()?;
    match section.get(lost).map(time).transpose()? {
        Some(at_ns) => Ok(Some(Outage { at_ns, back_after_ns })),
        None if back_after_ns.is_some() => {
            Err(section.error(back, "says when a worker comes back that never leaves", format!("add {lost}")))
        }
        None => Ok(None),
    }
}
