//! A preset in a file of its own: what `simworker calibrate` writes and `--preset FILE.toml` reads.

use std::path::Path;

use serde::{Deserialize, Serialize};
use simworker_core::Preset;
use simworker_core::cost::{CostModel, GpuSpec, ModelSpec, StepTimes};

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetFile {
    /// Its one table.
    pub preset: Measured,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Name or path of the model.
    pub model: String,
    /// Name of the GPU.
    pub gpu: String,
    /// GPUs behind one rank.
    pub gpus: u32,
    /// KV capacity of a rank in tokens.
    pub kv_tokens: u64,
    /// Tokens per KV page.
    pub page_size: u32,
    /// Context length in tokens.
    pub context_len: u32,
    /// Bytes of weights over all GPUs.
    #[serde(default)]
    pub weight_bytes: f64,
    /// Bytes of KV per token over all GPUs.
    #[serde(default)]
    pub kv_bytes_per_token: f64,
    /// From the arrival of a request to its place in the queue, nanoseconds.
    #[serde(default)]
    pub request_overhead_ns: u64,
    /// What steps take.
    #[serde(with = "StepsForm")]
    pub steps: StepTimes,
}

/// How [`StepTimes`] are written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "StepTimes", deny_unknown_fields)]
struct StepsForm {
    prefill_fixed_ns: f64,
    prefill_token_ns: f64,
    attention_pair_ns: f64,
    weights_ns: f64,
    decode_fixed_ns: f64,
    decode_sequence_ns: f64,
    decode_context_token_ns: f64,
    #[serde(default)]
    comm_token_ns: f64,
}

impl PresetFile {
    /// Reads a file.
    ///
    /// # Errors
    /// In words: it cannot be read, or says something impossible.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the preset {shown}: {error}"))?;
        Self::parse(&text).map_err(|error| format!("the preset {shown}: {error}"))
    }

    /// Reads its text.
    ///
    /// # Errors
    /// In words: what is impossible about it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        file.preset.check()?;
        Ok(file)
    }

    /// The preset. A process has one for all its life, so its names are never freed.
    #[must_use]
    pub fn leak(&self) -> &'static Preset {
        let Measured { model, gpu, gpus, kv_tokens, context_len, .. } = &self.preset;
        let text = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let name = text(model);
        Box::leak(Box::new(Preset {
            name,
            model: ModelSpec {
                name,
                weight_bytes: self.preset.weight_bytes,
                kv_bytes_per_token: self.preset.kv_bytes_per_token,
                // The step times are given, so nothing is derived from these.
                linear_parameters: 0.0,
                decode_parameters: 0.0,
                layers: 0.0,
                query_heads: 0.0,
                head_dim: 0.0,
                hidden: 0.0,
            },
            gpu: GpuSpec { name: text(gpu), flops: 0.0, bandwidth: 0.0 },
            gpus: *gpus,
            cost: CostModel::from_steps(&self.preset.steps),
            kv_tokens: *kv_tokens,
            context_len: *context_len,
        }))
    }
}

impl Measured {
    fn check(&self) -> Result<(), String> {
        let whole = [("gpus", self.gpus), ("page_size", self.page_size), ("context_len", self.context_len)];
        if let Some((name, _)) = whole.iter().find(|(_, value)| *value == 0) {
            return Err(format!("preset.{name} must be at least 1"));
        }
        let bytes = [("weight_bytes", self.weight_bytes), ("kv_bytes_per_token", self.kv_bytes_per_token)];
        let steps = rows(&self.steps).map(|(name, value)| (format!("steps.{name}"), value));
        let all = bytes.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(steps);
        for (name, value) in all {
            // A day in a step is no step time; the bytes of a model are more.
            let most = if name.starts_with("steps") { 86_400e9 } else { 1e18 };
            if !(0.0..=most).contains(&value) {
                return Err(format!("preset.{name} is {value}; it must be between 0 and {most:e}"));
            }
        }
        Ok(())
    }
}

/// The numbers with their names.
#[must_use]
pub fn rows(steps: &StepTimes) -> [(&'static str, f64); 8] {
    [
        ("prefill_fixed_ns", steps.prefill_fixed_ns),
        ("prefill_token_ns", steps.prefill_token_ns),
        ("attention_pair_ns", steps.attention_pair_ns),
        ("weights_ns", steps.weights_ns),
        ("decode_fixed_ns", steps.decode_fixed_ns),
        ("decode_sequence_ns", steps.decode_sequence_ns),
        ("decode_context_token_ns", steps.decode_context_token_ns),
        ("comm_token_ns", steps.comm_token_ns),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [preset]
        model = "org/model"
        gpu = "GPU"
        gpus = 2
        kv_tokens = 1000
        page_size = 16
        context_len = 4096
        [preset.steps]
        prefill_fixed_ns = 1
        prefill_token_ns = 2
        attention_pair_ns = 3
        weights_ns = 4
        decode_fixed_ns = 5
        decode_sequence_ns = 6
        decode_context_token_ns = 7.5
    "#;

    #[test]
    fn a_file_is_read_as_it_is_written() {
        let file = PresetFile::parse(TEXT).unwrap();
        assert_eq!((file.preset.page_size, file.preset.steps.decode_context_token_ns), (16, 7.5));
        assert_eq!(PresetFile::parse(&toml::to_string(&file).unwrap()).unwrap(), file);
        let preset = file.leak();
        assert_eq!((preset.name, preset.gpus, preset.kv_tokens), ("org/model", 2, 1000));
        assert_eq!(preset.cost, CostModel::from_steps(&file.preset.steps));
    }

    #[test]
    fn a_wrong_file_is_told_with_the_place() {
        let error = |text: &str| PresetFile::parse(text).unwrap_err();
        assert!(error(&TEXT.replace("gpus = 2", "gpus = 0")).contains("preset.gpus"));
        assert!(error(&TEXT.replace("weights_ns = 4", "weights_ns = -4")).contains("steps.weights_ns is -4"));
        assert!(error(&TEXT.replace("weights_ns", "weights")).contains("weights"));
    }
}
