//! The rows that a policy chooses from.

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::WorkerId;
use crate::draw::Draws;
use crate::ledger::loads::ReportedLoad;
use crate::ledger::{Account, Load};

/// A worker that may be chosen: healthy, in scope, not tried yet.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its id.
    pub worker: WorkerId,
    /// Characters of the prompt that its cache is believed to hold.
    pub matched_chars: u64,
    pub(crate) account: &'a Account,
}

impl Candidate<'_> {
    /// What this router has in flight on it.
    #[must_use]
    pub fn load(&self) -> Load {
        self.account.load()
    }

    /// What it says of itself, brought up to `now_ns`; `None` is unknown.
    #[must_use]
    pub fn reported(&self, now_ns: u64) -> Option<ReportedLoad> {
        self.account.reported(now_ns)
    }
}

/// Rows on the stack in fleets up to this size.
const INLINE: usize = 8;

/// At least one candidate, ordered by worker.
#[derive(Debug)]
pub struct Candidates<'a>(SmallVec<[Candidate<'a>; INLINE]>);

impl<'a> Candidates<'a> {
    /// These rows, which are ordered by worker; `None` if there are none.
    pub(crate) fn new(rows: SmallVec<[Candidate<'a>; INLINE]>) -> Option<Self> {
        debug_assert!(rows.is_sorted_by_key(|row| row.worker));
        if rows.is_empty() { None } else { Some(Self(rows)) }
    }

    /// How many there are, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "they are never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.0.iter()
    }

    /// The row at a place, counted in a circle.
    #[must_use]
    pub fn at(&self, place: usize) -> &Candidate<'a> {
        &self.0[place % self.0.len()]
    }

    /// The row of a worker.
    #[must_use]
    pub fn get(&self, worker: WorkerId) -> Option<&Candidate<'a>> {
        self.0.binary_search_by_key(&worker, |row| row.worker).ok().map(|at| &self.0[at])
    }

    /// Place of the first row whose worker comes after `worker`; the number of rows if there is none.
    #[must_use]
    pub fn place_after(&self, worker: WorkerId) -> usize {
        self.0.partition_point(|row| row.worker <= worker)
    }

    /// The row with the smallest key among those that `keep` lets through; a draw decides between equal ones.
    pub fn least_of<K: Ord>(
        &self,
        draws: &mut Draws,
        keep: impl Fn(&Candidate<'a>) -> bool,
        key: impl Fn(&Candidate<'a>) -> K,
    ) -> Option<&Candidate<'a>> {
        let mut least_key = None;
        let mut equal = 0;
        for row in self.0.iter().filter(|row| keep(row)) {
            let key = key(row);
            match least_key.as_ref().map(|least_key| key.cmp(least_key)) {
                Some(Ordering::Greater) => continue,
                Some(Ordering::Equal) => equal += 1,
                Some(Ordering::Less) | None => (least_key, equal) = (Some(key), 1),
            }
        }
        let least_key = least_key?;
        let mut least = self.0.iter().filter(|row| keep(row) && key(row) == least_key);
        least.nth(draws.below(equal))
    }

    /// The row with the smallest key; a draw decides between equal ones.
    pub fn least_by<K: Ord>(&self, draws: &mut Draws, key: impl Fn(&Candidate<'a>) -> K) -> &Candidate<'a> {
        self.least_of(draws, |_| true, key).unwrap_or(&self.0[0])
    }

    /// The row with the fewest requests in flight; a draw decides between equal ones.
    pub fn least_loaded(&self, draws: &mut Draws) -> &Candidate<'a> {
        self.least_by(draws, |row| row.load().requests)
    }
}
