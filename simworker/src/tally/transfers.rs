//! KV on its way from a prefill worker: SGLang's figures in its units (`compute_and_observe_kv_transfer_metrics` in
//! `req_time_stats.py`), where MB and GB are powers of two and the bytes are those of one GPU.

use crate::latency::Histogram;

/// Upper bounds of the speed, in GB per second.
const SPEEDS: &[f64] = &[0.1, 0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0];
/// Upper bounds of the time, in milliseconds.
const LATENCIES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0];
/// Upper bounds of the size, in MB.
const SIZES: &[f64] = &[1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10_000.0];

/// All transfers that were completed.
#[derive(Debug, Clone)]
pub(crate) struct Transfers {
    pub(crate) speed_gb_s: Histogram,
    pub(crate) latency_ms: Histogram,
    pub(crate) total_mb: Histogram,
}

impl Default for Transfers {
    fn default() -> Self {
        Self {
            speed_gb_s: Histogram::new(SPEEDS),
            latency_ms: Histogram::new(LATENCIES),
            total_mb: Histogram::new(SIZES),
        }
    }
}

impl Transfers {
    /// So many bytes took so long. What took no time has no speed.
    pub(crate) fn sent(&mut self, bytes: f64, span_ns: u64) {
        if span_ns == 0 {
            return;
        }
        let megabytes = bytes / f64::from(1 << 20);
        self.latency_ms.observe_value(span_ns as f64 / 1e6, 1);
        self.total_mb.observe_value(megabytes, 1);
        self.speed_gb_s.observe_value(megabytes / 1024.0 / (span_ns as f64 / 1e9), 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_the_names() {
        let mut transfers = Transfers::default();
        transfers.sent(f64::from(1 << 30), 500_000_000);
        transfers.sent(5.0, 0);
        let sums = [&transfers.speed_gb_s, &transfers.latency_ms, &transfers.total_mb].map(Histogram::sum);
        assert_eq!(sums, [2.0, 500.0, 1024.0]);
        assert_eq!(transfers.total_mb.count(), 1);
    }
}
