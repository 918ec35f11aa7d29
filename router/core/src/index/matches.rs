//! The answer of a lookup: how much of the prompt each owner is thought to hold.

use smallvec::SmallVec;

use crate::ids::WorkerId;

/// What one worker is thought to hold of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Who.
    pub worker: WorkerId,
    /// Characters from the prompt's beginning, at least 1.
    pub chars: u64,
    /// When it was last credited with all of these, by the index's clock.
    pub credited: u64,
    /// When it was last credited with their head, the first [`HEAD_PART`]th of them.
    pub head_credited: u64,
}

/// The part of a match that is its head.
pub const HEAD_PART: u64 = 10;

/// What each worker is thought to hold of one prompt, in order of worker id; one that holds nothing has no row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matches {
    rows: SmallVec<[Match; 8]>,
    prompt_chars: u64,
    looked: u64,
}

impl Matches {
    /// Rows (worker, characters) in any order, and the length of the indexed part of the prompt, in characters. The clock
    /// stands still at 0: nothing is said about when.
    pub fn new(rows: impl IntoIterator<Item = (WorkerId, u64)>, prompt_chars: u64) -> Self {
        let rows =
            rows.into_iter().map(|(worker, chars)| Match { worker, chars, credited: 0, head_credited: 0 });
        Self::at(0, rows, prompt_chars)
    }

    /// What was found when the index's clock stood at `looked`.
    pub(super) fn at(looked: u64, rows: impl Iterator<Item = Match>, prompt_chars: u64) -> Self {
        let mut rows: SmallVec<[Match; 8]> = rows.collect();
        rows.sort_unstable_by_key(|row| row.worker);
        Self { rows, prompt_chars, looked }
    }

    /// In order of worker id.
    pub fn rows(&self) -> &[Match] {
        &self.rows
    }

    /// Length of the indexed part of the prompt, in characters: what a match is a share of.
    pub fn prompt_chars(&self) -> u64 {
        self.prompt_chars
    }

    /// The index's clock at the lookup: how many credits there were before it.
    pub fn looked(&self) -> u64 {
        self.looked
    }

    /// The row of `worker`.
    pub fn get(&self, worker: WorkerId) -> Option<&Match> {
        self.rows.binary_search_by_key(&worker, |row| row.worker).ok().map(|at| &self.rows[at])
    }

    /// Characters matched for `worker`.
    pub fn of(&self, worker: WorkerId) -> u64 {
        self.get(worker).map_or(0, |row| row.chars)
    }

    /// The longest match of any worker, in characters.
    pub fn best(&self) -> u64 {
        self.rows.iter().map(|row| row.chars).max().unwrap_or(0)
    }
}
