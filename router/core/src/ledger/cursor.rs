//! Two lists that are ordered by worker, read side by side.

use crate::WorkerId;

/// Finds rows by worker for workers that are asked for in ascending order, each once, in one pass over both.
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
            let worker = (self.worker)(row);
            if worker > wanted {
                break;
            }
            self.rows = rest;
            if worker == wanted {
                return Some(row);
            }
        }
        None
    }
}
