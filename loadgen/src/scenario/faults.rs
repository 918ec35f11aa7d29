//! `[faults]`: what goes wrong. Every share is drawn by seed.

use std::fmt;

use super::document::Node;
use super::error::ScenarioError;
use super::resolve::Mode;
use super::section::{Field, Section};
use crate::run::World;

/// The keys of `[faults]`.
pub(super) const KEYS: &[&str] = &[
    "prefill_failure",
    "decode_failure",
    "transfer_failure",
    "handshake_lost",
    "peer_lost",
    "bad_room",
    "late_legs",
    "busy",
    "stalled",
    "client_gone",
    "prefill_lost",
    "prefill_back",
    "decode_lost",
    "decode_back",
    "prefill_drained",
    "decode_drained",
    "slow",
];

/// How many times as long the steps of a slow worker may take.
const SLOWNESS: std::ops::RangeInclusive<f64> = 0.01..=1000.0;

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
    /// Share of the legs that are answered 429 or 503, half of them each, with `Retry-After: 1`.
    pub busy: f64,
    /// Share of the legs that are never answered, until the router's limit of a first byte.
    pub stalled: f64,
    /// Share of the clients that leave; when is drawn, from 1 ms to 10 s after the request was sent.
    pub client_gone: f64,
    /// When the first prefill worker dies, and for how long.
    pub prefill_outage: Option<Outage>,
    /// The same of the first decode worker; without any, of the first one that does both.
    pub decode_outage: Option<Outage>,
    /// When the last prefill worker is drained: it ends what it has, and gets nothing new. In nanoseconds.
    pub prefill_drained_ns: Option<u64>,
    /// The same of the last decode worker; without any, of the last one that does both.
    pub decode_drained_ns: Option<u64>,
    /// Places of workers, and how many times as long their steps take.
    pub slow: Vec<(u32, f64)>,
}

/// The keys of shares, and how each is read off.
type Share = (&'static str, fn(&Faults) -> f64);

const SHARES: [Share; 10] = [
    ("prefill_failure", |faults| faults.prefill_failure),
    ("decode_failure", |faults| faults.decode_failure),
    ("transfer_failure", |faults| faults.transfer_failure),
    ("handshake_lost", |faults| faults.handshake_lost),
    ("peer_lost", |faults| faults.peer_lost),
    ("bad_room", |faults| faults.bad_room),
    ("late_legs", |faults| faults.late_legs),
    ("busy", |faults| faults.busy),
    ("stalled", |faults| faults.stalled),
    ("client_gone", |faults| faults.client_gone),
];

/// Those of them that have no live counterpart.
const VIRTUAL_ONLY: [&str; 4] = ["handshake_lost", "peer_lost", "bad_room", "late_legs"];

/// A worker dies with all that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// How long until it is back with a cold cache; `None` is never.
    pub back_after_ns: Option<u64>,
}

impl fmt::Display for Faults {
    /// What goes wrong, by the names of the keys; nothing where nothing does.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = SHARES.iter().filter(|(_, of)| of(self) > 0.0);
        let mut words: Vec<String> =
            shares.map(|(key, of)| format!("{key} {} %", (of(self) * 1e6).round() / 1e4)).collect();
        let seconds = |ns: u64| ns as f64 / 1e9;
        for (role, outage) in [("prefill", self.prefill_outage), ("decode", self.decode_outage)] {
            let Some(Outage { at_ns, back_after_ns }) = outage else { continue };
            let back = back_after_ns.map_or(String::new(), |ns| format!(" for {} s", seconds(ns)));
            words.push(format!("{role}_lost at {} s{back}", seconds(at_ns)));
        }
        for (key, at_ns) in
            [("prefill_drained", self.prefill_drained_ns), ("decode_drained", self.decode_drained_ns)]
        {
            words.extend(at_ns.map(|at_ns| format!("{key} at {} s", seconds(at_ns))));
        }
        words.extend(self.slow.iter().map(|(place, factor)| format!("worker {place} × {factor} slower")));
        out.write_str(&words.join(", "))
    }
}

impl Faults {
    /// Whether anything ever goes wrong.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Reads `[faults]`.
    pub(super) fn read(node: &Node, mode: Mode) -> Result<Self, ScenarioError> {
        let section = Section::open(node, "faults", KEYS)?;
        let faults = Self::read_all(&section)?;
        if mode.worlds().contains(&World::Live) {
            faults.check_live(&section)?;
        }
        Ok(faults)
    }

    /// Refuses what real workers cannot be told to do wrong.
    fn check_live(&self, section: &Section<'_>) -> Result<(), ScenarioError> {
        match VIRTUAL_ONLY.iter().find(|key| SHARES.iter().any(|(of, share)| of == *key && share(self) > 0.0))
        {
            Some(key) => Err(section.error(
                key,
                "happens in virtual time only: no worker can be told to do that",
                "remove it, or use mode = \"virtual\"",
            )),
            None => Ok(()),
        }
    }

    fn read_all(section: &Section<'_>) -> Result<Self, ScenarioError> {
        let time = |field: Field<'_>| field.short_duration_ns();
        let share = |key: &str| section.get(key).map_or(Ok(0.0), |field| field.number(0.0..=1.0));
        Ok(Self {
            prefill_failure: share("prefill_failure")?,
            decode_failure: share("decode_failure")?,
            transfer_failure: share("transfer_failure")?,
            handshake_lost: share("handshake_lost")?,
            peer_lost: share("peer_lost")?,
            bad_room: share("bad_room")?,
            late_legs: share("late_legs")?,
            busy: share("busy")?,
            stalled: share("stalled")?,
            client_gone: share("client_gone")?,
            prefill_outage: outage(section, "prefill_lost", "prefill_back")?,
            decode_outage: outage(section, "decode_lost", "decode_back")?,
            prefill_drained_ns: section.get("prefill_drained").map(time).transpose()?,
            decode_drained_ns: section.get("decode_drained").map(time).transpose()?,
            slow: section.get("slow").map_or(Ok(Vec::new()), |field| slow(&field))?,
        })
    }

    /// Refuses places that no worker has.
    pub(super) fn check_places(&self, field: Option<Field<'_>>, workers: u32) -> Result<(), ScenarioError> {
        let missing = self.slow.iter().find(|(place, _)| *place >= workers);
        let (Some((place, _)), Some(field)) = (missing, field) else { return Ok(()) };
        let problem = format!("there is no worker {place}");
        let remedy = format!("places go from 0 to {}", workers - 1);
        Err(Section::unchecked(field.node, field.path())?.error("slow", problem, remedy))
    }

    /// How many times as long as it should a step of the worker at a place takes.
    #[must_use]
    pub fn slowness(&self, place: u32) -> f64 {
        self.slow.iter().find(|(slow, _)| *slow == place).map_or(1.0, |(_, factor)| *factor)
    }
}

/// Pairs of a place and a factor, each place once.
fn slow(field: &Field<'_>) -> Result<Vec<(u32, f64)>, ScenarioError> {
    let mut all: Vec<(u32, f64)> = Vec::new();
    for item in field.list()? {
        let [place, factor] = &item.list()?[..] else {
            return Err(item.error("is not a pair", "write [place, factor], such as [7, 3.0]"));
        };
        let (place, factor) = (place.whole(0..=u32::MAX)?, factor.number(SLOWNESS)?);
        if all.iter().any(|(known, _)| *known == place) {
            return Err(item.error(format!("names worker {place} twice"), "name every worker once"));
        }
        all.push((place, factor));
    }
    Ok(all)
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
