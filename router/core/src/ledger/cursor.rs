//! Two lists that are ordered by worker, read side by side.

use crate::WorkerId;

/// Finds rows by worker for workers that are asked for in ascending order, in one pass over both.
pub(crate) struct Cursor<'a, T, F> {
    rows: &'a [T],
    worker: F,
}

impl<'a, T, F: Fn(&T) -> WorkerId> Cursor<'a, T, F> {
    pub(crate) fn new(rows: &'a [T], worker: F) -> Self {
        Self { rows, worker }
    }

    pub(crate) fn find(&mut self, wanted: WorkerId) -> Option<&'a T> {
        while let Some((row, rest)) = self.rows.split_first() {
            match (self.worker)(row).cmp(&wanted) {
                std::cmp::Ordering::Less => self.rows = rest,
                std::cmp::Ordering::Equal => return Some(row),
                std::cmp::Ordering::Greater => return None,
            }
        }
        None
    }
}
