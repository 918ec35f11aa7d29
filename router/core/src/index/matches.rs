//! The answer of a lookup: how much of the prompt each owner is thought to hold.

use smallvec::SmallVec;

use crate::ids::WorkerId;

/// Matched characters of one prompt for every worker that owns at least one of them, in order of worker id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matches {
    rows: SmallVec<[(WorkerId, u64); 8]>,
    prompt_chars: u64,
}

impl Matches {
    /// Rows in any order and the length of the indexed part of the prompt, in characters.
    pub fn new(rows: impl IntoIterator<Item = (WorkerId, u64)>, prompt_chars: u64) -> Self {
        let mut rows: SmallVec<[(WorkerId, u64); 8]> = rows.into_iter().collect();
        rows.sort_unstable();
        Self { rows, prompt_chars }
    }

    /// (worker, matched characters), in order of worker id. A worker without a row matches nothing.
    pub fn rows(&self) -> &[(WorkerId, u64)] {
        &self.rows
    }

    /// Length of the indexed part of the prompt, in characters: what a match is a share of.
    pub fn prompt_chars(&self) -> u64 {
        self.prompt_chars
    }

    /// Characters matched for `worker`.
    pub fn of(&self, worker: WorkerId) -> u64 {
        self.rows.binary_search_by_key(&worker, |row| row.0).map_or(0, |at| self.rows[at].1)
    }

    /// The longest match of any worker, in characters.
    pub fn best(&self) -> u64 {
        self.rows.iter().map(|row| row.1).max().unwrap_or(0)
    }
}
