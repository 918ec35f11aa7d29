//! From measured steps to step times: least squares over both sides of the roofline, prefill and decode together.
//!
//! `max(token·n, weights)` is not linear. But for each choice of which samples are bound by the weights the rest is,
//! so every choice is tried, in the order of n, and the one that predicts the samples best stays. Both kinds of steps share the
//! weights, so that what one kind leaves open the other may decide.

use simworker_core::cost::StepTimes;

use super::linear::{Row, Solution, solve_positive};

/// A prefill step of one prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PrefillSample {
    pub(super) new_tokens: f64,
    pub(super) cached_tokens: f64,
    pub(super) ns: f64,
    /// Relative standard error of the time.
    pub(super) error: f64,
}

/// The mean of several decode steps of one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DecodeSample {
    pub(super) batch: f64,
    /// Tokens of context over the batch.
    pub(super) context: f64,
    pub(super) ns: f64,
    /// Relative standard error of the time.
    pub(super) error: f64,
}

/// What the samples come to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fit {
    pub(super) steps: StepTimes,
    /// How far each of the step times may be off, nanoseconds, in the order of [`crate::preset_file::rows`]: half of an interval
    /// that has the truth in 95 of 100 cases. Infinite for what the samples say nothing of.
    pub(super) half_widths: [f64; UNKNOWNS],
    /// The largest share of a sample that a nanosecond of each of them makes.
    pub(super) shares: [f64; UNKNOWNS],
    /// Chi-square per degree of freedom; well above 1 the formula is no good, and more samples do not help.
    pub(super) reduced_chi_square: f64,
}

impl Fit {
    /// Whether a prompt was short enough to be bound by the weights; otherwise they are in the fixed costs.
    pub(super) fn has_weights(&self) -> bool {
        self.half_widths[WEIGHTS].is_finite()
    }

    /// Whether a batch was so large that it was bound by compute; otherwise the cost of a sequence is a bound from above.
    pub(super) fn has_sequences(&self) -> bool {
        self.half_widths[SEQUENCE].is_finite()
    }
}

/// Unknowns, in the order of [`crate::preset_file::rows`].
const UNKNOWNS: usize = 8;
/// Places among the unknowns of those that samples may leave open.
const WEIGHTS: usize = 3;
const SEQUENCE: usize = 5;
const COMM: usize = 7;
/// Fewest samples on each side of the roofline.
const FEWEST: usize = 2;
/// Standard errors to each side of an interval that has the truth in 95 of 100 cases: Student's t for the ten or so degrees of
/// freedom that there are.
pub(super) const STANDARD_ERRORS: f64 = 2.2;
/// Samples that are predicted better than this need no further unknown.
const GOOD: f64 = 0.05;

/// Whether a time can have been measured: no step takes no time, or less.
pub(super) fn is_time(ns: f64) -> bool {
    ns.is_finite() && ns > 0.0
}

/// Fits both kinds of steps. `gpus` tells whether there is communication. Nothing if the samples are too few, or if one is
/// no [time](is_time) or what comes out predicts one that is none.
pub(super) fn fit(prefill: &[PrefillSample], decode: &[DecodeSample], gpus: u32) -> Option<Fit> {
    let mut measured = prefill.iter().map(|sample| sample.ns).chain(decode.iter().map(|sample| sample.ns));
    if !measured.all(is_time) {
        return None;
    }
    let mut prefill = prefill.to_vec();
    prefill.sort_by(|a, b| a.new_tokens.total_cmp(&b.new_tokens));
    let mut decode = decode.to_vec();
    decode.sort_by(|a, b| a.batch.total_cmp(&b.batch));
    let samples = Samples { prefill, decode, has_comm: gpus > 1 };
    let best = samples.best()?;
    let fitted = samples.fitted(&best)?;
    let predicted = samples.prefill.iter().map(|sample| prefill_ns(&fitted.steps, sample));
    let mut predicted = predicted.chain(samples.decode.iter().map(|sample| decode_ns(&fitted.steps, sample)));
    predicted.all(is_time).then_some(fitted)
}

/// How many samples of each kind are bound by the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    prefill: usize,
    decode: usize,
}

/// A choice and what comes of it.
#[derive(Debug, Clone, Copy)]
struct Choice {
    split: Split,
    solution: Solution<UNKNOWNS>,
    used: [bool; UNKNOWNS],
    /// Sum of the squared errors, each by what it should be.
    squares: f64,
}

impl Choice {
    fn unknowns(&self) -> usize {
        count_of(&self.used)
    }
}

