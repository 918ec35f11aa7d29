//! Settings about time as it passes.

/// What a worker adds to the engine's own times, and what it says about them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiveConfig {
    /// Engine time that the front end, one for all requests, takes for each frame of a stream; nanoseconds. It delays
    /// frames and bounds their rate.
    pub token_overhead_ns: u64,
    /// Steps last up to this share more or less than the cost model says, 0 to 0.9.
    pub jitter: f64,
    /// Decides by how much.
    pub jitter_seed: u64,
    /// The process says on standard error when it is too slow for its own engine time. It is in the metrics in any case.
    pub tells_lag: bool,
}

impl Default for LiveConfig {
    fn default() -> Self {
        Self { token_overhead_ns: 0, jitter: 0.0, jitter_seed: 0, tells_lag: false }
    }
}
