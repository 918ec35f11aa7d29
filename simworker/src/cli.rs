//! The command line. What is typed becomes a [`HostConfig`]; flags have SGLang's names where SGLang has them.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::ExitCode;

use clap::Parser;
use simworker_core::cache::Eviction;
use simworker_core::{EngineConfig, PRESETS, Pace, Preset, Schedule, preset};

use crate::config::{HostConfig, WorkerConfig};
use crate::host::{Host, StartError};

/// Wrong usage.
const EXIT_USAGE: u8 = 2;
/// The workers could not start.
const EXIT_START: u8 = 5;

/// Mock SGLang workers: real endpoints, emulated engines.
#[derive(Debug, Parser)]
#[command(name = "simworker", version)]
struct Args {
    /// Workers in this process, each with its own port and engine.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port of the first worker, the next ones follow; 0 takes free ports.
    #[arg(long, default_value_t = 30000)]
    port: u16,
    /// Model and hardware.
    #[arg(long, default_value = "a100-80g-llama3-8b", value_parser = parse_preset)]
    preset: &'static Preset,
    /// KV capacity in tokens [default: the preset's].
    #[arg(long, alias = "max-total-tokens")]
    kv_tokens: Option<u64>,
    /// Tokens per KV page.
    #[arg(long, default_value_t = 1)]
    page_size: u32,
    /// Order of the waiting requests: fcfs, lpm.
    #[arg(long, default_value = "fcfs", value_parser = parse_schedule)]
    schedule_policy: Schedule,
    /// Most tokens of a prefill step; -1 never cuts a prompt.
    #[arg(long, default_value_t = 8192, allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    chunked_prefill_size: i64,
    /// Tokens after which a prefill step takes no further request.
    #[arg(long, default_value_t = 16384)]
    max_prefill_tokens: u32,
    /// Most requests that run at once [default: by KV and context, as SGLang does].
    #[arg(long)]
    max_running_requests: Option<u32>,
    /// Most requests that wait [default: no limit].
    #[arg(long)]
    max_queued_requests: Option<u32>,
    /// Which cached tokens go first: lru, lfu, slru, priority.
    #[arg(long, default_value = "lru", value_parser = parse_eviction)]
    radix_eviction_policy: Eviction,
    /// Nothing is ever found in the cache.
    #[arg(long)]
    disable_radix_cache: bool,
    /// The results of a step are known when it ends, not one step later.
    #[arg(long)]
    disable_overlap_schedule: bool,
    /// Context length in tokens [default: the preset's].
    #[arg(long)]
    context_length: Option<u32>,
    /// Reservation for unfinished output at admission.
    #[arg(long, default_value_t = 1.0)]
    schedule_conservativeness: f64,
    /// Tokens per frame of a stream.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    stream_interval: u32,
    /// /generate streams deltas instead of the whole text so far.
    #[arg(long, alias = "stream-output")]
    incremental_streaming_output: bool,
    /// The OpenAI routes report cached tokens.
    #[arg(long)]
    enable_cache_report: bool,
    /// /health runs a generation, as current engines do, instead of answering at once.
    #[arg(long)]
    health_generation: bool,
    /// Serve /get_load only, as older engines do, and not /v1/loads.
    #[arg(long)]
    legacy_loads: bool,
    /// Engine seconds per real second.
    #[arg(long, default_value_t = 1.0, value_parser = parse_speed)]
    speed: f64,
    /// Engine time from a request's arrival to its place in the queue.
    #[arg(long, default_value = "3ms", value_parser = parse_duration)]
    request_overhead: u64,
    /// Name the model is served under [default: the preset's model].
    #[arg(long)]
    served_model_name: Option<String>,
    /// Exit when standard input closes.
    #[arg(long)]
    exit_with_stdin: bool,
}

/// Runs the binary with these arguments, the first of which is the program's name. Returns when the process is to end.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let host = match args.resolve().and_then(|config| Ok(Host::start(&config)?)) {
        Ok(host) => host,
        Err(StartFailure { message, code }) => {
            eprintln!("simworker: {message}");
            return ExitCode::from(code);
        }
    };
    let urls: Vec<String> = host.urls().collect();
    let mut stdout = std::io::stdout();
    let line = serde_json::json!({ "listening": urls });
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        // Whoever started this is gone.
        return ExitCode::from(EXIT_START);
    }
    wait(args.exit_with_stdin);
    drop(host);
    ExitCode::SUCCESS
}

fn wait(exit_with_stdin: bool) {
    if exit_with_stdin {
        // What comes is of no interest, and an error is an end like any other.
        let _ = std::io::copy(&mut std::io::stdin().lock().by_ref(), &mut std::io::sink());
        return;
    }
    loop {
        std::thread::park();
    }
}

/// One clear line for wrong usage; help and version are no errors.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A closed standard output is the reader's choice.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let line: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    eprintln!("simworker: {}", line.join(" ").trim_start_matches("error: "));
    ExitCode::from(EXIT_USAGE)
}

/// Why the workers do not start, and the exit code of it.
struct StartFailure {
    message: String,
    code: u8,
}

impl From<StartError> for StartFailure {
    fn from(error: StartError) -> Self {
        let code = if matches!(error, StartError::Config(_)) { EXIT_USAGE } else { EXIT_START };
        Self { message: error.to_string(), code }
    }
}