fn count_of(used: &[bool]) -> usize {
    used.iter().filter(|used| **used).count()
}

/// In the order of their sizes.
struct Samples {
    prefill: Vec<PrefillSample>,
    decode: Vec<DecodeSample>,
    has_comm: bool,
}

impl Samples {
    fn count(&self) -> usize {
        self.prefill.len() + self.decode.len()
    }

    /// Whether some batches are bound by compute.
    fn has_sequences(&self, split: Split) -> bool {
        split.decode < self.decode.len()
    }

    /// The choice that predicts the samples best. One with more unknowns must be worth them (BIC).
    fn best(&self) -> Option<Choice> {
        let most_flat = self.prefill.len().checked_sub(FEWEST)?;
        let all = self.decode.len();
        let no_weights = [Split { prefill: 0, decode: 0 }];
        let flat = || FEWEST..=most_flat;
        let no_sequences = flat().map(|prefill| Split { prefill, decode: all });
        let both = flat().flat_map(|prefill| (FEWEST..all).map(move |decode| Split { prefill, decode }));
        let classes: [Vec<Split>; 3] = [no_weights.to_vec(), no_sequences.collect(), both.collect()];
        let best_of = |splits: Vec<Split>| {
            let choices = splits.into_iter().filter_map(|split| self.choice(split));
            choices.min_by(|a, b| a.squares.total_cmp(&b.squares))
        };
        let count = self.count() as f64;
        let cost = |choice: &Choice| {
            count * (choice.squares / count).max(GOOD).ln() + choice.unknowns() as f64 * count.ln()
        };
        let best = classes.into_iter().filter_map(best_of);
        best.min_by(|a, b| cost(a).total_cmp(&cost(b)))
    }

    fn choice(&self, split: Split) -> Option<Choice> {
        let mut used = [true; UNKNOWNS];
        used[WEIGHTS] = split.prefill > 0;
        used[SEQUENCE] = self.has_sequences(split);
        used[COMM] = self.has_comm && split.prefill > FEWEST;
        if self.decode.len() < FEWEST || self.count() < count_of(&used) {
            return None;
        }
        let solution = solve_positive(&self.rows(split), used)?;
        let steps = self.steps(split, &solution)?;
        let square = |predicted: f64, ns: f64, error: f64| ((predicted / ns - 1.0) / error).powi(2);
        let prefill =
            (self.prefill.iter()).map(|sample| square(prefill_ns(&steps, sample), sample.ns, sample.error));
        let decode =
            self.decode.iter().map(|sample| square(decode_ns(&steps, sample), sample.ns, sample.error));
        let squares: f64 = prefill.chain(decode).sum();
        squares.is_finite().then_some(Choice { split, solution, used, squares })
    }

    fn rows(&self, split: Split) -> Vec<Row<UNKNOWNS>> {
        let comm = |tokens: f64| if self.has_comm { tokens } else { 0.0 };
        let prefill = (0..).zip(&self.prefill).map(|(at, sample): (usize, _)| {
            let PrefillSample { new_tokens: new, cached_tokens, ns, error } = *sample;
            let pairs = new * (cached_tokens + new / 2.0);
            let (token, weights) = if at < split.prefill { (0.0, 1.0) } else { (new, 0.0) };
            Row { coefficients: [1.0, token, pairs, weights, 0.0, 0.0, 0.0, comm(new)], ns, error }
        });
        let decode = (0..).zip(&self.decode).map(|(at, sample): (usize, _)| {
            let DecodeSample { batch, context, ns, error } = *sample;
            let (sequence, weights) = if at < split.decode { (0.0, 1.0) } else { (batch, 0.0) };
            Row { coefficients: [0.0, 0.0, 0.0, weights, 1.0, sequence, context, comm(batch)], ns, error }
        });
        prefill.chain(decode).collect()
    }

    fn steps(&self, split: Split, solution: &Solution<UNKNOWNS>) -> Option<StepTimes> {
        let [fixed, token, pair, weights, decode_fixed, sequence, context, comm] = solution.values;
        let largest = self.decode.last()?.batch;
        Some(StepTimes {
            prefill_fixed_ns: fixed,
            prefill_token_ns: token,
            attention_pair_ns: pair,
            weights_ns: weights,
            decode_fixed_ns: decode_fixed,
            decode_sequence_ns: if self.has_sequences(split) {
                sequence
            } else {
                token.min(weights / largest)
            },
            decode_context_token_ns: context,
            comm_token_ns: comm,
        })
    }

