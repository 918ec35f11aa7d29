//! Facts about public traces. They are not part of the project; tests look for them in `../shared/traces` beside the
//! workspace and say so when they are not there.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::info::{TraceInfo, analyse};
use super::{Format, Options, Row};
use crate::scenario::{Jitter, Repeat, TraceReplay};

const CONVERSATION: &str = "mooncake_conversation_head4000.jsonl";
const SYNTHETIC: &str = "mooncake_synthetic_full.jsonl";

pub(super) fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(name);
    if path.exists() {
        return Some(path);
    }
    // Not `eprintln!`, which the test harness swallows.
    let _ = writeln!(std::io::stderr(), "skipped: {name} is not in ../shared/traces");
    None
}

pub(super) fn info(path: &Path) -> TraceInfo {
    let rows = super::open(path, &Options::default()).unwrap();
    analyse(rows, "t", None, |_| {}).unwrap()
}

fn near(measured: f64, expected: f64, within: f64) {
    assert!((measured - expected).abs() <= within, "measured {measured}, expected {expected}");
}

fn has_curve(info: &TraceInfo, expected: [f64; 5]) {
    let sizes: Vec<u64> = info.lru.iter().map(|point| point.blocks).collect();
    assert_eq!(sizes, [640, 1_920, 5_856, 11_718, 97_657]);
    for (point, expected) in info.lru.iter().zip(expected) {
        near(point.hit_rate, expected, 0.001);
    }
}

/// The curves are those that an independent simulator gives (the PyPI package kvcache-simulator 0.1.3).
#[test]
fn conversation() {
    let Some(path) = shared(CONVERSATION) else { return };
    let info = info(&path);
    let reuse = info.reuse.as_ref().unwrap();
    assert_eq!((info.format, info.rows), ("mooncake", 4000));
    assert_eq!((reuse.distinct, reuse.references), (71_424, 105_904));
    near(reuse.infinite_by_block, 0.3256, 5e-5);
    near(reuse.infinite_by_token, 0.3314, 5e-5);
    has_curve(&info, [0.040, 0.047, 0.120, 0.221, 0.371]);
    let arrivals = info.arrivals.unwrap();
    near(arrivals.span_s, 1302.0, 0.5);
    assert_eq!(arrivals.grid_ms, Some(3000));
}

#[test]
fn synthetic() {
    let Some(path) = shared(SYNTHETIC) else { return };
    let info = info(&path);
    let reuse = info.reuse.as_ref().unwrap();
    assert_eq!((info.format, info.rows), ("mooncake", 3993));
    assert_eq!((reuse.distinct, reuse.references), (43_924, 121_877));
    near(reuse.infinite_by_block, 0.6396, 5e-5);
    near(reuse.infinite_by_token, 0.6512, 5e-5);
    has_curve(&info, [0.093, 0.214, 0.453, 0.643, 0.863]);
    near(reuse.infinite_last_half, 0.863, 0.001);
    let share = |from: f64, to: f64| -> f64 {
        reuse.match_ratio.iter().filter(|bin| bin.from >= from && bin.to <= to).map(|bin| bin.share).sum()
    };
    near(share(0.0, 0.05), 0.55, 0.01);
    near(share(0.05, 0.8), 0.006, 0.003);
    near(share(0.8, 1.0), 0.44, 0.01);
    // It was drawn as a Poisson process.
    let arrivals = info.arrivals.unwrap();
    near(arrivals.gap_cv.unwrap(), 1.01, 0.005);
    near(arrivals.windows[0].fano, 1.09, 0.005);
    near(arrivals.rate.unwrap(), 3.91, 0.005);
    assert_eq!(arrivals.grid_ms, None);
    let (input, output) = (&info.input_tokens, &info.output_tokens);
    near(input.mean, 15_325.0, 1.0);
    near(output.mean, 149.0, 0.5);
    assert_eq!([input.p50, input.p90, input.p99, input.max].map(|t| t / 1000), [11, 38, 66, 191]);
    // 768 between two lengths; a quantile here is a length that occurs.
    assert_eq!((output.p50, output.p99), (69, 769));
}

#[test]
fn azure() {
    let Some(path) = shared("azure_llm_2023_code_full.csv") else { return };
    let info = info(&path);
    assert_eq!((info.format, info.rows, info.reuse.is_none()), ("azure", 8819, true));
    let arrivals = info.arrivals.unwrap();
    near(arrivals.span_s, 3435.9, 0.05);
    near(arrivals.gap_cv.unwrap(), 13.2, 0.05);
    near(arrivals.rate.unwrap(), 2.57, 0.005);
    // 632 requests in the busiest minute.
    near(arrivals.windows[2].peak_rate, 632.0 / 60.0, 0.5);
    assert_eq!((info.input_tokens.p50, info.output_tokens.p50), (1469, 13));
    let Some(path) = shared("azure_llm_2023_conv_head8000.csv") else { return };
    assert_eq!(super::read(&path, &Options::default()).unwrap().rows.len(), 8000);
}

#[test]
fn sharegpt_shaped_chats() {
    let Some(path) = shared("fastchat_dummy_conversation_sharegpt-format.json") else { return };
    let trace = super::read(&path, &Options::default()).unwrap();
    assert_eq!((trace.format, trace.timed, trace.block_tokens), (Format::ShareGpt, false, 16));
    assert_eq!(trace.rows.len(), 1000, "500 conversations of 2,000 messages, half of them answers");
    let sessions: HashSet<_> = trace.rows.iter().map(|row| row.session).collect();
    assert_eq!(sessions.len(), 500);
    let mut continued = 0;
    for (at, pair) in (0..).zip(trace.rows.windows(2)) {
        let [former, row] = pair else { unreachable!() };
        if former.session == row.session {
            let full = former.blocks.len() - 1;
            assert_eq!(former.blocks[..full], row.blocks[..full], "a turn continues the one before");
            assert_eq!(row.parent, Some(at));
            continued += 1;
        } else {
            assert_eq!(row.parent, None);
        }
    }
    assert_eq!(continued, 500);
}

#[test]
fn jitter_fills_the_grid_of_the_conversation_trace_and_leaves_the_synthetic_one() {
    let stamps = |path: PathBuf| {
        let trace = Arc::new(super::read(&path, &Options::default()).unwrap());
        let grid: super::Grid = trace.rows.iter().map(|row: &Row| row.at_ns).collect();
        [Jitter::None, Jitter::Grid].map(|jitter| {
            let grid_ns = if jitter == Jitter::Grid { grid.step_ns() } else { None };
            let trace = Arc::clone(&trace);
            let replay = TraceReplay {
                path: path.clone(),
                trace,
                speedup: 1.0,
                jitter,
                grid_ns,
                repeat: Repeat::NONE,
            };
            crate::workload::replay::stamps_ns(&replay, 1)
        })
    };
    let distinct = |at: &[u64]| at.iter().collect::<HashSet<_>>().len();
    let Some(path) = shared(CONVERSATION) else { return };
    let [recorded, spread] = stamps(path);
    assert_eq!(recorded.last().unwrap() / 1_000_000_000, 1301);
    assert!(spread.is_sorted());
    assert!(distinct(&recorded) < 500 && distinct(&spread) > 3990, "the grid of 3 s is found and filled");
    let Some(path) = shared(SYNTHETIC) else { return };
    let [recorded, spread] = stamps(path);
    assert_eq!(recorded, spread, "stamps of 1 ms are no grid");
}
