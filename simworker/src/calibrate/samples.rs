//! What has been measured so far, in series of repeats, and what it comes to.

use super::fit::{DecodeSample, PrefillSample};
use super::plan::MADE;
use super::robust::{Mean, means};

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Repeats of each prompt.
    prefill: Vec<Vec<PrefillSample>>,
    /// Repeats of each batch.
    decode: Vec<Vec<DecodeSample>>,
    /// Of single prompts that are not long, by their place in the plan: time in the engine and least time at the client,
    /// nanoseconds.
    pub(super) overhead: Vec<Option<(f64, f64)>>,
    /// The least that a request takes which no engine has a part in, nanoseconds.
    pub(super) round_trip_ns: f64,
    /// How much more it takes as a rule.
    pub(super) round_trip_more_ns: f64,
}

impl Samples {
    /// One more time of the prompt at this place of the plan.
    pub(super) fn add_prefill(&mut self, at: usize, sample: PrefillSample) {
        series(&mut self.prefill, at).push(sample);
    }

    /// One more time of the batch at this place of the plan.
    pub(super) fn add_decode(&mut self, at: usize, sample: DecodeSample) {
        series(&mut self.decode, at).push(sample);
    }

    /// Whatever disturbs a client makes it wait longer, never less.
    pub(super) fn add_overhead(&mut self, at: usize, busy_ns: f64, took_ns: f64) {
        let least = series(&mut self.overhead, at);
        if least.is_none_or(|(busy, took)| took_ns - busy_ns < took - busy) {
            *least = Some((busy_ns, took_ns));
        }
    }

    /// The means of the prompts.
    pub(super) fn prefills(&self) -> Vec<PrefillSample> {
        let merged = |all: &[PrefillSample], ns: f64, error: f64| PrefillSample {
            new_tokens: mean(all.iter().map(|one| one.new_tokens)),
            cached_tokens: mean(all.iter().map(|one| one.cached_tokens)),
            ns,
            error,
        };
        merge(&self.prefill, |one| one.ns, 0.0, merged).0
    }

    /// The means of the batches.
    pub(super) fn decodes(&self) -> Vec<DecodeSample> {
        let merged = |all: &[DecodeSample], ns: f64, error: f64| DecodeSample {
            batch: mean(all.iter().map(|one| one.batch)),
            context: mean(all.iter().map(|one| one.context)),
            ns,
            error,
        };
        // A batch that was not repeated varies as prompts do, but it is the mean of many steps.
        let (_, spread) = merge(&self.prefill, |one| one.ns, 0.0, |_, _, _| ());
        merge(&self.decode, |one| one.ns, spread / (MADE as f64).sqrt(), merged).0
    }
}

fn series<T: Default>(all: &mut Vec<T>, at: usize) -> &mut T {
    if all.len() <= at {
        all.resize_with(at + 1, T::default);
    }
    &mut all[at]
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

/// One for each series, and how much one time varies.
fn merge<T: Copy, M>(
    all: &[Vec<T>],
    ns: impl Fn(&T) -> f64,
    guess: f64,
    merged: impl Fn(&[T], f64, f64) -> M,
) -> (Vec<M>, f64) {
    let all: Vec<&Vec<T>> = all.iter().filter(|series| !series.is_empty()).collect();
    let times: Vec<Vec<f64>> = all.iter().map(|series| series.iter().map(&ns).collect()).collect();
    let kept = |series: &[T], keep: &[bool]| -> Vec<T> {
        series.iter().zip(keep).filter(|(_, keep)| **keep).map(|(one, _)| *one).collect()
    };
    let (means, spread) = means(&times, guess);
    let each = all.iter().zip(means);
    (each.map(|(series, Mean { ns, keep, error })| merged(&kept(series, &keep), ns, error)).collect(), spread)
}
