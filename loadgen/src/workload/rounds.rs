//! A trace played several times, one round after the other.

use crate::scenario::Repeat;

/// What the contents of a round are told from those of other rounds by. The first round is the trace as it is.
pub(super) fn salt(repeat: Repeat, round: u32) -> u64 {
    let round = if repeat.same_content { 0 } else { round };
    u64::from(round) << 32
}

/// The stamps of all rounds. A round begins one step of the trace's grid after the last stamp of the round before, or a mean gap
/// after it where there is no grid.
pub(super) fn stamps_ns(mut at_ns: Vec<u64>, repeat: Repeat, grid_ns: Option<u64>) -> Vec<u64> {
    let (Some(&first), Some(&last)) = (at_ns.first(), at_ns.last()) else { return at_ns };
    let (rows, span_ns) = (at_ns.len(), last - first);
    let round_ns = match grid_ns {
        // Stamps may be a little beside their grid; rounds are not to drift away from it.
        Some(step_ns) => ((span_ns + step_ns / 2) / step_ns + 1) * step_ns,
        None => span_ns + span_ns / (rows as u64 - 1).max(1),
    };
    at_ns.reserve_exact(rows * (repeat.rounds as usize - 1));
    for round in 1..u64::from(repeat.rounds) {
        at_ns.extend_from_within(..rows);
        at_ns[round as usize * rows..]
            .iter_mut()
            .for_each(|at| *at = at.saturating_add(round.saturating_mul(round_ns)));
    }
    at_ns
}
