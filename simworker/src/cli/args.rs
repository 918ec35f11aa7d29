//! What is typed, and what it means. Flags have SGLang's names where SGLang has them.

mod cache;
mod live;
mod preset;
mod resolve;
mod schedule;
#[cfg(test)]
mod tests;
mod wire;
mod words;

use clap::{Parser, Subcommand};
use simworker_core::{EngineRole, Link, PRESETS};

use super::calibrate::CalibrateArgs;
use crate::config::BOOTSTRAP_PORT;
use crate::fault;
use cache::CacheArgs;
use live::LiveArgs;
use preset::{Chosen, PresetParser};
use schedule::ScheduleArgs;
use wire::WireArgs;
use words::{Balance, handoff, links, parse_balance, parse_interval, roles};

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

Other common flags of sglang.launch_server (--trust-remote-code, --log-level and the like) are accepted and ignored; \
those that would make another engine (--mem-fraction-static, --kv-cache-dtype, --quantization, --chat-template and the \
like) are not emulated. Both are named on standard error at the start.

Exit codes:
  0  help or version was asked for, standard input closed with --exit-with-stdin, or calibrate is done
  1  calibrate has failed
  2  wrong usage
  5  the workers could not start: a port in use, an unknown host";

/// Mock SGLang workers: real endpoints, emulated engines.
#[derive(Debug, Parser)]
#[command(name = "simworker", version, after_help = after_help(), args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// Workers in this process, each with its own port and engine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// Port of the first worker, the next ones follow; 0 takes free ports.
    #[arg(long, value_name = "PORT", default_value_t = 30000)]
    port: u16,
    /// Model and hardware: a name, or a file that `simworker calibrate` has written.
    #[arg(long, value_name = "NAME", default_value = PRESETS[0].name, value_parser = PresetParser)]
    preset: Chosen,
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
    /// Exit when standard input closes.
    #[arg(long)]
    pub(super) exit_with_stdin: bool,
    #[command(flatten)]
    schedule: ScheduleArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    wire: WireArgs,
    #[command(flatten)]
    live: LiveArgs,
}

/// What else the binary does.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Calibrate(CalibrateArgs),
}
