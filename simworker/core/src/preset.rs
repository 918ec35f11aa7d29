//! Ready-made pairs of model and hardware, each one DP rank.

use crate::cost::{CostModel, GpuSpec, ModelSpec};

/// One DP rank: a model on one or more GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preset {
    /// The name used in scenario files and on the command line.
    pub name: &'static str,
    /// What is served.
    pub model: ModelSpec,
    /// What it runs on.
    pub gpu: GpuSpec,
    /// GPUs behind the rank (tensor parallel).
    pub gpus: u32,
    /// How long steps take.
    pub cost: CostModel,
    /// Tokens of KV that fit beside the weights with `--mem-fraction-static 0.88`. The 444,500 of an 8B model on 80 GB are
    /// what SGLang's own log prints; the others follow from the same formula, unmeasured.
    pub kv_tokens: u64,
    /// Context length of the model in tokens.
    pub context_len: u32,
}

/// Every preset there is.
pub const PRESETS: &[Preset] = &[
    rank("a100-80g-llama3-8b", LLAMA3_8B, A100_80G, 1, 444_500),
    rank("h100-80g-llama3-8b", LLAMA3_8B, H100_80G, 1, 440_000),
    rank("h200-llama3-8b", LLAMA3_8B, H200, 1, 880_000),
    rank("h100-tp4-llama3-70b", LLAMA3_70B, H100_80G, 4, 450_000),
    rank("h100-tp8-llama3-70b", LLAMA3_70B, H100_80G, 8, 1_400_000),
];

/// The preset of that name.
#[must_use]
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

const LLAMA3_8B: ModelSpec = ModelSpec {
    name: "meta-llama/Meta-Llama-3.1-8B-Instruct",
    linear_parameters: 6.98e9,
    decode_parameters: 7.5e9,
    weight_bytes: 15.0e9,
    layers: 32.0,
    query_heads: 32.0,
    head_dim: 128.0,
    hidden: 4096.0,
    kv_bytes_per_token: 131_072.0,
};

const LLAMA3_70B: ModelSpec = ModelSpec {
    name: "meta-llama/Llama-3.3-70B-Instruct",
    linear_parameters: 68.5e9,
    decode_parameters: 69.5e9,
    weight_bytes: 139e9,
    layers: 80.0,
    query_heads: 64.0,
    head_dim: 128.0,
    hidden: 8192.0,
    kv_bytes_per_token: 327_680.0,
};

const A100_80G: GpuSpec = GpuSpec { name: "NVIDIA A100-SXM4-80GB", flops: 312e12, bandwidth: 2.039e12 };
const H100_80G: GpuSpec = GpuSpec { name: "NVIDIA H100 80GB HBM3", flops: 989e12, bandwidth: 3.35e12 };
const H200: GpuSpec = GpuSpec { name: "NVIDIA H200", flops: 989e12, bandwidth: 4.8e12 };

/// Both models have this context length.
const LLAMA31_CONTEXT: u32 = 131_072;

const fn rank(name: &'static str, model: ModelSpec, gpu: GpuSpec, gpus: u32, kv_tokens: u64) -> Preset {
    let cost = CostModel::new(&model, &gpu, gpus);
    Preset { name, model, gpu, gpus, cost, kv_tokens, context_len: LLAMA31_CONTEXT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_their_own_name_only() {
        for entry in PRESETS {
            assert_eq!(preset(entry.name), Some(entry));
        }
        assert_eq!(preset("a100"), None);
    }
}
