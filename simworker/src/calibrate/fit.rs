//! From measured steps to step times: least squares over both sides of the roofline.
//!
//! `max(token·n, weights)` is not linear. But for each choice of which samples are bound by the weights the rest is,
//! so every choice is tried, in the order of n, and the one with the smallest relative error stays.

use simworker_core::cost::StepTimes;

/// A prefill step of one prompt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PrefillSample {
    pub(super) new_tokens: f64,
    pub(super) cached_tokens: f64,
    pub(super) ns: f64,
}

/// The mean of several decode steps of one batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DecodeSample {
    pub(super) batch: f64,
    /// Tokens of context over the batch.
    pub(super) context: f64,
    pub(super) ns: f64,
}

/// What could be told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fit {
    pub(super) steps: StepTimes,
    /// No prompt was short enough to be bound by the weights: they are in the fixed costs.
    pub(super) has_weights: bool,
    /// A batch was so large that it was bound by compute; otherwise the cost of a sequence is a bound from above.
    pub(super) has_sequences: bool,
}

/// Fewest samples on each side of the roofline.
const FEWEST: usize = 2;
/// A side of the roofline with more parameters must make the squared error that much smaller to be believed.
const WORTH: f64 = 0.5;

/// Fits both kinds of steps. `gpus` tells whether there is communication. Nothing if the samples are too few.
pub(super) fn fit(prefill: &[PrefillSample], decode: &[DecodeSample], gpus: u32) -> Option<Fit> {
    let prefill = fit_prefill(prefill, gpus > 1)?;
    fit_decode(decode, prefill)
}

/// One equation: coefficients, and the time they add up to.
type Row<const N: usize> = ([f64; N], f64);

/// The prefill side: [fixed + weights, fixed, token + comm, pair, comm]; without communication the last is absent.
fn fit_prefill(samples: &[PrefillSample], has_comm: bool) -> Option<Fit> {
    let mut samples = samples.to_vec();
    samples.sort_by(|a, b| a.new_tokens.total_cmp(&b.new_tokens));
    let most_flat = samples.len().checked_sub(FEWEST)?;
    let splits = std::iter::once(0).chain(FEWEST..=most_flat);
    let mut best: Option<([f64; 5], f64, usize)> = None;
    for flat in splits {
        let rows: Vec<Row<5>> =
            (0..).zip(&samples).map(|(at, sample)| prefill_row(sample, at < flat, has_comm)).collect();
        let used = [flat > 0, true, true, true, has_comm && flat > FEWEST];
        let Some((solution, error)) = solve(&rows, used) else { continue };
        let worth = if best.as_ref().is_some_and(|(_, _, flat)| *flat == 0) { WORTH } else { 1.0 };
        if best.as_ref().is_none_or(|(_, least, _)| error < least * worth) {
            best = Some((solution, error, flat));
        }
    }
    let ([flat_fixed, fixed, token, pair, comm], _, flat) = best?;
    Some(Fit {
        steps: StepTimes {
            prefill_fixed_ns: fixed.max(0.0),
            prefill_token_ns: (token - comm).max(0.0),
            attention_pair_ns: pair.max(0.0),
            weights_ns: if flat > 0 { (flat_fixed - fixed).max(0.0) } else { 0.0 },
            comm_token_ns: comm.max(0.0),
            ..StepTimes::default()
        },
        has_weights: flat > 0,
        has_sequences: false,
    })
}

fn prefill_row(sample: &PrefillSample, is_flat: bool, has_comm: bool) -> Row<5> {
    let PrefillSample { new_tokens: new, cached_tokens, ns } = *sample;
    let pairs = new * (cached_tokens + new / 2.0);
    let comm = if has_comm { new } else { 0.0 };
    let row = if is_flat { [1.0, 0.0, 0.0, pairs, comm] } else { [0.0, 1.0, new, pairs, 0.0] };
    (row, ns)
}

/// The decode side, where weights and communication are known: [fixed, sequence, context token].
fn fit_decode(samples: &[DecodeSample], prefill: Fit) -> Option<Fit> {
    let mut samples = samples.to_vec();
    samples.sort_by(|a, b| a.batch.total_cmp(&b.batch));
    let StepTimes { weights_ns: weights, comm_token_ns: comm, prefill_token_ns: token, .. } = prefill.steps;
    let rows = |flat: usize| -> Vec<Row<3>> {
        let row = |(at, sample): (usize, &DecodeSample)| {
            let DecodeSample { batch, context, ns } = *sample;
            let rest = ns - comm * batch;
            if at < flat { ([1.0, 0.0, context], rest - weights) } else { ([1.0, batch, context], rest) }
        };
        (0..).zip(&samples).map(row).collect()
    };
    let all = samples.len();
    let bound = solve(&rows(all), [true, false, true]).filter(|_| prefill.has_weights);
    let mut best = bound.map(|(solution, error)| (solution, error, false));
    let limit = best.map_or(f64::INFINITY, |(_, error, _)| error * WORTH);
    let fewest_flat = if prefill.has_weights { FEWEST } else { 0 };
    let most_flat = if prefill.has_weights { all.saturating_sub(1) } else { 0 };
    for flat in fewest_flat..=most_flat {
        let Some((solution, error)) = solve(&rows(flat), [true; 3]) else { continue };
        // Bound by compute, it takes longer than reading the weights.
        let is_bound = samples.get(flat).is_some_and(|sample| solution[1] * sample.batch >= weights * 0.99);
        let least = best.filter(|(.., seen)| *seen).map_or(limit, |(_, least, _)| least);
        if is_bound && error < least {
            best = Some((solution, error, true));
        }
    }
    let ([fixed, sequence, context, ..], _, has_sequences) = best?;
    let largest = samples.last()?.batch;
    let sequence = if has_sequences { sequence } else { token.min(weights / largest) };
    Some(Fit {
        steps: StepTimes {
            decode_fixed_ns: fixed.max(0.0),
            decode_sequence_ns: sequence.max(0.0),
            decode_context_token_ns: context.max(0.0),
            ..prefill.steps
        },
        has_sequences,
        ..prefill
    })
}

