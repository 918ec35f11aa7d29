//! How much is let in: size of bodies, concurrency, queue, rate.

use std::num::NonZeroU32;

use clap::Args;
use router_core::AdmissionConfig;

use super::readers::{MAX_SECONDS, NS_PER_SECOND, whole};
use super::stop::Stop;

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// Longest request body in bytes; a longer one is refused with 413
    #[arg(long, value_name = "BYTES", default_value_t = 536_870_912, value_parser = whole(1..=u64::MAX))]
    max_payload_size: u64,
    /// Requests that may run at a time, each until the end of its answer; 0 or less: any number
    #[arg(long, value_name = "N", default_value_t = -1, value_parser = whole(MIN_CONCURRENT..=i64::from(u32::MAX)))]
    max_concurrent_requests: i64,
    /// Requests that may wait for their turn; further ones are refused with 429, and 0 refuses without waiting
    #[arg(
        long,
        value_name = "N",
        default_value_t = AdmissionConfig::default().queue_size,
        value_parser = whole(0..=u32::MAX)
    )]
    queue_size: u32,
    /// Seconds that a request may wait for its turn; then it is refused with 408
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = AdmissionConfig::default().queue_timeout_ns / NS_PER_SECOND,
        value_parser = whole(0..=MAX_SECONDS)
    )]
    queue_timeout_secs: u64,
    /// Requests that may start in a second, beside the bound on those that run; 0: any number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u32::MAX))]
    rate_limit_tokens_per_second: u32,
    /// Connections of clients at a time; further ones wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = whole(1..=u32::MAX))]
    max_connections: u32,
    /// Longest head of a request in bytes; a longer one is refused with 431
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = whole(MIN_HEADER_BYTES..=MAX_HEADER_BYTES))]
    max_header_bytes: u32,
}

/// Below this the HTTP library does not work.
const MIN_HEADER_BYTES: u32 = 8192;

/// Each connection may take this much memory.
const MAX_HEADER_BYTES: u32 = 16 << 20;

/// Fewer than none: the gateway's users write -1 for any number.
const MIN_CONCURRENT: i64 = i32::MIN as i64;

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) max_payload_size: usize,
    pub(super) admission: AdmissionConfig,
    pub(super) max_connections: usize,
    pub(super) max_header_bytes: usize,
}

impl LimitArgs {
    /// # Errors
    /// A queue in which nobody may wait.
    pub(super) fn resolve(self) -> Result<Limits, Stop> {
        if self.queue_size > 0 && self.queue_timeout_secs == 0 {
            let problem = format!(
                "0 would let nobody wait in a queue of {}; give 1 or more, or --queue-size 0",
                self.queue_size
            );
            return Err(Stop::wrong("--queue-timeout-secs", problem));
        }
        let admission = AdmissionConfig {
            max_concurrent: u32::try_from(self.max_concurrent_requests).ok().and_then(NonZeroU32::new),
            queue_size: self.queue_size,
            queue_timeout_ns: self.queue_timeout_secs * NS_PER_SECOND,
            tokens_per_second: NonZeroU32::new(self.rate_limit_tokens_per_second),
        };
        let max_payload_size = usize::try_from(self.max_payload_size).unwrap_or(usize::MAX);
        Ok(Limits {
            max_payload_size,
            admission,
            max_connections: self.max_connections as usize,
            max_header_bytes: self.max_header_bytes as usize,
        })
    }
}
