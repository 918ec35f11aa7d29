//! `simworker calibrate`: measures a live SGLang-compatible worker and writes a preset that behaves like it.
//!
//! Step times are read from the worker's own counters where it has them (`total_prefill_busy_us` and
//! `decode_moments` of `/v1/loads`), so that a slow network or a busy client does not blur them; what the client
//! waits beyond them is the overhead of a request. Workers without these counters are timed from outside, and then
//! that overhead is a part of the fixed cost of a prefill step.
//!
//! | file | idea |
//! |---|---|
//! | [`client`] | calls to the worker |
//! | [`facts`] | what it says about itself |
//! | [`plan`], [`probe`] | what is asked of it, and how often |
//! | [`samples`], [`robust`] | repeats, and means of them |
//! | [`fit`], [`linear`] | from times to the cost model, with intervals |
//! | [`report`] | the file and the tables |
//!
//! Steps of a real engine vary. So all is asked in rounds, until each figure is known to a few per cent, the formula fits
//! no better, or time is up; a figure that is not known then is called undecided.

mod client;
mod facts;
mod fit;
mod linear;
mod overhead;
mod plan;
mod probe;
mod report;
mod robust;
mod samples;

use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

pub use report::{Calibration, Figure, Residual};

use client::Client;
use facts::Facts;
use fit::Fit;
use plan::Plan;
use probe::Probe;
use samples::Samples;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Target {
    /// Such as `http://host:30000`. A path in it stands before every route.
    pub url: String,
    /// The key of the worker, if it wants one.
    pub api_key: Option<String>,
    /// How long measuring may take. Probes that would begin in its last fifth are left out.
    pub limit: Duration,
    /// Makes the prompts differ from run to run.
    pub seed: u64,
}

/// Why there is no preset.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum CalibrateError {
    #[error("{0} is no URL of a worker; give one such as http://127.0.0.1:30000, without a query")]
    Url(String),
    #[error("{call}: {why}; is a worker listening there?")]
    Call { call: String, why: String },
    #[error("{call}: no answer in time; raise --limit, or look whether the worker is stuck")]
    Late { call: String },
    #[error("{route} answers {status}; calibrate needs an SGLang-compatible worker{}", key_hint(*.status))]
    NotSglang { route: &'static str, status: u16 },
    #[error("/server_info has no {key} above 0; calibrate needs an SGLang-compatible worker")]
    Missing { key: &'static str },
    #[error("/server_info says that {key} is {value}; at most {most} is believed of a worker")]
    Impossible { key: &'static str, value: u64, most: u64 },
    #[error("the worker has {what} of {value} tokens; at least {least} are needed to measure it")]
    TooSmall { what: &'static str, value: u64, least: u64 },
    #[error("the worker serves other clients; calibrate needs it for itself")]
    Busy,
    #[error(
        "the counters in /v1/loads do not count the tokens that the worker computes ({counted} of {expected}); what it tells \
         of its times is of no use{}", hint_of_count(*.counted)
    )]
    Uncounted { counted: u64, expected: u64 },
    #[error(
        "the worker says that {cached} tokens of a prompt of {prompt} were cached; at least one is computed, so what it tells \
         is of no use"
    )]
    Untrue { cached: u64, prompt: u64 },
    #[error(
        "POST /generate with {requests} prompts answers {status}: {text}; calibrate needs a worker that takes batches, \
         without a low --max-queued-requests"
    )]
    Refused { status: u16, requests: usize, text: String },
    #[error(
        "the samples do not decide the step times: {prefill} prompts and {decode} batches with a time; raise --limit, or \
         look whether the worker tells true times in /v1/loads"
    )]
    Undecided { prefill: usize, decode: usize },
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

fn key_hint(status: u16) -> &'static str {
    if status == 401 { "; give its key with --api-key" } else { "" }
}

/// Measures a worker; `tell` gets a line about each step.
///
/// # Errors
/// [`CalibrateError`].
pub fn calibrate(target: &Target, tell: &mut dyn FnMut(&str)) -> Result<Calibration, CalibrateError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(measure(target, tell))
}

fn hint_of_count(counted: u64) -> &'static str {
    if counted == 0 { "; is it a mock without an engine (--instant)?" } else { "" }
}

async fn measure(target: &Target, tell: &mut dyn FnMut(&str)) -> Result<Calibration, CalibrateError> {
    let began = Instant::now();
    let client = Client::new(&target.url, target.api_key.as_deref(), began + target.limit)?;
    let mut probe = Probe::new(client, began + target.limit.mul_f64(0.8), target.seed, tell);
    let facts = probe.facts().await?;
    probe.say(&facts.describe());
    let mut samples = Samples::default();
    probe.warm_up(&facts).await?;
    probe.round_trip(&mut samples).await?;
    let (fit, round) = rounds(&mut probe, &facts, &mut samples).await?;
    let (overhead, mut notes) = if probe.has_counters() {
        overhead::of(&samples).ok_or_else(|| undecided(&samples))?
    } else {
        let note = "The worker tells no step times: the overhead of a request is in prefill_fixed_ns.";
        (overhead::Overhead::default(), vec![note.into()])
    };
    notes.extend(unknowns(&fit, round));
    Ok(Calibration::new(facts, &fit, &samples, overhead, notes))
}

/// Asks in rounds until the figures are known, or cannot be known better, and tells how many rounds it took.
async fn rounds(
    probe: &mut Probe<'_>,
    facts: &Facts,
    samples: &mut Samples,
) -> Result<(Fit, u32), CalibrateError> {
    let mut plan = Plan::of(facts);
    loop {
        probe.prefill(&plan, samples).await?;
        probe.decode(&plan, samples).await?;
        let fitted = fit::fit(&samples.prefills(), &samples.decodes(), facts.gpus);
        let is_last = probe.is_late() || !probe.has_counters() && plan.round >= MOST_TIMED_ROUNDS;
        match fitted {
            Some(fit) if is_last || report::is_known(&fit) || is_hopeless(&fit, plan.round) => {
                return Ok((fit, plan.round));
            }
            // Repeats make times where there were none only if there were some.
            None if is_last || plan.round > 1 => return Err(undecided(samples)),
            Some(_) | None => {}
        }
        plan.round += 1;
        probe.say(&format!("the steps vary: round {}", plan.round));
    }
}

fn undecided(samples: &Samples) -> CalibrateError {
    CalibrateError::Undecided { prefill: samples.prefills().len(), decode: samples.decodes().len() }
}

/// Whether the formula is so far from the samples that more of them do not help.
fn is_hopeless(fit: &Fit, rounds: u32) -> bool {
    rounds >= ENOUGH_ROUNDS && fit.reduced_chi_square > HOPELESS
}

fn unknowns(fit: &Fit, rounds: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if !fit.has_weights() {
        notes.push("No prompt was bound by the weights: they are in the fixed costs.".into());
    }
    if !fit.has_sequences() {
        notes.push("No batch was bound by compute: decode_sequence_ns is a bound from above.".into());
    }
    if is_hopeless(fit, rounds) {
        notes.push("The steps are not those of the formula; more samples would not help.".into());
    }
    notes
}

/// Squared errors of the fit by what noise explains, beyond which repeats are no remedy.
const HOPELESS: f64 = 10.0;
/// Rounds after which it is known what noise explains.
const ENOUGH_ROUNDS: u32 = 3;
/// Times from outside are blurred by more than the engine.
const MOST_TIMED_ROUNDS: u32 = 2;
