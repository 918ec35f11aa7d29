//! What came out: the preset as a file, and how well it tells what was measured.

use std::fmt::Write;

use super::facts::Facts;
use super::fit::{Fit, decode_ns, prefill_ns};
use super::probe::Samples;
use crate::preset_file::{Measured, PresetFile};

/// A measured worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The preset.
    pub file: PresetFile,
    /// How far the preset is off, over all samples.
    pub residual: Residual,
    /// What the preset does not know, in sentences.
    pub notes: Vec<String>,
    /// Each sample: what it is, measured and told, in milliseconds.
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
        overhead_ns: f64,
        notes: Vec<String>,
    ) -> Self {
        let prefill = samples.prefill.iter().map(|sample| {
            let what = format!("prefill {} on {}", sample.new_tokens, sample.cached_tokens);
            (what, sample.ns / 1e6, prefill_ns(&fit.steps, sample) / 1e6)
        });
        let decode = samples.decode.iter().map(|sample| {
            let what = format!("decode {:.0} × {:.0}", sample.batch, sample.context / sample.batch);
            (what, sample.ns / 1e6, decode_ns(&fit.steps, sample) / 1e6)
        });
        let rows: Vec<(String, f64, f64)> = prefill.chain(decode).collect();
        let errors: Vec<f64> = rows.iter().map(|(_, measured, told)| (told / measured - 1.0).abs()).collect();
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
            request_overhead_ns: overhead_ns.max(0.0) as u64,
            steps: fit.steps,
        };
        Self { file: PresetFile { preset: measured }, residual, notes, rows }
    }

    /// The text of the preset's file.
    #[must_use]
    pub fn toml(&self) -> String {
        let Residual { mean, worst } = self.residual;
        let mut text = String::from("# Written by simworker calibrate; for simworker --preset.\n");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# Residual error: mean {:.2} %, worst {:.2} %.", mean * 100.0, worst * 100.0);
        for note in &self.notes {
            let _ = writeln!(text, "# {note}");
        }
        text + &toml::to_string(&self.file).expect("plain data with string keys always serialises")
    }

    /// The samples, measured and told.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{:<24} {:>12} {:>12} {:>8}\n", "sample", "measured ms", "preset ms", "error");
        for (what, measured, told) in &self.rows {
            let error = (told / measured - 1.0) * 100.0;
            let _ = writeln!(text, "{what:<24} {measured:>12.3} {told:>12.3} {error:>7.2}%");
        }
        let Residual { mean, worst } = self.residual;
        let _ = write!(text, "residual error: mean {:.2} %, worst {:.2} %", mean * 100.0, worst * 100.0);
        text
    }
}
