//! What is typed, and what it means. Flags have SGLang's names where SGLang has them.

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::duration;
use simworker_core::cache::Eviction;
use simworker_core::{EngineConfig, PRESETS, Pace, Preset, Schedule, preset};

use crate::config::{HostConfig, Mode, WatchConfig, WorkerConfig};
use crate::fault::{self, Assigned};

/// What follows the list of flags.
fn after_help() -> String {
    format!("{FAULTS}{}\n{AFTER_HELP}", fault::help())
}

const FAULTS: &str = "\
Faults, for --fault and for the control port:
";

const AFTER_HELP: &str = "\
Options of faults: times=N (only the next N requests), probability=P (0 to 1), path=PREFIX (requests of any method \
whose path begins like this; without it, requests with POST or PUT), and for status also retry-after=TEXT and \
body=TEXT, which must be the last. They follow the value: --fault status=503,times=2,retry-after=1,path=/generate. \
Several faults combine; of two with the same effect the first one that still applies counts.

The control port speaks JSON: GET /workers; GET (?since=SEQ) and DELETE /workers/I/seen; GET, PUT (all), PATCH (by \
key, null takes away) and DELETE /workers/I/faults with bodies such as {\"status\": {\"value\": 503, \"times\": 2}}; \
POST /workers/I/restart (?down=DURATION).

Other common flags of sglang.launch_server that change nothing a client sees (--tp-size, --mem-fraction-static, \
--trust-remote-code, --log-level and the like) are accepted and ignored with a warning.

Exit codes:
  0  help or version was asked for, or standard input closed with --exit-with-stdin
  2  wrong usage
  5  the workers could not start: a port in use, an unknown host";

/// Mock SGLang workers: real endpoints, emulated engines.
#[derive(Debug, Parser)]
#[command(name = "simworker", version, after_help = after_help())]
pub(super) struct Args {
    /// Workers in this process, each with its own port and engine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// Port of the first worker, the next ones follow; 0 takes free ports.
    #[arg(long, value_name = "PORT", default_value_t = 30000)]
    port: u16,
    /// Model and hardware.
    #[arg(long, value_name = "NAME", default_value = PRESETS[0].name, value_parser = presets())]
    preset: &'static Preset,
    /// KV capacity in tokens [default: the preset's].
    #[arg(long, alias = "max-total-tokens", value_name = "TOKENS")]
    kv_tokens: Option<u64>,
    /// Tokens per KV page.
    #[arg(long, value_name = "TOKENS", default_value_t = defaults().page_size)]
    page_size: u32,
    /// Order of the waiting requests.
    #[arg(long, value_name = "POLICY", default_value = defaults().schedule.label(), value_parser = schedules())]
    schedule_policy: Schedule,
    /// Most tokens of a prefill step; -1 never cuts a prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = default_chunk(), allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    chunked_prefill_size: i64,
    /// Under lpm: share what a half computed prompt has so far before the queue is ordered, as SGLang does, so that
    /// requests with its prefix go first for the part that is there and compute the rest again. Without this flag it
    /// is shared after, and they wait for the whole prefix.
    #[arg(long)]
    share_chunks_first: bool,
    /// Tokens after which a prefill step takes no further request.
    #[arg(long, value_name = "TOKENS", default_value_t = defaults().max_prefill_tokens)]
    max_prefill_tokens: u32,
    /// Most requests that run at once [default: by KV and context, as SGLang does].
    #[arg(long, value_name = "N")]
    max_running_requests: Option<u32>,
    /// Most requests that wait [default: no limit].
    #[arg(long, value_name = "N")]
    max_queued_requests: Option<u32>,
    /// Which cached tokens go first.
    #[arg(long, value_name = "POLICY", default_value = defaults().eviction.label(), value_parser = evictions())]
    radix_eviction_policy: Eviction,
    /// Nothing is ever found in the cache.
    #[arg(long)]
    disable_radix_cache: bool,
    /// The results of a step are known when it ends, not one step later.
    #[arg(long)]
    disable_overlap_schedule: bool,
    /// Context length in tokens [default: the preset's].
    #[arg(long, value_name = "TOKENS")]
    context_length: Option<u32>,
    /// Reservation for unfinished output at admission.
    #[arg(long, value_name = "FACTOR", default_value_t = defaults().conservativeness)]
    schedule_conservativeness: f64,
    /// Tokens per frame of a stream.
    #[arg(long, value_name = "TOKENS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    stream_interval: u32,
    /// /generate streams deltas instead of the whole text so far.
    #[arg(long, alias = "stream-output")]
    incremental_streaming_output: bool,
    /// The OpenAI routes report cached tokens.
    #[arg(long)]
    enable_cache_report: bool,
    /// Accepted for SGLang's sake: /metrics is always there.
    #[arg(long)]
    enable_metrics: bool,
    /// /health runs a generation, as SGLang does by default since 0.5; without this flag it answers at once
    /// (/health_generate always generates).
    #[arg(long)]
    health_generation: bool,
    /// Serve /get_load only, as older engines do, and not /v1/loads.
    #[arg(long)]
    legacy_loads: bool,
    /// Engine seconds per real second, 0.001 to 10000.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_speed)]
    speed: f64,
    /// Engine time from a request's arrival to its place in the queue.
    #[arg(long = "request-overhead", value_name = "DURATION", default_value = "3ms", value_parser = parse_overhead)]
    request_overhead_ns: u64,
    /// Name or path of the model, as /model_info shows it [default: the preset's model].
    #[arg(long, alias = "model", value_name = "NAME")]
    model_path: Option<String>,
    /// Name the model is served under [default: --model-path].
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Data-parallel ranks of a worker; there is one.
    #[arg(long, aliases = ["data-parallel-size", "dp"], value_name = "N", default_value_t = 1, value_parser = parse_ranks)]
    dp_size: u32,
    /// Answer at once from canned replies, without engines; flags about engines then show in the info routes only.
    #[arg(long)]
    instant: bool,
    /// With --instant: milliseconds from one chunk of a stream to the next; fractions are allowed.
    #[arg(long = "instant-interval-ms", value_name = "MS", default_value = "0", requires = "instant",
        allow_negative_numbers = true, value_parser = parse_interval)]
    instant_interval_ns: u64,
    /// Something that goes wrong from the start, as KEY=VALUE or, on one worker counted from 0, INDEX:KEY=VALUE; may
    /// be repeated. See below.
    #[arg(long, value_name = "[INDEX:]KEY=VALUE", value_parser = Assigned::parse)]
    fault: Vec<Assigned>,
    /// Decides which requests a fault with a probability hits.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    fault_seed: u64,
    /// Port of the control API, which shows what workers saw and sets faults; 0 takes a free one. It is in the line
    /// that is printed at the start.
    #[arg(long, value_name = "PORT")]
    control_port: Option<u16>,
    /// Address of the control API, which has no authentication.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", requires = "control_port")]
    control_host: String,
    /// Exit when standard input closes.
    #[arg(long)]
    pub(super) exit_with_stdin: bool,
}