    fn fitted(&self, best: &Choice) -> Option<Fit> {
        let Choice { split, solution, used, squares } = best;
        let freedom = self.count().saturating_sub(best.unknowns()).max(1) as f64;
        let reduced_chi_square = squares / freedom;
        let error = |variance: f64| (variance * reduced_chi_square.max(1.0)).sqrt();
        let mut half_widths = solution.variances.map(|variance| STANDARD_ERRORS * error(variance));
        // Without communication its cost is known: none.
        let open = |at: usize| !used[at] && (at != COMM || self.has_comm);
        for at in (0..UNKNOWNS).filter(|at| open(*at)) {
            half_widths[at] = f64::INFINITY;
        }
        let mut shares = [0.0_f64; UNKNOWNS];
        for row in self.rows(*split) {
            for (share, value) in shares.iter_mut().zip(row.coefficients) {
                *share = share.max(value / row.ns);
            }
        }
        let steps = self.steps(*split, solution)?;
        Some(Fit { steps, half_widths, shares, reduced_chi_square })
    }
}

/// How long a prefill step takes by these times.
pub(super) fn prefill_ns(steps: &StepTimes, sample: &PrefillSample) -> f64 {
    let PrefillSample { new_tokens: new, cached_tokens, .. } = *sample;
    steps.prefill_fixed_ns
        + (steps.prefill_token_ns * new).max(steps.weights_ns)
        + steps.attention_pair_ns * new * (cached_tokens + new / 2.0)
        + steps.comm_token_ns * new
}

