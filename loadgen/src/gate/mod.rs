//! Whether a run is as good as the one that was recorded for it.
//!
//! A [`Snapshot`] holds the figures of a run, one value per seed; a baseline is a snapshot that was written down
//! ([`baseline`]). [`compare`] pairs the cells of both and judges figure by figure. Virtual cells are functions of scenario,
//! seed and program, so every difference is a change of behaviour ([`exact`]). Live cells are measurements, so a
//! difference must be large enough to matter and too regular to be chance ([`statistical`]).
//!
//! Refuses to compare apples with pears: another scenario, other cells or seeds, and live figures of another machine
//! are errors that name the remedy. Knows nothing of how a run came about; it reads what `run` has written.

pub(crate) mod baseline;
mod changes;
mod comparison;
mod exact;
mod figures;
mod json;
mod junit;
mod markdown;
mod pairing;
mod snapshot;
mod statistical;
mod tolerance;

#[cfg(test)]
mod fixture;

pub(crate) use comparison::{Comparison, Outcome, compare};
pub(crate) use json::json;
pub(crate) use junit::junit;
pub(crate) use markdown::{brief, markdown};
pub(crate) use pairing::Incompatible;
pub(crate) use snapshot::{Cell, Snapshot, read_run};
pub(crate) use statistical::LEAST_REPEATS;
pub(crate) use tolerance::{Rules, Tolerance};