/// The one home of an engine's defaults.
fn defaults() -> EngineConfig {
    EngineConfig::of(&PRESETS[0])
}

fn default_chunk() -> i64 {
    defaults().chunked_prefill.map_or(-1, i64::from)
}

fn presets() -> impl TypedValueParser<Value = &'static Preset> {
    one_of(PRESETS.iter().map(|preset| preset.name), preset)
}

fn schedules() -> impl TypedValueParser<Value = Schedule> {
    one_of(Schedule::ALL.iter().map(|schedule| schedule.label()), Schedule::from_label)
}

fn evictions() -> impl TypedValueParser<Value = Eviction> {
    one_of(Eviction::ALL.iter().map(|eviction| eviction.label()), Eviction::from_label)
}

/// Takes one of these words, lists them in the help and in the message for any other.
fn one_of<T: Clone + Send + Sync + 'static>(
    words: impl Iterator<Item = &'static str>,
    read: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(move |word| read(&word).ok_or("an unknown word"))
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "a number is needed".to_owned())?;
    if (1e-3..=1e4).contains(&speed) { Ok(speed) } else { Err("it must be between 0.001 and 10000".into()) }
}

/// Longest `--request-overhead`: an hour.
const MOST_OVERHEAD_NS: u64 = 3_600_000_000_000;

