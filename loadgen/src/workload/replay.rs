//! Playing a trace: its rows become prompts, its stamps become times.

use protocol::tokenizer::mix;

use super::draws::{Component, stream, unit};
use super::trace::{BLOCK_TOKENS, Row};
use super::{Prompt, Segment};
use crate::scenario::TraceReplay;

/// Keeps the blocks of traces apart from generated ones.
const HASH_ID: u64 = 0x4841_5348;

/// Stamps that lie no further apart than this are one stamp, written by a clock that rounds.
const ROUNDING_NS: u64 = 2_000_000;
/// Steps finer than this are taken for a clock's resolution, not for a grid.
const FINEST_GRID_NS: f64 = 20e6;

/// The prompts, in the order of the file. A hash id is the same block in every run: content is the trace's, not the
/// seed's.
pub(super) fn prompts(workload: &TraceReplay) -> Vec<Prompt> {
    workload.trace.rows.iter().map(prompt).collect()
}

fn prompt(row: &Row) -> Prompt {
    let block = |(at, id): (u32, &u64)| Segment {
        block: mix(id ^ mix(HASH_ID)),
        tokens: (row.input_tokens - at * BLOCK_TOKENS).min(BLOCK_TOKENS),
    };
    Prompt {
        group: None,
        segments: (0..).zip(&row.blocks).map(block).collect(),
        output_tokens: row.output_tokens,
    }
}

/// When each row is sent, in nanoseconds since the first; ascending, so rows keep the order of the file.
pub(super) fn stamps_ns(workload: &TraceReplay, seed: u64) -> Vec<u64> {
    let mut at_ns: Vec<u64> = workload.trace.rows.iter().map(|row| row.at_ns).collect();
    if let Some(step_ns) = workload.grid_ns {
        spread(&mut at_ns, step_ns, seed);
    }
    let first_ns = at_ns.first().copied().unwrap_or(0);
    at_ns.iter().map(|at| ((at - first_ns) as f64 / workload.speedup).round() as u64).collect()
}

/// The step of the clock that wrote the stamps, if it is a coarse one: nearly all gaps between different stamps are
/// multiples of it, give or take two milliseconds.
pub(super) fn grid_ns(at_ns: &[u64]) -> Option<u64> {
    let gaps: Vec<f64> = at_ns
        .windows(2)
        .map(|w| w[1] - w[0])
        .filter(|gap| *gap > ROUNDING_NS)
        .map(|gap| gap as f64)
        .collect();
    let finest = gaps.iter().copied().min_by(f64::total_cmp).filter(|gap| *gap >= FINEST_GRID_NS)?;
    // The finest gap may have been rounded; the mean over all steps is not.
    let steps: f64 = gaps.iter().map(|gap| (gap / finest).round()).sum();
    let step = gaps.iter().sum::<f64>() / steps;
    let off_grid = |gap: &&f64| ((*gap / step).round() * step - **gap).abs() > ROUNDING_NS as f64;
    let misfits = gaps.iter().filter(off_grid).count();
    (misfits * 20 <= gaps.len()).then(|| (step / 1e6).round() as u64 * 1_000_000)
}