impl Args {
    fn resolve(&self) -> Result<HostConfig, StartFailure> {
        let last = u32::from(self.port) + self.workers - 1;
        if self.port != 0 && last > u32::from(u16::MAX) {
            let message = format!("--port {} leaves no ports for --workers {}", self.port, self.workers);
            return Err(StartFailure { message, code: EXIT_USAGE });
        }
        Ok(HostConfig {
            workers: self.workers,
            host: self.host.clone(),
            port: self.port,
            speed: self.speed,
            worker: WorkerConfig {
                engine: self.engine(),
                preset: self.preset,
                served_model_name: self
                    .served_model_name
                    .clone()
                    .unwrap_or_else(|| self.preset.model.name.to_owned()),
                stream_interval: self.stream_interval,
                incremental_streaming_output: self.incremental_streaming_output,
                enable_cache_report: self.enable_cache_report,
                health_generation: self.health_generation,
                legacy_loads: self.legacy_loads,
                request_overhead_ns: self.request_overhead,
            },
        })
    }

    fn engine(&self) -> EngineConfig {
        let chosen = Preset {
            kv_tokens: self.kv_tokens.unwrap_or(self.preset.kv_tokens),
            // The default for the running limit divides by the context; 0 is refused with its own message.
            context_len: self.context_length.unwrap_or(self.preset.context_len).max(1),
            ..*self.preset
        };
        let defaults = EngineConfig::of(&chosen);
        EngineConfig {
            page_size: self.page_size,
            schedule: self.schedule_policy,
            eviction: self.radix_eviction_policy,
            disable_prefix_cache: self.disable_radix_cache,
            chunked_prefill: u32::try_from(self.chunked_prefill_size).ok(),
            max_prefill_tokens: self.max_prefill_tokens,
            max_running: self.max_running_requests.unwrap_or(defaults.max_running),
            max_queued: self.max_queued_requests,
            conservativeness: self.schedule_conservativeness,
            overlap: !self.disable_overlap_schedule,
            // Every token is delivered when it is made.
            pace: Pace::Step,
            ..defaults
        }
    }
}

fn parse_preset(name: &str) -> Result<&'static Preset, String> {
    preset(name).ok_or_else(|| {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        format!("known are {}", known.join(", "))
    })
}

fn parse_schedule(word: &str) -> Result<Schedule, String> {
    Schedule::from_label(word).ok_or_else(|| one_of(&Schedule::ALL.map(Schedule::label)))
}

fn parse_eviction(word: &str) -> Result<Eviction, String> {
    Eviction::from_label(word).ok_or_else(|| one_of(&Eviction::ALL.map(Eviction::label)))
}

fn one_of(words: &[&str]) -> String {
    format!("known are {}", words.join(", "))
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    if (1e-3..=1e4).contains(&speed) { Ok(speed) } else { Err("it must be between 0.001 and 10000".into()) }
}

/// A duration such as `3ms` or `0.2s`, in nanoseconds.
fn parse_duration(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_ns = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("a number and a unit are needed, such as 3ms (ns, us, ms, s)".into()),
    };
    let ns = number.trim().parse::<f64>().map_or(f64::NAN, |number| number * unit_ns);
    if (0.0..=3.6e12).contains(&ns) {
        Ok(ns.round() as u64)
    } else {
        Err("it must be between 0s and 3600s".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("simworker").chain(flags.split_whitespace()))
    }

    #[test]
    fn durations() {
        let cases = [("3ms", Ok(3_000_000)), ("0.2s", Ok(200_000_000)), ("5 us", Ok(5000)), ("0s", Ok(0))];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
        for text in ["3", "ms", "-1ms", "2h", "1e99s", ""] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flags_become_a_configuration() {
        let args = parse("--workers 3 --kv-tokens 5000 --page-size 16 --schedule-policy lpm --chunked-prefill-size -1 --speed 50")
            .unwrap();
        let Ok(config) = args.resolve() else { panic!("these are possible values") };
        assert_eq!((config.workers, config.speed), (3, 50.0));
        let engine = config.worker.engine;
        assert_eq!((engine.kv_tokens, engine.page_size, engine.chunked_prefill), (5000, 16, None));
        assert_eq!((engine.schedule, engine.pace, engine.max_running), (Schedule::Lpm, Pace::Step, 2048));
        assert_eq!(config.worker.request_overhead_ns, 3_000_000);
    }

    #[test]
    fn wrong_flags_name_themselves() {
        let cases = [
            ("--workers 0", "--workers"),
            ("--preset h900", "a100-80g-llama3-8b"),
            ("--schedule-policy sjf", "--schedule-policy"),
            ("--speed 0", "--speed"),
            ("--request-overhead 3", "--request-overhead"),
            ("--stream-interval 0", "--stream-interval"),
            ("--wrokers 2", "--wrokers"),
        ];
        for (flags, word) in cases {
            let message = parse(flags).expect_err(flags).to_string();
            assert!(message.contains(word), "{flags}: {message}");
        }
    }

    #[test]
    fn ports_must_fit() {
        assert!(parse("--port 65535 --workers 2").unwrap().resolve().is_err());
        assert!(parse("--port 65534 --workers 2").unwrap().resolve().is_ok());
        assert!(parse("--port 0 --workers 2").unwrap().resolve().is_ok());
    }
}
