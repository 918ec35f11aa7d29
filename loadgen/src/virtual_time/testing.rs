//! What the tests of virtual worlds share.

use super::world::World;
use crate::scenario::Cell;
use crate::workload;

/// The first cell of a scenario given as text.
pub(super) fn cell(text: &str) -> Cell {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    let scenario = crate::scenario::load(&path, &[], None, None, None).unwrap_or_else(|e| panic!("{e}"));
    scenario.cells().remove(0)
}

/// The world of a cell, at its beginning.
pub(super) fn world(cell: &Cell, seed: u64) -> World {
    let plan = workload::plan(&cell.scenario, seed);
    World::new(cell, seed, plan).unwrap_or_else(|error| panic!("{error}"))
}