fn parse_overhead(text: &str) -> Result<u64, String> {
    match duration::parse_ns(text) {
        Ok(ns) if ns <= MOST_OVERHEAD_NS => Ok(ns),
        Ok(_) => Err("it must be between 0s and 1h".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Nanoseconds of a number of milliseconds.
fn parse_interval(text: &str) -> Result<u64, String> {
    let ms: f64 = text.parse().map_err(|_| "a number of milliseconds is needed".to_owned())?;
    if (0.0..=3.6e6).contains(&ms) {
        Ok((ms * 1e6) as u64)
    } else {
        Err("it must be between 0 and 3600000".into())
    }
}

fn parse_ranks(text: &str) -> Result<u32, &'static str> {
    if text == "1" { Ok(1) } else { Err("a worker is one data-parallel rank; start more with --workers") }
}

impl Args {
    /// What was typed, resolved.
    ///
    /// # Errors
    /// A combination that is wrong usage, in words.
    pub(super) fn resolve(&self) -> Result<HostConfig, String> {
        let last = u32::from(self.port) + self.workers - 1;
        if self.port != 0 && last > u32::from(u16::MAX) {
            return Err(format!(
                "--port {} leaves no ports for --workers {}; the last port is 65535",
                self.port, self.workers
            ));
        }
        Ok(HostConfig {
            workers: self.workers,
            host: self.host.clone(),
            port: self.port,
            speed: self.speed,
            worker: self.worker(),
            mode: match self.instant {
                true => Mode::Instant { interval_ns: self.instant_interval_ns },
                false => Mode::Engine,
            },
            watch: WatchConfig {
                control: self.control_port.map(|port| (self.control_host.clone(), port)),
                faults: self.fault.clone(),
                seed: self.fault_seed,
            },
        })
    }

    fn worker(&self) -> WorkerConfig {
        let model_path = self.model_path.clone().unwrap_or_else(|| self.preset.model.name.to_owned());
        WorkerConfig {
            engine: self.engine(),
            preset: self.preset,
            served_model_name: self.served_model_name.clone().unwrap_or_else(|| model_path.clone()),
            model_path,
            stream_interval: self.stream_interval,
            incremental_streaming_output: self.incremental_streaming_output,
            enable_cache_report: self.enable_cache_report,
            health_generation: self.health_generation,
            legacy_loads: self.legacy_loads,
            request_overhead_ns: self.request_overhead_ns,
        }
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
            share_chunks_first: self.share_chunks_first,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("simworker").chain(flags.split_whitespace()))
    }

    fn resolve(flags: &str) -> HostConfig {
        parse(flags).unwrap().resolve().unwrap()
    }

    #[test]
    fn flags_become_a_configuration() {
        let config = resolve(
            "--workers 3 --kv-tokens 5000 --page-size 16 --schedule-policy lpm --chunked-prefill-size -1 --speed 50 \
             --radix-eviction-policy slru --share-chunks-first --request-overhead 0.5s --preset h200-llama3-8b",
        );
        assert_eq!((config.workers, config.speed), (3, 50.0));
        let engine = config.worker.engine;
        assert_eq!((engine.kv_tokens, engine.page_size, engine.chunked_prefill), (5000, 16, None));
        assert_eq!((engine.schedule, engine.pace, engine.max_running), (Schedule::Lpm, Pace::Step, 2048));
        assert_eq!((engine.eviction, engine.share_chunks_first), (Eviction::Slru, true));
        assert_eq!(config.worker.preset.name, "h200-llama3-8b");
        assert_eq!(config.worker.request_overhead_ns, 500_000_000);
    }

    #[test]
    fn an_interval_is_typed_in_milliseconds() {
        let mode = |flags| resolve(flags).mode;
        assert_eq!(mode("--instant --instant-interval-ms 2.5"), Mode::Instant { interval_ns: 2_500_000 });
        assert_eq!(mode("--instant"), Mode::Instant { interval_ns: 0 });
        assert_eq!(mode(""), Mode::Engine);
    }

    #[test]
    fn without_flags_the_engine_has_its_own_defaults() {
        let expected = EngineConfig { pace: Pace::Step, overlap: true, ..defaults() };
        assert_eq!(resolve("").worker.engine, expected);
        assert_eq!(resolve("").worker.request_overhead_ns, 3_000_000);
    }

    #[test]
    fn the_model_is_named_by_its_path_unless_it_has_a_name() {
        let names = |flags| {
            let worker = resolve(flags).worker;
            (worker.model_path, worker.served_model_name)
        };
        let of = |path: &str, name: &str| (path.to_owned(), name.to_owned());
        let preset = PRESETS[0].model.name;
        assert_eq!(names(""), of(preset, preset));
        assert_eq!(names("--model-path org/model"), of("org/model", "org/model"));
        assert_eq!(names("--model a --served-model-name b"), of("a", "b"));
    }

    #[test]
    fn wrong_flags_name_themselves() {
        let cases = [
            ("--workers 0", "--workers"),
            ("--preset h900", "a100-80g-llama3-8b"),
            ("--schedule-policy sjf", "--schedule-policy"),
            ("--radix-eviction-policy fifo", "slru"),
            ("--speed 0", "--speed"),
            ("--request-overhead 3", "write a number and a unit"),
            ("--request-overhead 2h", "between 0s and 1h"),
            ("--stream-interval 0", "--stream-interval"),
            ("--dp-size 4", "--workers"),
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
