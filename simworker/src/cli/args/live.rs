//! Flags about time, and about what goes wrong.

use clap::Args;

use super::words::{parse_overhead, parse_speed};
use crate::config::LiveConfig;
use crate::fault::Assigned;

#[derive(Debug, Args)]
#[command(next_help_heading = "Time and faults")]
pub(super) struct LiveArgs {
    /// Engine seconds per real second, 0.001 to 10000.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_speed)]
    pub(in crate::cli) speed: f64,
    /// Engine time from a request's arrival to its place in the queue [default: 3ms, or that of the preset's file].
    #[arg(long = "request-overhead", value_name = "DURATION", value_parser = parse_overhead)]
    pub(in crate::cli) request_overhead_ns: Option<u64>,
    /// Engine time that a worker's front end takes for each frame of a stream: it delays frames and bounds their rate.
    /// Python front ends are said to take 50 to 100 us.
    #[arg(long = "token-overhead", value_name = "DURATION", default_value = "0s", value_parser = parse_overhead)]
    pub(in crate::cli) token_overhead_ns: u64,
    /// Steps last up to this share more or less than the cost model says, 0 to 0.9.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_jitter)]
    pub(in crate::cli) jitter: f64,
    /// Decides by how much.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(in crate::cli) jitter_seed: u64,
    /// Something that goes wrong from the start, as KEY=VALUE or, on one worker counted from 0, INDEX:KEY=VALUE; may
    /// be repeated. See below.
    #[arg(long, value_name = "[INDEX:]KEY=VALUE", value_parser = Assigned::parse)]
    pub(in crate::cli) fault: Vec<Assigned>,
    /// Decides which requests a fault with a probability hits.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(in crate::cli) fault_seed: u64,
    /// Port of the control API, which shows what workers saw and sets faults; 0 takes a free one. It is in the line
    /// that is printed at the start.
    #[arg(long, value_name = "PORT")]
    pub(in crate::cli) control_port: Option<u16>,
    /// Address of the control API, which has no authentication.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", requires = "control_port")]
    pub(in crate::cli) control_host: String,
}

impl LiveArgs {
    /// What they mean. The binary always says when it is late.
    pub(super) fn resolve(&self) -> LiveConfig {
        LiveConfig {
            token_overhead_ns: self.token_overhead_ns,
            jitter: self.jitter,
            jitter_seed: self.jitter_seed,
            tells_lag: true,
        }
    }
}

fn parse_jitter(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    if (0.0..=0.9).contains(&share) { Ok(share) } else { Err("it must be between 0 and 0.9".into()) }
}
