//! How long a step takes: a roofline over compute, weights, KV reads and tensor-parallel communication.
//!
//! ```text
//! prefill = t0  + max(2·P_lin·Σn / (G·F·e_c), W / (G·M·e_b)) + 4·L·H_q·d_h·Σ n(c + n/2) / (G·F·e_a) + comm(Σn)
//! decode  = t0' + max(2·P·B / (G·F·e_c),      W / (G·M·e_b)) + κ·S / (G·M·e_b)                      + comm(B)
//! mixed   = t0  + max((2·P_lin·Σn + 2·P·B) / (G·F·e_c), W / (G·M·e_b)) + 4·L·H_q·d_h·Σ n(c + n/2) / (G·F·e_a)
//!               + κ·S / (G·M·e_b) + comm(Σn + B)
//! comm(t) = 2·L·(lat + 2·(G−1)/G · t·d_model·2 / bus), nothing on one GPU
//! ```
//!
//! with n new tokens on c cached ones per request, B requests of S tokens of context together, G GPUs of F FLOP/s
//! and M B/s. Model constants follow from the published architectures, F and M are those of the data sheets; e_b and t0'
//! are set from two published decode rates at batch size 1 (8B: 144 tok/s in SGLang's documentation on an 80 GB
//! GPU, 75 tok/s with vLLM on an A100-40G), e_c, e_a and t0 are chosen. All coefficients are rounded to [`Ticks`]
//! once, so every duration after that is integer arithmetic.

mod steps;

pub use steps::StepTimes;

use crate::time::Ticks;

/// Share of the peak FLOP/s that linear layers reach (e_c).
const COMPUTE_EFFICIENCY: f64 = 0.60;
/// Share of the peak FLOP/s that attention over the prompt reaches (e_a).
const ATTENTION_EFFICIENCY: f64 = 0.50;
/// Share of the peak memory bandwidth that is reached (e_b).
const BANDWIDTH_EFFICIENCY: f64 = 0.80;
/// Fixed cost of a prefill step in seconds (t0).
const PREFILL_OVERHEAD_S: f64 = 4e-3;
/// Fixed cost of a decode step in seconds (t0').
const DECODE_OVERHEAD_S: f64 = 1.3e-3;
/// Latency of one all-reduce in seconds.
const COLLECTIVE_LATENCY_S: f64 = 12e-6;
/// Bandwidth of an all-reduce between GPUs of one node in bytes per second.
const COLLECTIVE_BANDWIDTH: f64 = 370e9;
/// Bytes of one number in bf16.
const BF16_BYTES: f64 = 2.0;

/// What a model asks of the hardware.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelSpec {
    /// The name that workers report.
    pub name: &'static str,
    /// Parameters in linear layers, without embedding and output head (P_lin).
    pub linear_parameters: f64,
    /// The same with the output head (P), which every decoded token passes.
    pub decode_parameters: f64,
    /// Bytes of weights read in a step (W).
    pub weight_bytes: f64,
    /// Layers (L).
    pub layers: f64,
    /// Query heads (H_q).
    pub query_heads: f64,
    /// Numbers in a head (d_h).
    pub head_dim: f64,
    /// Width of the hidden state (d_model).
    pub hidden: f64,
    /// Bytes of KV per token over the whole model (κ).
    pub kv_bytes_per_token: f64,
}

/// What one GPU offers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuSpec {
    /// The name that workers report.
    pub name: &'static str,
    /// Peak FLOP/s in bf16 (F).
    pub flops: f64,
    /// Peak memory bandwidth in bytes per second (M).
    pub bandwidth: f64,
}

/// The durations of prefill and decode steps of one model on one or more GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel {
    prefill_fixed: Ticks,
    prefill_token: Ticks,
    attention_half_pair: Ticks,
    decode_fixed: Ticks,
    decode_sequence: Ticks,
    decode_context_token: Ticks,
    weights: Ticks,
    comm_fixed: Ticks,
    comm_token: Ticks,
}