/// How long a decode step takes by these times.
pub(super) fn decode_ns(steps: &StepTimes, sample: &DecodeSample) -> f64 {
    steps.decode_fixed_ns
        + (steps.decode_sequence_ns * sample.batch).max(steps.weights_ns)
        + steps.decode_context_token_ns * sample.context
        + steps.comm_token_ns * sample.batch
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUTH: StepTimes = StepTimes {
        prefill_fixed_ns: 4e6,
        prefill_token_ns: 70e3,
        attention_pair_ns: 3.4,
        weights_ns: 9e6,
        decode_fixed_ns: 1.3e6,
        decode_sequence_ns: 80e3,
        decode_context_token_ns: 80.0,
        comm_token_ns: 0.0,
    };

    fn samples(truth: &StepTimes, batches: &[f64]) -> (Vec<PrefillSample>, Vec<DecodeSample>) {
        let new = [16.0, 32.0, 64.0, 96.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];
        let mut prefill: Vec<PrefillSample> = new
            .map(|new_tokens| PrefillSample { new_tokens, cached_tokens: 0.0, ns: 0.0, error: 1e-3 })
            .to_vec();
        prefill.push(PrefillSample { new_tokens: 512.0, cached_tokens: 16384.0, ns: 0.0, error: 1e-3 });
        let mut decode = Vec::new();
        for batch in batches {
            for context in [40.0, 1000.0] {
                decode.push(DecodeSample { batch: *batch, context: context * batch, ns: 0.0, error: 1e-3 });
            }
        }
        prefill.iter_mut().for_each(|sample| sample.ns = prefill_ns(truth, sample));
        decode.iter_mut().for_each(|sample| sample.ns = decode_ns(truth, sample));
        (prefill, decode)
    }

    fn assert_near(got: &StepTimes, truth: &StepTimes, by: f64) {
        let pairs = crate::preset_file::rows(got).into_iter().zip(crate::preset_file::rows(truth));
        for ((name, got), (_, truth)) in pairs {
            assert!((got - truth).abs() <= by * truth + 1e-6, "{name}: {got} for {truth}");
        }
    }

    const BATCHES: [f64; 9] = [1.0, 2.0, 8.0, 32.0, 64.0, 128.0, 200.0, 256.0, 512.0];

    #[test]
    fn both_sides_of_the_roofline_and_its_kink_are_found() {
        let (prefill, decode) = samples(&TRUTH, &BATCHES);
        let fit = fit(&prefill, &decode, 1).unwrap();
        assert_near(&fit.steps, &TRUTH, 1e-6);
        assert!(fit.has_weights() && fit.has_sequences());
    }

    #[test]
    fn communication_is_told_apart_from_compute() {
        let truth = StepTimes { comm_token_ns: 9e3, ..TRUTH };
        let (prefill, decode) = samples(&truth, &BATCHES);
        assert_near(&fit(&prefill, &decode, 4).unwrap().steps, &truth, 1e-6);
    }

    #[test]
    fn small_batches_only_bound_the_cost_of_a_sequence() {
        let (prefill, decode) = samples(&TRUTH, &[1.0, 4.0, 16.0]);
        let fit = fit(&prefill, &decode, 1).unwrap();
        assert!(!fit.has_sequences());
        assert_near(&StepTimes { decode_sequence_ns: 80e3, ..fit.steps }, &TRUTH, 1e-6);
        assert!(fit.steps.decode_sequence_ns * 16.0 <= TRUTH.weights_ns);
    }

    #[test]
    fn noise_of_half_a_percent_moves_the_large_terms_by_little() {
        let (mut prefill, mut decode) = samples(&TRUTH, &BATCHES);
        let noise = |at: usize| 1.0 + 0.005 * (((at * 7919) % 13) as f64 / 6.0 - 1.0);
        prefill.iter_mut().enumerate().for_each(|(at, sample)| sample.ns *= noise(at));
        decode.iter_mut().enumerate().for_each(|(at, sample)| sample.ns *= noise(at + 5));
        let steps = fit(&prefill, &decode, 1).unwrap().steps;
        let near = |got: f64, truth: f64| assert!((got / truth - 1.0).abs() < 0.05, "{got} for {truth}");
        near(steps.prefill_token_ns, TRUTH.prefill_token_ns);
        near(steps.weights_ns, TRUTH.weights_ns);
        near(steps.decode_sequence_ns, TRUTH.decode_sequence_ns);
    }

    /// Noise of 1 %, which the samples say.
    fn noisy(seed: u64) -> (Vec<PrefillSample>, Vec<DecodeSample>) {
        let (mut prefill, mut decode) = samples(&TRUTH, &BATCHES);
        let mut state = seed;
        let mut noise = || {
            // Twelve uniform draws have a variance of 1.
            let draw = |_| {
                state = protocol::tokenizer::mix(state);
                (state >> 11) as f64 / (1_u64 << 53) as f64
            };
            1.0 + 0.01 * ((0..12).map(draw).sum::<f64>() - 6.0)
        };
        prefill.iter_mut().for_each(|sample| (sample.ns, sample.error) = (sample.ns * noise(), 0.01));
        decode.iter_mut().for_each(|sample| (sample.ns, sample.error) = (sample.ns * noise(), 0.01));
        (prefill, decode)
    }

    #[test]
    fn intervals_have_the_truth_in_them() {
        let (mut held, mut all) = (0, 0);
        for seed in 0..100 {
            let (prefill, decode) = noisy(seed);
            let fit = fit(&prefill, &decode, 1).unwrap();
            let pairs =
                crate::preset_file::rows(&fit.steps).into_iter().zip(crate::preset_file::rows(&TRUTH));
            for (((_, got), (_, truth)), half_width) in pairs.zip(fit.half_widths).take(7) {
                all += 1;
                held += usize::from((got - truth).abs() <= half_width);
            }
        }
        assert!(held * 10 >= all * 9, "{held} of {all}");
    }

    #[test]
    fn what_is_not_measured_has_no_interval() {
        let (prefill, decode) = samples(&TRUTH, &[1.0, 4.0, 16.0]);
        let fit = fit(&prefill, &decode, 1).unwrap();
        assert!(fit.half_widths[5].is_infinite() && fit.half_widths[4].is_finite(), "{:?}", fit.half_widths);
    }

    #[test]
    fn too_few_samples_decide_nothing() {
        let (prefill, decode) = samples(&TRUTH, &BATCHES);
        assert_eq!(fit(&prefill[..2], &decode, 1), None);
        assert_eq!(fit(&prefill, &decode[..1], 1), None);
    }

    #[test]
    fn times_that_are_none_decide_nothing() {
        let (prefill, decode) = samples(&TRUTH, &BATCHES);
        for ns in [0.0, f64::NAN, f64::INFINITY] {
            let prefill_of = |sample: &PrefillSample| PrefillSample { ns, ..*sample };
            let decode_of = |sample: &DecodeSample| DecodeSample { ns, ..*sample };
            let none: Vec<_> = prefill.iter().map(prefill_of).collect();
            assert_eq!(fit(&none, &decode, 1), None, "{ns}");
            let one: Vec<_> = prefill[..1].iter().map(prefill_of).chain(prefill[1..].to_vec()).collect();
            assert_eq!(fit(&one, &decode, 1), None, "{ns}");
            let none: Vec<_> = decode.iter().map(decode_of).collect();
            assert_eq!(fit(&prefill, &none, 1), None, "{ns}");
        }
    }
}
