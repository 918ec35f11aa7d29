//! Facts about the public Mooncake traces. They are not part of the project; tests look for them in `../shared/traces`
//! beside the workspace and say so when they are not there.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::replay;
use super::trace::{self, Trace};
use crate::scenario::{Jitter, TraceReplay};

fn trace(name: &str) -> Option<(PathBuf, Trace)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(name);
    if !path.exists() {
        // Not `eprintln!`, which the test harness swallows.
        let _ = writeln!(std::io::stderr(), "skipped: {name} is not in ../shared/traces");
        return None;
    }
    let unreadable = |error: trace::TraceError| {
        error.blame(|problem| crate::scenario::ScenarioError::at("trace", problem, "")).to_string()
    };
    let trace = trace::read(&path, u64::MAX).map_err(unreadable).expect(name);
    Some((path, trace))
}

/// Distinct blocks, references, and the share of references and of tokens that an infinite cache would hit.
fn sharing(trace: &Trace) -> (usize, usize, f64, f64) {
    let mut known = HashSet::new();
    let (mut references, mut hits) = (0, 0);
    let (mut tokens, mut hit_tokens) = (0u64, 0u64);
    for row in &trace.rows {
        let prefix = row.blocks.iter().take_while(|block| known.contains(*block)).count();
        references += row.blocks.len();
        hits += prefix;
        tokens += u64::from(row.input_tokens);
        hit_tokens += (prefix as u64 * 512).min(u64::from(row.input_tokens));
        known.extend(row.blocks.iter().copied());
    }
    (known.len(), references, hits as f64 / references as f64, hit_tokens as f64 / tokens as f64)
}

fn jittered(path: PathBuf, trace: Trace) -> [Vec<u64>; 2] {
    let trace = Arc::new(trace);
    [Jitter::None, Jitter::Grid].map(|jitter| {
        let grid_ns = if jitter == Jitter::Grid { trace.grid_ns() } else { None };
        let trace = Arc::clone(&trace);
        let replay = TraceReplay { path: path.clone(), trace, speedup: 1.0, jitter, grid_ns };
        replay::stamps_ns(&replay, 1)
    })
}

#[test]
fn conversation() {
    let Some((path, trace)) = trace("mooncake_conversation_head4000.jsonl") else { return };
    let (distinct, references, by_block, by_token) = sharing(&trace);
    assert_eq!((trace.rows.len(), distinct, references), (4000, 71_424, 105_904));
    assert!((by_block - 0.3256).abs() < 5e-5 && (by_token - 0.3314).abs() < 5e-5, "{by_block} {by_token}");
    let [recorded, spread] = jittered(path, trace);
    assert_eq!(recorded.last().unwrap() / 1_000_000_000, 1301);
    assert!(spread.is_sorted());
    let distinct = |at: &[u64]| at.iter().collect::<HashSet<_>>().len();
    assert!(distinct(&recorded) < 500 && distinct(&spread) > 3990, "the grid of 3 s is found and filled");
}

#[test]
fn synthetic() {
    let Some((path, trace)) = trace("mooncake_synthetic_full.jsonl") else { return };
    let (distinct, references, by_block, by_token) = sharing(&trace);
    assert_eq!((trace.rows.len(), distinct, references), (3993, 43_924, 121_877));
    assert!((by_block - 0.6396).abs() < 5e-5 && (by_token - 0.6512).abs() < 5e-5, "{by_block} {by_token}");
    let [recorded, spread] = jittered(path, trace);
    assert_eq!(recorded, spread, "stamps of 1 ms are no grid");
}