/// Least squares over relative errors, and the sum of their squares; unknowns that are not `used` are 0. Nothing if the
/// equations do not decide.
fn solve<const N: usize>(rows: &[Row<N>], used: [bool; N]) -> Option<([f64; N], f64)> {
    // Columns differ by many orders of magnitude, so each is scaled to 1.
    let mut scale = [0.0_f64; N];
    for (row, ns) in rows {
        for (scale, value) in scale.iter_mut().zip(row) {
            *scale = scale.max((value / ns).abs());
        }
    }
    let mut normal = [[0.0; N]; N];
    let mut right = [0.0; N];
    for (row, ns) in rows {
        let row: [f64; N] = std::array::from_fn(|i| if used[i] { row[i] / ns / scale[i] } else { 0.0 });
        for (i, value) in row.iter().enumerate() {
            right[i] += value;
            for (cell, other) in normal[i].iter_mut().zip(row) {
                *cell += value * other;
            }
        }
    }
    for (i, used) in used.iter().enumerate().filter(|(_, used)| !**used) {
        normal[i][i] = f64::from(u8::from(!used));
    }
    let scaled = eliminate(normal, right)?;
    let solution: [f64; N] = std::array::from_fn(|i| if used[i] { scaled[i] / scale[i] } else { 0.0 });
    let error = |(row, ns): &Row<N>| {
        let told: f64 = row.iter().zip(solution).map(|(a, b)| a * b).sum();
        (told / ns - 1.0).powi(2)
    };
    Some((solution, rows.iter().map(error).sum()))
}

/// Gaussian elimination with pivots; nothing for a matrix that is singular.
fn eliminate<const N: usize>(mut matrix: [[f64; N]; N], mut right: [f64; N]) -> Option<[f64; N]> {
    for column in 0..N {
        let pivot =
            (column..N).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        if matrix[pivot][column].abs() < 1e-12 {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..N {
            let factor = matrix[row][column] / matrix[column][column];
            let above = matrix[column];
            for (cell, above) in matrix[row].iter_mut().zip(above) {
                *cell -= factor * above;
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solution = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| matrix[row][column] * solution[column]).sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    Some(solution)
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

/// The line through points: slope and intercept by the medians of Theil and Sen, which a few late answers do not move.
pub(super) fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let least = points.iter().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
    // Between neighbours any disturbance is a slope.
    let far = (most - least) / 4.0;
    let mut slopes = Vec::new();
    for (at, (x1, y1)) in points.iter().enumerate() {
        for (x2, y2) in &points[at + 1..] {
            if x2 != x1 && (x2 - x1).abs() >= far {
                slopes.push((y2 - y1) / (x2 - x1));
            }
        }
    }
    let slope = median(&mut slopes)?;
    let intercept = median(&mut points.iter().map(|(x, y)| y - slope * x).collect::<Vec<_>>())?;
    Some((slope, intercept))
}

/// The middle one.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
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
        let mut prefill: Vec<PrefillSample> =
            new.map(|new_tokens| PrefillSample { new_tokens, cached_tokens: 0.0, ns: 0.0 }).to_vec();
        prefill.push(PrefillSample { new_tokens: 32.0, cached_tokens: 4096.0, ns: 0.0 });
        let mut decode = Vec::new();
        for batch in batches {
            for context in [40.0, 1000.0] {
                decode.push(DecodeSample { batch: *batch, context: context * batch, ns: 0.0 });
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
        assert!(fit.has_weights && fit.has_sequences);
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
        assert!(!fit.has_sequences);
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

    #[test]
    fn too_few_samples_decide_nothing() {
        let (prefill, decode) = samples(&TRUTH, &BATCHES);
        assert_eq!(fit(&prefill[..2], &decode, 1), None);
        assert_eq!(fit(&prefill, &decode[..1], 1), None);
    }

    #[test]
    fn disturbed_neighbours_do_not_tilt_the_line() {
        let near = (0..7).map(|at| (10.0 + f64::from(at) * 0.01, 60.0 + f64::from(at % 3)));
        let points: Vec<_> = near.chain([(20.0, 80.0), (40.0, 120.0), (200.0, 440.0)]).collect();
        let (slope, intercept) = line(&points).unwrap();
        assert!((slope - 2.0).abs() < 0.02 && (intercept - 40.0).abs() < 1.5, "{slope} {intercept}");
    }

    #[test]
    fn a_late_answer_does_not_move_the_line() {
        let points = [(1.0, 12.0), (2.0, 14.0), (3.0, 16.0), (4.0, 90.0), (5.0, 20.0)];
        assert_eq!(line(&points), Some((2.0, 10.0)));
    }
}