/// Spreads the rows of each step over it, evenly at random, keeping their order.
fn spread(at_ns: &mut [u64], step_ns: u64, seed: u64) {
    let mut draws = stream(seed, Component::Jitter);
    let first_ns = at_ns.first().copied().unwrap_or(0);
    for rows in at_ns.chunk_by_mut(|a, b| b - a <= ROUNDING_NS) {
        // The nearest point of the grid, so that rounded stamps cannot make steps overlap.
        let start_ns = first_ns + (rows[0] - first_ns + step_ns / 2) / step_ns * step_ns;
        let mut places: Vec<f64> = rows.iter().map(|_| unit(&mut draws)).collect();
        places.sort_by(f64::total_cmp);
        for (at, place) in rows.iter_mut().zip(places) {
            *at = start_ns + (place * step_ns as f64) as u64;
        }
    }
    // A stamp beside the grid may have been moved past its neighbours.
    at_ns.sort_unstable();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::trace::Trace;
    use super::*;
    use crate::scenario::Jitter;

    const MS: u64 = 1_000_000;

    fn replay(at_ms: &[u64], speedup: f64, jitter: Jitter) -> TraceReplay {
        let row = |at: &u64| Row { at_ns: at * MS, input_tokens: 1, output_tokens: 1, blocks: [1].into() };
        let trace = Arc::new(Trace { rows: at_ms.iter().map(row).collect() });
        let grid_ns = if jitter == Jitter::Grid { trace.grid_ns() } else { None };
        TraceReplay { path: "t".into(), trace, speedup, jitter, grid_ns }
    }

    #[test]
    fn a_hash_id_is_one_block_and_the_last_is_cut() {
        let row = |input_tokens, blocks: &[u64]| Row {
            at_ns: 0,
            input_tokens,
            output_tokens: 3,
            blocks: blocks.into(),
        };
        let (a, b) = (prompt(&row(1100, &[0, 1, 2])), prompt(&row(1536, &[0, 1, 2])));
        let lengths = |p: &Prompt| p.segments.iter().map(|s| s.tokens).collect::<Vec<_>>();
        let blocks = |p: &Prompt| p.segments.iter().map(|s| s.block).collect::<Vec<_>>();
        assert_eq!(lengths(&a), [512, 512, 76]);
        assert_eq!(lengths(&b), [512, 512, 512]);
        assert_eq!(blocks(&a), blocks(&b));
        assert_ne!(a.segments[0].block, a.segments[1].block);
        assert_eq!(a.output_tokens, 3);
    }

    #[test]
    fn time_starts_at_the_first_row_and_can_be_sped_up() {
        assert_eq!(
            stamps_ns(&replay(&[5, 15, 15, 45], 1.0, Jitter::None), 1),
            [0, 10 * MS, 10 * MS, 40 * MS]
        );
        assert_eq!(stamps_ns(&replay(&[5, 15, 15, 45], 2.0, Jitter::None), 1), [0, 5 * MS, 5 * MS, 20 * MS]);
    }

    #[test]
    fn grids_are_found_and_fine_clocks_are_none() {
        let grid = |at_ms: &[u64]| grid_ns(&at_ms.iter().map(|at| at * MS).collect::<Vec<_>>());
        assert_eq!(grid(&[0, 0, 3000, 6000, 6000, 9000]), Some(3000 * MS));
        assert_eq!(
            grid(&[0, 2999, 2999, 6000, 12_001, 15_000]).map(|g| g / MS),
            Some(3000),
            "give or take 1 ms"
        );
        assert_eq!(
            grid(&[0, 3000, 6000, 6001, 9000, 21_000]).map(|g| g / MS),
            Some(3000),
            "one step, two stamps"
        );
        assert_eq!(grid(&[0, 40, 277, 471, 1000, 1123]), None, "a clock of 1 ms");
        assert_eq!(grid(&[0, 1, 2, 3]), None);
        assert_eq!(grid(&[7, 7, 7]), None);
        assert_eq!(grid(&[]), None);
    }

    #[test]
    fn jitter_spreads_each_step_and_keeps_the_order() {
        let at_ms: Vec<u64> = (0..200).flat_map(|step| [step * 3000 - step % 2; 10]).collect();
        let at = stamps_ns(&replay(&at_ms, 1.0, Jitter::Grid), 1);
        assert!(at.is_sorted());
        assert_eq!(at, stamps_ns(&replay(&at_ms, 1.0, Jitter::Grid), 1));
        assert_ne!(at, stamps_ns(&replay(&at_ms, 1.0, Jitter::Grid), 2));
        let mut gaps: Vec<u64> = at.windows(2).map(|w| w[1] - w[0]).collect();
        gaps.sort_unstable();
        assert!(
            (150 * MS..300 * MS).contains(&gaps[gaps.len() / 2]),
            "median gap of an even spread is 208 ms"
        );
        // Time counts from the first request, which itself was moved into its step.
        let drift = at.iter().zip(&at_ms).map(|(at, ms)| at.abs_diff(ms * MS)).max().unwrap();
        assert!(drift < 3_002 * MS, "{drift}");
    }

    #[test]
    fn jitter_leaves_a_fine_clock_alone() {
        let at_ms = [0, 40, 277, 471, 1000, 1123];
        assert_eq!(
            stamps_ns(&replay(&at_ms, 1.0, Jitter::Grid), 1),
            stamps_ns(&replay(&at_ms, 1.0, Jitter::None), 1)
        );
    }
}
