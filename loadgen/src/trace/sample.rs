//! The small trace beside `mooncake.toml`: its generator, and the proof that the file is what the generator gives.
//! To write the file anew, set `UPDATE_SAMPLE_TRACE=1`.

use std::fmt::Write as _;
use std::path::Path;

use rand_pcg::Pcg64;

use super::{Format, Row, tests::parsed};
use crate::workload::draws::{Component, below, stream};

const BLOCK_TOKENS: u32 = 512;

const ROWS: usize = 300;
const STEP_MS: u64 = 3000;

/// A chat whose prompts grow turn by turn. The first block is every session's.
struct Session {
    /// The blocks that are full; a block that grows changes its hash.
    full: Vec<u64>,
    /// Prompt tokens so far.
    tokens: u32,
    turns_left: usize,
    next_step: u64,
}

/// Chat sessions as the Mooncake traces record them: about ten requests on every point of a grid of 3 s, whose points are
/// off by a millisecond now and then.
fn generate() -> String {
    let mut draws = stream(20_250_225, Component::Popularity);
    let mut next_id = 1;
    let mut sessions: Vec<Session> = Vec::new();
    let mut text = String::new();
    let mut rows = 0;
    for step in 0.. {
        let begin = 2 + below(&mut draws, 4);
        sessions.extend((0..begin).map(|_| session(&mut draws, step)));
        let wobble = if step == 0 { 0 } else { below(&mut draws, 3) as u64 };
        for session in sessions.iter_mut().filter(|s| s.next_step == step && s.turns_left > 0) {
            let ids = turn(session, &mut draws, &mut next_id);
            let (at, input) = (step * STEP_MS + wobble - u64::from(step > 0), session.tokens);
            let output = 10 + below(&mut draws, 300) as u32;
            let _ = writeln!(
                text,
                "{{\"timestamp\": {at}, \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": {ids:?}}}"
            );
            session.tokens += output;
            rows += 1;
            if rows == ROWS {
                return text;
            }
        }
    }
    text
}

fn session(draws: &mut Pcg64, step: u64) -> Session {
    let tokens = BLOCK_TOKENS + below(draws, 3000) as u32;
    Session { full: vec![0], tokens, turns_left: 1 + below(draws, 6), next_step: step }
}

/// Lets the session ask once more; returns the hash ids of the prompt.
fn turn(session: &mut Session, draws: &mut Pcg64, next_id: &mut u64) -> Vec<u64> {
    session.tokens += 20 + below(draws, 1500) as u32;
    session.turns_left -= 1;
    session.next_step += 2 + below(draws, 6) as u64;
    let mut fresh = || std::mem::replace(next_id, *next_id + 1);
    session.full.resize_with((session.tokens / BLOCK_TOKENS) as usize, &mut fresh);
    let mut ids = session.full.clone();
    if !session.tokens.is_multiple_of(BLOCK_TOKENS) {
        ids.push(fresh());
    }
    ids
}

#[test]
fn the_shipped_trace_is_what_the_generator_gives() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/mooncake_small.jsonl");
    let generated = generate();
    if std::env::var_os("UPDATE_SAMPLE_TRACE").is_some() {
        std::fs::write(&path, &generated).expect("the scenarios folder can be written");
    }
    let shipped = std::fs::read_to_string(&path).expect("the trace is there");
    assert!(shipped == generated, "run this test once with UPDATE_SAMPLE_TRACE=1 and look at the difference");
}

#[test]
fn the_shipped_trace_has_the_traps_of_the_real_one() {
    let trace = parsed(Format::Mooncake, &generate()).expect("a trace");
    assert_eq!(trace.rows.len(), ROWS);
    assert!(trace.rows.iter().all(|row| row.blocks[0] == 0), "all share their first block");
    let mut stamps: Vec<u64> = trace.rows.iter().map(|row| row.at_ns).collect();
    stamps.dedup();
    assert!(stamps.len() * 5 < ROWS, "many requests per stamp: {} stamps", stamps.len());
    let grid: super::Grid = stamps.into_iter().collect();
    assert_eq!(grid.step_ns(), Some(STEP_MS * 1_000_000));
    let reused = trace.rows.iter().skip(1).filter(|row| {
        let known = |other: &&Row| other.blocks.get(1) == row.blocks.get(1) && other.at_ns < row.at_ns;
        trace.rows.iter().any(|other| known(&other))
    });
    assert!(reused.count() > ROWS / 3, "later turns find earlier ones");
}
