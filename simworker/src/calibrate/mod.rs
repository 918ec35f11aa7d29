//! `simworker calibrate`: measures a live SGLang-compatible worker and writes a preset that behaves like it.
//!
//! Step times are read from the worker's own counters where it has them (`total_prefill_busy_us` and
//! `decode_moments` of `/v1/loads`), so that a slow network or a busy client does not blur them; what the client
//! waits beyond them is the overhead of a request. Workers without these counters are timed from outside, and then
//! that overhead is a part of the fixed cost of a prefill step.

mod client;
mod facts;
mod fit;
mod probe;
mod report;

use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

pub use report::{Calibration, Residual};

use client::Client;
use probe::{Probe, Samples};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Target {
    /// Such as `http://host:30000`.
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
    #[error("{0} is no URL of a worker; give one such as http://127.0.0.1:30000")]
    Url(String),
    #[error("{call}: {why}; is a worker listening there?")]
    Call { call: String, why: String },
    #[error("{call}: no answer in time; raise --limit, or look whether the worker is stuck")]
    Late { call: String },
    #[error("{route} answers {status}; calibrate needs an SGLang-compatible worker{}", key_hint(*.status))]
    NotSglang { route: &'static str, status: u16 },
    #[error("/server_info has no {key}; calibrate needs an SGLang-compatible worker")]
    Missing { key: &'static str },
    #[error("the worker serves other clients; calibrate needs it for itself")]
    Busy,
    #[error("POST /generate answers {status}: {text}")]
    Refused { status: u16, text: String },
    #[error(
        "the samples do not decide the step times: {prefill} prompts and {decode} batches; raise --limit"
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

async fn measure(target: &Target, tell: &mut dyn FnMut(&str)) -> Result<Calibration, CalibrateError> {
    let began = Instant::now();
    let client = Client::new(&target.url, target.api_key.as_deref(), began + target.limit)?;
    let mut probe = Probe::new(client, began + target.limit.mul_f64(0.8), target.seed, tell);
    let facts = probe.facts().await?;
    probe.say(&facts.describe());
    let mut samples = Samples::default();
    probe.warm_up(&facts).await?;
    probe.prefill(&facts, &mut samples).await?;
    probe.decode(&facts, &mut samples).await?;
    let has_counters = probe.has_counters();
    let fit = fit::fit(&samples.prefill, &samples.decode, facts.gpus)
        .ok_or(CalibrateError::Undecided { prefill: samples.prefill.len(), decode: samples.decode.len() })?;
    let (overhead_ns, mut notes) = overhead(&samples, has_counters);
    notes.extend(unknowns(&fit));
    Ok(Calibration::new(facts, &fit, &samples, overhead_ns, notes))
}

/// What a client waits beyond the engine's steps, by the engine's clock, nanoseconds.
fn overhead(samples: &Samples, has_counters: bool) -> (f64, Vec<String>) {
    if !has_counters {
        let note = "The worker tells no step times: the overhead of a request is in prefill_fixed_ns.";
        return (0.0, vec![note.into()]);
    }
    // A mock at another speed has another clock than its clients.
    let Some((pace, overhead)) = fit::line(&samples.overhead) else { return (0.0, Vec::new()) };
    let is_same = (pace - 1.0).abs() < 0.05;
    let note = || format!("The engine's clock runs {:.2} times as fast as the client's.", 1.0 / pace);
    (overhead / pace, if is_same { Vec::new() } else { vec![note()] })
}

fn unknowns(fit: &fit::Fit) -> Vec<String> {
    let mut notes = Vec::new();
    if !fit.has_weights {
        notes.push("No prompt was bound by the weights: they are in the fixed costs.".into());
    }
    if !fit.has_sequences {
        notes.push("No batch was bound by compute: decode_sequence_ns is a bound from above.".into());
    }
    notes
}
