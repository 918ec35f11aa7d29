//! Sessions and their turns.

use std::collections::HashMap;

use serde::Serialize;

/// Sessions of a trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sessions {
    /// How many.
    pub count: u64,
    /// Requests that belong to one.
    pub rows: u64,
    /// Mean number of requests per session.
    pub turns_mean: f64,
    /// Most requests of one session.
    pub turns_max: u64,
    /// Share of the sessions with more than one request.
    pub multi_turn_share: f64,
}

#[derive(Debug, Default)]
pub(super) struct Tally(HashMap<u64, u64>);

impl Tally {
    pub(super) fn add(&mut self, session: Option<u64>) {
        if let Some(session) = session {
            *self.0.entry(session).or_default() += 1;
        }
    }

    pub(super) fn finish(self) -> Option<Sessions> {
        let turns = || self.0.values();
        let (count, rows) = (self.0.len() as u64, turns().sum::<u64>());
        let multi = turns().filter(|turns| **turns > 1).count();
        Some(Sessions {
            count,
            rows,
            turns_mean: rows as f64 / count as f64,
            turns_max: *turns().max()?,
            multi_turn_share: multi as f64 / count as f64,
        })
    }
}
