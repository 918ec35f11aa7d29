//! The process: its configuration file, its threads and its end.

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::readers::{MAX_SECONDS, seconds, whole};
use super::stop::Stop;
use crate::config::Shutdown;

#[derive(Debug, Args)]
#[command(next_help_heading = "Process")]
pub(super) struct ProcessArgs {
    /// TOML file with the same settings; a flag wins over the environment, and that over the file [default: none]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Seconds for which new requests are still served after SIGTERM or SIGINT, while /readiness says 503 already;
    /// counted inside --shutdown-grace-period-secs
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds(0.0..=MAX_SECONDS as f64))]
    shutdown_pause_secs: Duration,
    /// Seconds after SIGTERM or SIGINT by which everything has ended
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = whole(0..=MAX_SECONDS))]
    shutdown_grace_period_secs: u64,
    /// Seed of every random choice; with the same one two routers choose alike [default: drawn at each start; the log
    /// tells it]
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,
    /// Threads that move bytes [default: 2, or 1 on a single core]
    #[arg(long, value_name = "N", value_parser = whole(1_u16..=256))]
    threads: Option<u16>,
    /// Exit when standard input closes
    #[arg(long)]
    pub(super) exit_with_stdin: bool,
}

/// Threads by default, where there are as many cores.
const DEFAULT_THREADS: usize = 2;

impl ProcessArgs {
    /// Replicas that are started alike are not to choose alike: who gives no seed gets another one each time, short
    /// enough to be typed.
    pub(super) fn seed(&self) -> u64 {
        let drawn = || RandomState::new().hash_one(std::process::id()) >> 32;
        self.seed.unwrap_or_else(drawn)
    }

    pub(super) fn threads(&self) -> usize {
        let default = || std::thread::available_parallelism().map_or(1, usize::from).min(DEFAULT_THREADS);
        self.threads.map_or_else(default, usize::from)
    }

    /// Of a pause that was not `given`, a shorter grace takes what is too much.
    ///
    /// # Errors
    /// A pause in which the grace would end.
    pub(super) fn shutdown(&self, given: bool) -> Result<Shutdown, Stop> {
        let (pause, grace) = (self.shutdown_pause_secs, Duration::from_secs(self.shutdown_grace_period_secs));
        if given && pause > grace {
            let (pause, grace) = (pause.as_secs_f64(), grace.as_secs());
            let problem = format!(
                "{pause} is more than --shutdown-grace-period-secs {grace}, which it is part of; give less"
            );
            return Err(Stop::wrong("--shutdown-pause-secs", problem));
        }
        Ok(Shutdown { pause: pause.min(grace), grace })
    }
}
