//! Playing a trace: its rows become prompts, its stamps become times.

use protocol::tokenizer::mix;

use super::draws::{Component, stream, unit};
use super::{After, Prompt, Segment, rounds};
use crate::scenario::TraceReplay;
use crate::trace::{ROUNDING_NS, Row, Trace};

/// Keeps the blocks of traces apart from generated ones.
const HASH_ID: u64 = 0x4841_5348;
/// Keeps what only one row says apart from the blocks of traces.
const OWN: u64 = 0x004F_574E;

/// The prompts, in the order of the file, round by round. A hash id is the same block in every run: content is the trace's,
/// not the seed's.
pub(super) fn prompts(workload: &TraceReplay) -> Vec<Prompt> {
    let trace = &workload.trace;
    let rows = trace.rows.len() as u32;
    let mut prompts = Vec::with_capacity(workload.requests() as usize);
    for round in 0..workload.repeat.rounds {
        let salt = rounds::salt(workload.repeat, round);
        let of_row = |(at, row)| prompt(at, row, trace, Round { first: round * rows, salt });
        prompts.extend((0..).zip(&trace.rows).map(of_row));
    }
    prompts
}

/// One of the times that a trace is played.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Place of its first request.
    first: u32,
    /// What its contents are told from those of other rounds by.
    salt: u64,
}

/// The prompt of the row at a place of the trace. What has no hash id is said by this row alone. Where the trace has no times, a
/// turn waits for the one before it.
fn prompt(at: u64, row: &Row, trace: &Trace, round: Round) -> Prompt {
    let block_tokens = trace.block_tokens;
    let shared = |(at, id): (u32, &u64)| Segment::Text {
        block: mix(id ^ mix(HASH_ID ^ round.salt)),
        tokens: (row.input_tokens - at * block_tokens).min(block_tokens),
    };
    let named = (row.blocks.len() as u64 * u64::from(block_tokens)).min(u64::from(row.input_tokens)) as u32;
    let rest = row.input_tokens - named;
    let own = Segment::Text { block: mix(at ^ mix(OWN ^ round.salt)), tokens: rest };
    Prompt {
        group: None,
        session: row.session.map(|session| session ^ round.salt),
        after: row
            .parent
            .filter(|_| !trace.timed)
            .map(|parent| After { seqs: [parent + round.first].into(), think_ns: row.think_ns.unwrap_or(0) }),
        segments: (0..).zip(&row.blocks).map(shared).chain((rest > 0).then_some(own)).collect(),
        output_tokens: row.output_tokens,
    }
}