impl CostModel {
    /// The cost model of `model`, spread over `gpus` of `gpu` by tensor parallelism.
    #[must_use]
    pub const fn new(model: &ModelSpec, gpu: &GpuSpec, gpus: u32) -> Self {
        let g = gpus as f64;
        let compute = g * gpu.flops * COMPUTE_EFFICIENCY;
        let attention = g * gpu.flops * ATTENTION_EFFICIENCY;
        let memory = g * gpu.bandwidth * BANDWIDTH_EFFICIENCY;
        let collectives = if gpus > 1 { 2.0 * model.layers } else { 0.0 };
        let sent_per_token = 2.0 * (g - 1.0) / g * model.hidden * BF16_BYTES;
        Self {
            prefill_fixed: Ticks::from_seconds(PREFILL_OVERHEAD_S),
            prefill_token: Ticks::from_seconds(2.0 * model.linear_parameters / compute),
            attention_half_pair: Ticks::from_seconds(
                4.0 * model.layers * model.query_heads * model.head_dim / 2.0 / attention,
            ),
            decode_fixed: Ticks::from_seconds(DECODE_OVERHEAD_S),
            decode_sequence: Ticks::from_seconds(2.0 * model.decode_parameters / compute),
            decode_context_token: Ticks::from_seconds(model.kv_bytes_per_token / memory),
            weights: Ticks::from_seconds(model.weight_bytes / memory),
            comm_fixed: Ticks::from_seconds(collectives * COLLECTIVE_LATENCY_S),
            comm_token: Ticks::from_seconds(collectives * sent_per_token / COLLECTIVE_BANDWIDTH),
        }
    }

    /// How long a prefill step over `work` takes.
    #[must_use]
    pub fn prefill(&self, work: PrefillWork) -> Ticks {
        self.prefill_fixed
            + (self.prefill_token * work.new_tokens).max(self.weights)
            + self.attention_half_pair * work.half_pairs
            + self.comm(work.new_tokens)
    }

    /// How long a prefill step over `work` takes in which `batch` running requests with `context` tokens together make a
    /// token each: the fixed part of a prefill step once, the linear layers over all tokens, attention over the prompts and
    /// the KV of the running requests one after the other.
    #[must_use]
    pub fn mixed(&self, work: PrefillWork, batch: u64, context: u64) -> Ticks {
        self.prefill_fixed
            + (self.prefill_token * work.new_tokens + self.decode_sequence * batch).max(self.weights)
            + self.attention_half_pair * work.half_pairs
            + self.decode_context_token * context
            + self.comm(work.new_tokens + batch)
    }

    /// How long a decode step of `batch` requests with `context` tokens together takes, the tokens being decoded
    /// included.
    #[must_use]
    pub fn decode(&self, batch: u64, context: u64) -> Ticks {
        self.decode_fixed
            + (self.decode_sequence * batch).max(self.weights)
            + self.decode_context_token * context
            + self.comm(batch)
    }

    /// A model whose steps take `factor` times as long. Each coefficient is rounded, so that sums stay exact.
    #[must_use]
    pub(crate) fn slowed(&self, factor: f64) -> Self {
        let slowed = |ticks: Ticks| ticks.scaled(factor);
        Self {
            prefill_fixed: slowed(self.prefill_fixed),
            prefill_token: slowed(self.prefill_token),
            attention_half_pair: slowed(self.attention_half_pair),
            decode_fixed: slowed(self.decode_fixed),
            decode_sequence: slowed(self.decode_sequence),
            decode_context_token: slowed(self.decode_context_token),
            weights: slowed(self.weights),
            comm_fixed: slowed(self.comm_fixed),
            comm_token: slowed(self.comm_token),
        }
    }

