//! What is typed, and what it means. Flags have SGLang's names where SGLang has them.

mod resolve;
#[cfg(test)]
mod tests;
mod words;

use clap::Parser;
use simworker_core::cache::Eviction;
use simworker_core::{EngineRole, Link, PRESETS, Preset, Schedule};

use crate::config::BOOTSTRAP_PORT;
use crate::fault::{self, Assigned};
use words::{
    Balance, default_chunk, defaults, evictions, handoff, links, parse_balance, parse_interval,
    parse_overhead, parse_speed, presets, roles, schedules,
};

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
    /// Data-parallel ranks of each worker: engines behind one port.
    #[arg(long, aliases = ["data-parallel-size", "dp"], value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    dp_size: u32,
    /// The ranks of a worker step together, and share --chunked-prefill-size and --max-running-requests.
    #[arg(long)]
    enable_dp_attention: bool,
    /// Which rank gets a request that names none: auto (follow_bootstrap_room on prefill workers, else round_robin),
    /// round_robin, follow_bootstrap_room, total_requests or total_tokens.
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = parse_balance)]
    load_balance_method: Balance,
    /// What the workers do: null (all), prefill or decode.
    #[arg(long, value_name = "MODE", default_value = EngineRole::Whole.label(), value_parser = roles())]
    disaggregation_mode: EngineRole,
    /// The first P workers are prefill workers, all others decode workers.
    #[arg(long, value_name = "P", conflicts_with = "disaggregation_mode", value_parser = clap::value_parser!(u32).range(1..))]
    prefill_workers: Option<u32>,
    /// Port of the bootstrap server of the first prefill worker, the next ones follow; 0 takes free ports. On decode
    /// workers: the port for requests that name none.
    #[arg(long, value_name = "PORT", default_value_t = BOOTSTRAP_PORT)]
    disaggregation_bootstrap_port: u16,
    /// Decode workers keep KV of requests that have ended and find it again.
    #[arg(long)]
    disaggregation_decode_enable_radix_cache: bool,
    /// Tokens that decode workers keep free for each request that holds KV.
    #[arg(long, value_name = "TOKENS", default_value_t = handoff().num_reserved_decode_tokens)]
    num_reserved_decode_tokens: u32,
    /// What the KV of each prefill worker's ranks leaves through.
    #[arg(long, value_name = "LINK", default_value = "ib-400g", value_parser = links())]
    kv_link: Link,
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
