//! What came out: the preset as a file, and how well it tells what was measured.

use std::fmt::Write;

use super::facts::Facts;
use super::fit::{Fit, decode_ns, prefill_ns};
use super::overhead::Overhead;
use super::samples::Samples;
use crate::preset_file::{Measured, PresetFile, rows as named};

/// A time of the preset, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Its key in the preset.
    pub name: &'static str,
    /// The time, nanoseconds.
    pub ns: f64,
    /// Half of an interval that has the truth in 95 of 100 cases, nanoseconds; infinite if the samples say nothing of it.
    pub half_width_ns: f64,
    /// The largest share of a sample that the half-width makes.
    effect: f64,
}

/// A figure with an interval up to this share to each side is decided.
const DECIDED: f64 = 0.10;
/// Measuring goes on until intervals are this narrow.
const AIM: f64 = 0.07;
/// So small a share of a step's time is of no use to anybody.
const NO_MATTER: f64 = 0.005;

impl Figure {
    /// Whether the samples say too little of it.
    #[must_use]
    pub fn is_undecided(&self) -> bool {
        !self.is_within(DECIDED)
    }

    fn is_within(&self, share: f64) -> bool {
        self.half_width_ns <= share * self.ns || self.effect <= NO_MATTER
    }

    fn describe(&self) -> String {
        let Self { name, ns, half_width_ns, .. } = *self;
        let interval = match (half_width_ns.is_finite(), ns > 0.0) {
            (false, _) => "not measured".into(),
            (true, true) => format!("± {:.1} %", half_width_ns / ns * 100.0),
            (true, false) => format!("± {half_width_ns:.0}"),
        };
        let undecided = if self.is_undecided() { "undecided, " } else { "" };
        format!("{name:<24} {ns:>14.1} {undecided}{interval}")
    }
}

/// The step times with their intervals.
fn figures(fit: &Fit) -> impl Iterator<Item = Figure> + '_ {
    named(&fit.steps).into_iter().zip(fit.half_widths).zip(fit.shares).map(
        |(((name, ns), half_width_ns), share)| {
            let effect = if half_width_ns.is_finite() { half_width_ns * share } else { f64::INFINITY };
            Figure { name, ns, half_width_ns, effect }
        },
    )
}

/// Whether all that can be known is known well enough.
pub(super) fn is_known(fit: &Fit) -> bool {
    figures(fit).all(|figure| figure.half_width_ns.is_infinite() || figure.is_within(AIM))
}

/// A measured worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The preset.
    pub file: PresetFile,
    /// How far the preset is off, over all samples.
    pub residual: Residual,
    /// Its times, and how well they are known.
    pub figures: Vec<Figure>,
    /// What the preset does not know, in sentences.
    pub notes: Vec<String>,
    /// Each sample: what it is, measured and predicted, in milliseconds.
    rows: Vec<(String, f64, f64)>,
}

/// Relative errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// Mean of all.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
}

impl Calibration {
    pub(super) fn new(
        facts: Facts,
        fit: &Fit,
        samples: &Samples,
        overhead: Overhead,
        notes: Vec<String>,
    ) -> Self {
        let (prefills, decodes) = (samples.prefills(), samples.decodes());
        let prefill = prefills.iter().map(|sample| {
            let what = format!("prefill {:.0} on {:.0}", sample.new_tokens, sample.cached_tokens);
            (what, sample.ns / 1e6, prefill_ns(&fit.steps, sample) / 1e6)
        });
        let decode = decodes.iter().map(|sample| {
            let what = format!("decode {:.0} × {:.0}", sample.batch, sample.context / sample.batch);
            (what, sample.ns / 1e6, decode_ns(&fit.steps, sample) / 1e6)
        });
        let rows: Vec<(String, f64, f64)> = prefill.chain(decode).collect();
        let errors: Vec<f64> =
            rows.iter().map(|(_, measured, predicted)| (predicted / measured - 1.0).abs()).collect();
        let residual = Residual {
            mean: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            worst: errors.iter().copied().fold(0.0, f64::max),
        };
        let Facts { model, gpu, gpus, kv_tokens, page_size, context_len, .. } = facts;
        let measured = Measured {
            model,
            gpu,
            gpus,
            kv_tokens,
            page_size,
            context_len,
            weight_bytes: facts.weight_bytes.round(),
            kv_bytes_per_token: facts.kv_bytes_per_token.round(),
            request_overhead_ns: overhead.ns as u64,
            steps: fit.steps,
        };
        let Overhead { ns, half_width_ns } = overhead;
        let of_request = Figure { name: "request_overhead_ns", ns, half_width_ns, effect: f64::INFINITY };
        let figures = figures(fit).chain((half_width_ns > 0.0).then_some(of_request)).collect();
        Self { file: PresetFile { preset: measured }, residual, figures, notes, rows }
    }

    /// The text of the preset's file.
    #[must_use]
    pub fn toml(&self) -> String {
        let Residual { mean, worst } = self.residual;
        let mut text = String::from("# Written by simworker calibrate; for simworker --preset.\n");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "# Residual error of the step times: mean {:.2} %, worst {:.2} %.",
            mean * 100.0,
            worst * 100.0
        );
        for line in self.intervals().lines() {
            let _ = writeln!(text, "# {line}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "# {note}");
        }
        text + &toml::to_string(&self.file).expect("plain data with string keys always serialises")
    }

    /// The samples, measured and predicted.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<24} {:>12} {:>12} {:>8}\n", "sample", "measured ms", "preset ms", "error");
        for (what, measured, predicted) in &self.rows {
            let error = (predicted / measured - 1.0) * 100.0;
            let _ = writeln!(text, "{what:<24} {measured:>12.3} {predicted:>12.3} {error:>7.2}%");
        }
        let Residual { mean, worst } = self.residual;
        let _ = writeln!(
            text,
            "residual error of the step times: mean {:.2} %, worst {:.2} %; the overhead of a request is no part of it",
            mean * 100.0,
            worst * 100.0
        );
        text + &self.intervals()
    }

    /// A line for each figure: its value and its interval.
    fn intervals(&self) -> String {
        let mut text = String::from("Each figure in ns, with an interval for 95 of 100 cases:");
        for figure in &self.figures {
            let _ = write!(text, "\n{}", figure.describe());
        }
        text
    }
}