    /// The sum of `steps` decode steps in a row, the first with `context` tokens, each with `batch` more than the
    /// one before: exactly what adding up [`CostModel::decode`] gives.
    #[must_use]
    pub fn decode_stretch(&self, batch: u64, context: u64, steps: u64) -> Ticks {
        let pairs = steps * steps.saturating_sub(1) / 2;
        self.decode(batch, context) * steps + self.decode_context_token * batch * pairs
    }

    fn comm(&self, tokens: u64) -> Ticks {
        self.comm_fixed + self.comm_token * tokens
    }
}

/// The sums over a prefill batch that its duration depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefillWork {
    new_tokens: u64,
    /// Σ n·(2c + n): twice the pairs of tokens that attend to each other, so that it stays whole.
    half_pairs: u64,
    /// Tokens that come from the host.
    loaded: u64,
}

impl PrefillWork {
    /// Adds a request that computes `new` tokens on top of `cached` ones.
    pub fn add(&mut self, new: u64, cached: u64) {
        self.new_tokens += new;
        self.half_pairs += new * (2 * cached + new);
    }

    /// Adds tokens that come from the host.
    pub fn load(&mut self, tokens: u64) {
        self.loaded += tokens;
    }

    /// Tokens that come from the host.
    #[must_use]
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// Tokens to compute.
    #[must_use]
    pub fn new_tokens(&self) -> u64 {
        self.new_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::PRESETS;

    /// What the formula above gives by hand, in ms: decode 1×1k, 32×1k, 128×2k, 256×1k; prefill 512, 2048, 4 × 2048, 144 on 2048.
    const TABLE: [(&str, [f64; 8]); 5] = [
        ("a100-80g-llama3-8b", [10.576, 13.067, 32.127, 42.383, 42.622, 163.773, 643.092, 15.764]),
        ("h100-80g-llama3-8b", [6.946, 8.462, 19.417, 20.291, 16.184, 54.404, 205.614, 9.921]),
        ("h200-llama3-8b", [5.240, 6.299, 13.944, 16.509, 16.184, 54.404, 205.614, 8.230]),
        ("h100-tp4-llama3-70b", [16.228, 17.505, 25.372, 28.757, 41.087, 148.671, 576.925, 20.821]),
        ("h100-tp8-llama3-70b", [9.731, 10.589, 15.203, 17.802, 27.131, 91.806, 349.463, 14.391]),
    ];

    fn prefill(requests: &[(u64, u64)]) -> PrefillWork {
        let mut work = PrefillWork::default();
        for (new, cached) in requests {
            work.add(*new, *cached);
        }
        work
    }

    #[test]
    fn every_preset_gives_what_its_formula_says() {
        assert_eq!(
            TABLE.map(|row| row.0).to_vec(),
            PRESETS.iter().map(|p| p.name).collect::<Vec<_>>(),
            "each preset has a row"
        );
        for ((name, expected), preset) in TABLE.iter().zip(PRESETS) {
            let cost = preset.cost;
            let got = [
                cost.decode(1, 1000),
                cost.decode(32, 32_000),
                cost.decode(128, 256_000),
                cost.decode(256, 256_000),
                cost.prefill(prefill(&[(512, 0)])),
                cost.prefill(prefill(&[(2048, 0)])),
                cost.prefill(prefill(&[(2048, 0); 4])),
                cost.prefill(prefill(&[(144, 2048)])),
            ];
            for (column, (got, expected)) in got.iter().zip(expected).enumerate() {
                let got_ms = got.ns() as f64 / 1e6;
                assert!(
                    (got_ms / expected - 1.0).abs() < 1e-3,
                    "{name} column {column}: {got_ms} ≠ {expected}"
                );
            }
        }
    }

    #[test]
    fn a_stretch_is_the_sum_of_its_steps() {
        for preset in PRESETS {
            let mut sum = Ticks::ZERO;
            for steps in 0..300 {
                assert_eq!(preset.cost.decode_stretch(37, 9_001, steps), sum);
                sum += preset.cost.decode(37, 9_001 + 37 * steps);
            }
        }
    }
}
