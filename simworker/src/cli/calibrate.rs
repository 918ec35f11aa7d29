//! `simworker calibrate`: from its arguments to a file and an exit code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use protocol::duration;

use crate::calibrate::{CalibrateError, Target, calibrate};

/// The worker could not be measured.
const EXIT_FAILED: u8 = 1;
/// Wrong usage.
const EXIT_USAGE: u8 = 2;

/// Measure a live SGLang-compatible worker and write a preset that behaves like it.
///
/// It must serve nobody else meanwhile. Its prefix cache is emptied.
#[derive(Debug, Args)]
pub(super) struct CalibrateArgs {
    /// The worker, such as http://127.0.0.1:30000. A path in it stands before every route.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Where to write the preset [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The worker's API key.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// How long it may take, 1s to 1h.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_limit)]
    limit: Duration,
}

fn parse_limit(text: &str) -> Result<Duration, String> {
    let ns = duration::parse_ns(text).map_err(|error| error.to_string())?;
    let limit = Duration::from_nanos(ns);
    let is_allowed = (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&limit);
    is_allowed.then_some(limit).ok_or_else(|| "it must be between 1s and 1h".into())
}

/// Measures, writes, tells. Standard output has the preset only.
pub(super) fn run(args: &CalibrateArgs) -> ExitCode {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let target = Target { url: args.url.clone(), api_key: args.api_key.clone(), limit: args.limit, seed };
    let calibration = match calibrate(&target, &mut |line| eprintln!("simworker: {line}")) {
        Ok(calibration) => calibration,
        Err(error) => {
            eprintln!("simworker: {error}");
            let code = if matches!(error, CalibrateError::Url(_)) { EXIT_USAGE } else { EXIT_FAILED };
            return ExitCode::from(code);
        }
    };
    eprintln!("{}", calibration.table());
    for note in &calibration.notes {
        eprintln!("simworker: {note}");
    }
    let Some(out) = &args.out else {
        print!("{}", calibration.toml());
        return ExitCode::SUCCESS;
    };
    if let Err(error) = std::fs::write(out, calibration.toml()) {
        eprintln!("simworker: cannot write {}: {error}", out.display());
        return ExitCode::from(EXIT_FAILED);
    }
    eprintln!("simworker: written to {0}; start a mock of it with --preset {0}", out.display());
    ExitCode::SUCCESS
}
