//! How long things may take.

use std::time::Duration;

use clap::Args;

use super::readers::{MAX_SECONDS, limit, limit_or_off, whole};
use crate::config::Timeouts;

#[derive(Debug, Args)]
#[command(next_help_heading = "Time limits")]
pub(super) struct TimeoutArgs {
    /// Longest time in seconds from the arrival of a request's head to the end of its answer: 408 if the body has not
    /// come by then, 504 if the answer has not begun, and an answer under way is broken off
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = whole(1..=MAX_SECONDS))]
    request_timeout_secs: u64,
    /// Longest time in seconds to connect to a worker; 504 if no try succeeds
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = limit)]
    connect_timeout_secs: Duration,
    /// Longest time in seconds until a worker's response head; then 504; 0: no limit of its own
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = limit_or_off)]
    first_byte_timeout_secs: Limit,
    /// Longest silence in seconds of a worker within an answer, which is then broken off; 0: no limit of its own
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = limit_or_off)]
    stream_idle_timeout_secs: Limit,
    /// Longest silence in seconds of a client within its request's body; then 408; 0: no limit of its own
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = limit_or_off)]
    body_idle_timeout_secs: Limit,
    /// Longest time in seconds from the first byte of a request's head to its last; then the connection is closed
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = limit)]
    header_read_timeout_secs: Duration,
    /// Longest silence in seconds of a client between two requests; then the connection is closed
    #[arg(long, value_name = "SECONDS", default_value = "90", value_parser = limit)]
    idle_connection_timeout_secs: Duration,
}

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) timeouts: Timeouts,
    pub(super) header: Duration,
    pub(super) idle: Duration,
}

/// `None`: off. By this name, because clap takes an `Option` for a flag that may be missing.
type Limit = Option<Duration>;

impl TimeoutArgs {
    pub(super) fn resolve(self) -> Times {
        let timeouts = Timeouts {
            connect: self.connect_timeout_secs,
            first_byte: self.first_byte_timeout_secs,
            silence: self.stream_idle_timeout_secs,
            upload_silence: self.body_idle_timeout_secs,
            request: Duration::from_secs(self.request_timeout_secs),
        };
        Times { timeouts, header: self.header_read_timeout_secs, idle: self.idle_connection_timeout_secs }
    }
}