/// When each row is sent, in nanoseconds since the first; ascending, so rows keep the order of the file.
pub(crate) fn stamps_ns(workload: &TraceReplay, seed: u64) -> Vec<u64> {
    let recorded: Vec<u64> = workload.trace.rows.iter().map(|row| row.at_ns).collect();
    let mut at_ns = rounds::stamps_ns(recorded, workload.repeat, workload.grid_ns);
    if let Some(step_ns) = workload.grid_ns {
        spread(&mut at_ns, step_ns, seed);
    }
    let first_ns = at_ns.first().copied().unwrap_or(0);
    at_ns.iter().map(|at| ((at - first_ns) as f64 / workload.speedup).round() as u64).collect()
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

    use super::*;
    use crate::scenario::{Jitter, Repeat};
    use crate::trace::{Format, Grid};

    const MS: u64 = 1_000_000;
    const FIRST: Round = Round { first: 0, salt: 0 };

    fn replay(at_ms: &[u64], speedup: f64, jitter: Jitter) -> TraceReplay {
        let row = |at: &u64| Row { at_ns: at * MS, input_tokens: 1, output_tokens: 1, ..Row::default() };
        let rows: Vec<Row> = at_ms.iter().map(row).collect();
        let grid: Grid = rows.iter().map(|row| row.at_ns).collect();
        let grid_ns = if jitter == Jitter::Grid { grid.step_ns() } else { None };
        let trace = Trace { rows, ..trace(512) };
        TraceReplay {
            path: "t".into(),
            trace: Arc::new(trace),
            speedup,
            jitter,
            grid_ns,
            repeat: Repeat::NONE,
        }
    }

    fn trace(block_tokens: u32) -> Trace {
        Trace { rows: Vec::new(), block_tokens, format: Format::Mooncake, timed: true, skipped: 0 }
    }

    fn row(input_tokens: u32, blocks: &[u64]) -> Row {
        Row { input_tokens, output_tokens: 3, blocks: blocks.into(), ..Row::default() }
    }

    fn blocks(prompt: &Prompt) -> Vec<u64> {
        let block = |s: &Segment| match s {
            Segment::Text { block, .. } => *block,
            Segment::Reply { .. } => panic!("a recorded prompt"),
        };
        prompt.segments.iter().map(block).collect()
    }

    fn lengths(prompt: &Prompt) -> Vec<u32> {
        prompt.segments.iter().map(|s| s.tokens()).collect()
    }

    #[test]
    fn a_hash_id_is_one_block_and_the_last_is_cut() {
        let trace = trace(512);
        let of = |at, row| prompt(at, row, &trace, FIRST);
        let (a, b) = (of(0, &row(1100, &[0, 1, 2])), of(1, &row(1536, &[0, 1, 2])));
        assert_eq!(lengths(&a), [512, 512, 76]);
        assert_eq!(lengths(&b), [512, 512, 512]);
        assert_eq!(blocks(&a), blocks(&b));
        assert_ne!(blocks(&a)[0], blocks(&a)[1]);
        assert_eq!(a.output_tokens, 3);
        assert_eq!(
            lengths(&prompt(0, &row(40, &[7, 8, 9]), &Trace { block_tokens: 16, ..trace }, FIRST)),
            [16, 16, 8],
            "blocks as large as the trace's"
        );
    }

    #[test]
    fn what_has_no_hash_id_is_content_of_its_own() {
        let two = |row: Row, trace: &Trace| [prompt(0, &row, trace, FIRST), prompt(1, &row, trace, FIRST)];
        let [a, b] = two(row(1100, &[]), &trace(512));
        assert_eq!(lengths(&a), [1100]);
        assert_ne!(blocks(&a), blocks(&b));
        let [a, b] = two(row(150, &[4, 5]), &trace(64));
        assert_eq!(lengths(&a), [64, 64, 22]);
        assert_eq!(blocks(&a)[..2], blocks(&b)[..2]);
        assert_ne!(blocks(&a)[2], blocks(&b)[2]);
    }

    #[test]
    fn turns_wait_for_each_other_where_there_are_no_times() {
        let turn = Row { session: Some(7), parent: Some(3), think_ns: Some(5), ..row(10, &[]) };
        let timed = prompt(4, &turn, &trace(512), FIRST);
        assert_eq!((timed.session, timed.after), (Some(7), None), "recorded times are kept");
        let untimed = prompt(4, &turn, &Trace { timed: false, ..trace(512) }, FIRST);
        assert_eq!(untimed.after, Some(After { seqs: [3].into(), think_ns: 5 }));
    }

    #[test]
    fn rounds_follow_each_other_and_share_content_only_if_told_so() {
        let mut replay = replay(&[5, 15, 45], 2.0, Jitter::None);
        let trace = Arc::get_mut(&mut replay.trace).expect("held once");
        for row in &mut trace.rows {
            (row.blocks, row.session) = ([1].into(), Some(9));
        }
        let (firsts, at_ns) = (
            |r: &TraceReplay| prompts(r).iter().map(|p| blocks(p)[0]).collect::<Vec<_>>(),
            |r: &TraceReplay| stamps_ns(r, 1),
        );
        let once = (firsts(&replay), at_ns(&replay));
        replay.repeat.rounds = 3;
        let (own, at) = (firsts(&replay), at_ns(&replay));
        assert_eq!(
            (&own[..3], &at[..3]),
            (&once.0[..], &once.1[..]),
            "the first round is as without the others"
        );
        assert_eq!(at[3..6], [30 * MS, 35 * MS, 50 * MS], "a mean gap after the last one");
        let mut different = own.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 3, "one block in each round");
        let sessions = |r: &TraceReplay| {
            prompts(r).iter().filter_map(|p| p.session).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(sessions(&replay), 3, "one session in each round");
        replay.repeat.same_content = true;
        assert!(firsts(&replay).iter().all(|block| *block == own[0]));
        assert_eq!(at_ns(&replay), at);
    }

    #[test]
    fn what_has_no_hash_id_and_who_waits_belong_to_their_round() {
        let mut replay = replay(&[0, 1], 1.0, Jitter::None);
        let trace = Arc::get_mut(&mut replay.trace).expect("held once");
        trace.timed = false;
        trace.rows[1].parent = Some(0);
        replay.repeat.rounds = 3;
        let all = prompts(&replay);
        let own: std::collections::BTreeSet<u64> = all.iter().map(|p| blocks(p)[0]).collect();
        assert_eq!(own.len(), 6, "no two rows say the same");
        let after: Vec<_> = all.iter().filter_map(|p| p.after.as_ref()).map(|after| after.seqs[0]).collect();
        assert_eq!(after, [0, 2, 4]);
    }

    #[test]
    fn a_round_begins_one_step_of_the_grid_after_the_last_one() {
        let repeat = Repeat { rounds: 3, same_content: false };
        // The last stamp is a little beside the grid.
        let at_ns = rounds::stamps_ns(vec![0, 0, 3_000 * MS, 6_001 * MS], repeat, Some(3_000 * MS));
        let seconds: Vec<u64> = at_ns.iter().map(|at| at / (1_000 * MS)).collect();
        assert_eq!(seconds, [0, 0, 3, 6, 9, 9, 12, 15, 18, 18, 21, 24]);
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
