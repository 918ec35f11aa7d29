//! Snapshots for tests.

use super::snapshot::{Cell, Snapshot};
use crate::run::{Params, World};
use crate::scenario::Fingerprint;

/// A cell with one figure; seeds count from 1.
pub(super) fn cell(mode: World, policy: &str, figure: &str, values: &[f64]) -> Cell {
    let figures = [(figure.to_owned(), values.iter().copied().map(Some).collect())];
    Cell {
        mode,
        policy: policy.into(),
        params: Params::new(),
        seeds: (1..=values.len() as u64).collect(),
        figures: figures.into(),
    }
}

/// A run of scenario `s` with these cells.
pub(super) fn snapshot(cells: Vec<Cell>) -> Snapshot {
    let fingerprint = Fingerprint {
        work: "w".into(),
        router: "r".into(),
        asked: [("fleet.workers".to_owned(), 8.into())].into(),
    };
    Snapshot {
        scenario: "s".into(),
        fingerprint,
        cells,
        machine: None,
        invalid: Vec::new(),
        disturbed: Vec::new(),
    }
}
