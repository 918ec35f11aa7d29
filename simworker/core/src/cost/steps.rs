//! A cost model given by its step times instead of by a model and its hardware.

use super::CostModel;
use crate::time::Ticks;

/// What steps take, in nanoseconds:
///
/// ```text
/// prefill = prefill_fixed + max(prefill_token·Σn, weights) + attention_pair·Σ n(c + n/2) + comm_token·Σn
/// decode  = decode_fixed  + max(decode_sequence·B, weights) + decode_context_token·S    + comm_token·B
/// ```
///
/// with n new tokens on c cached ones per request, and B requests of S tokens of context together. All numbers are
/// finite and at least 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepTimes {
    /// Fixed cost of a prefill step.
    pub prefill_fixed_ns: f64,
    /// Linear layers, for a token of a prompt.
    pub prefill_token_ns: f64,
    /// Attention, for a pair of tokens of a prompt.
    pub attention_pair_ns: f64,
    /// Reading the weights once, which no step is faster than.
    pub weights_ns: f64,
    /// Fixed cost of a decode step.
    pub decode_fixed_ns: f64,
    /// Linear layers, for a request of the batch.
    pub decode_sequence_ns: f64,
    /// Reading KV, for a token of context.
    pub decode_context_token_ns: f64,
    /// Communication between GPUs, for a token of the batch.
    pub comm_token_ns: f64,
}

impl CostModel {
    /// The cost model with these step times.
    #[must_use]
    pub const fn from_steps(times: &StepTimes) -> Self {
        const fn ticks(ns: f64) -> Ticks {
            Ticks::from_seconds(ns / 1e9)
        }
        Self {
            prefill_fixed: ticks(times.prefill_fixed_ns),
            prefill_token: ticks(times.prefill_token_ns),
            attention_half_pair: ticks(times.attention_pair_ns / 2.0),
            decode_fixed: ticks(times.decode_fixed_ns),
            decode_sequence: ticks(times.decode_sequence_ns),
            decode_context_token: ticks(times.decode_context_token_ns),
            weights: ticks(times.weights_ns),
            // Every step has it, so that it is a part of the fixed costs.
            comm_fixed: Ticks::ZERO,
            comm_token: ticks(times.comm_token_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::PrefillWork;

    const TIMES: StepTimes = StepTimes {
        prefill_fixed_ns: 1_000.0,
        prefill_token_ns: 10.0,
        attention_pair_ns: 2.0,
        weights_ns: 500.0,
        decode_fixed_ns: 300.0,
        decode_sequence_ns: 20.0,
        decode_context_token_ns: 0.5,
        comm_token_ns: 1.0,
    };

    #[test]
    fn steps_take_what_the_formula_says() {
        let cost = CostModel::from_steps(&TIMES);
        let prefill = |new, cached| {
            let mut work = PrefillWork::default();
            work.add(new, cached);
            cost.prefill(work).ns()
        };
        assert_eq!(prefill(10, 0), 1_000 + 500 + 2 * 50 + 10, "bound by the weights");
        assert_eq!(prefill(100, 40), 1_000 + 1_000 + 2 * 100 * 90 + 100, "bound by compute");
        assert_eq!(cost.decode(4, 1_000).ns(), 300 + 500 + 500 + 4);
        assert_eq!(cost.decode(50, 1_000).ns(), 300 + 1_000 + 500 + 50);
    }
}
