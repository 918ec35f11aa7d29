//! Flags about what clients see.

use clap::Args;

use super::words::{compats, default_streams};
use crate::config::{Compat, Health, Http2Config, WireConfig};

#[derive(Debug, Args)]
#[command(next_help_heading = "What clients see")]
pub(super) struct WireArgs {
    /// Tokens per frame of a stream.
    #[arg(long, value_name = "TOKENS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) stream_interval: u32,
    /// /generate streams deltas instead of the whole text so far.
    #[arg(long, alias = "stream-output")]
    pub(in crate::cli) incremental_streaming_output: bool,
    /// The OpenAI routes report cached tokens.
    #[arg(long)]
    pub(in crate::cli) enable_cache_report: bool,
    /// Serve /metrics.
    #[arg(long)]
    pub(in crate::cli) enable_metrics: bool,
    /// /health answers at once, and /health_generate when a token is there. Without this flag both generate and look
    /// for a token once a second, as SGLang does, so that they take a second.
    #[arg(long)]
    pub(in crate::cli) health_at_once: bool,
    /// Which engines the routes are those of: current (SGLang 0.5.23), or older (/v1/loads with `aggregate`,
    /// /get_load, KV events as arrays).
    #[arg(long, value_name = "ENGINES", default_value = Compat::Current.label(), value_parser = compats())]
    pub(in crate::cli) compat: Compat,
    /// The key that clients must send as a bearer token, on all routes but /health, /ready and /metrics.
    #[arg(long, value_name = "KEY")]
    pub(in crate::cli) api_key: Option<String>,
    /// The key that they must send on the routes that manage the worker, such as /flush_cache.
    #[arg(long, value_name = "KEY")]
    pub(in crate::cli) admin_api_key: Option<String>,
    /// Also speak HTTP/2 without TLS, to clients that begin with it.
    #[arg(long)]
    pub(in crate::cli) enable_http2: bool,
    /// Most requests at once on a connection with HTTP/2.
    #[arg(long, value_name = "N", default_value_t = default_streams(), value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) http2_max_concurrent_streams: u32,
    /// Cut prompts that are too long instead of refusing them.
    #[arg(long)]
    pub(in crate::cli) allow_auto_truncate: bool,
    /// The model makes vectors: /v1/embeddings, /v1/rerank, /v1/classify and /encode.
    #[arg(long)]
    pub(in crate::cli) is_embedding: bool,
    /// Streams of the OpenAI routes tell the usage also when nobody asks for it.
    #[arg(long)]
    pub(in crate::cli) stream_response_default_include_usage: bool,
    /// Shown in /model_info; nothing is read [default: --model-path].
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) tokenizer_path: Option<String>,
    /// Shown in /model_info; nothing is loaded.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(in crate::cli) load_format: String,
    /// Shown in /server_info; times and KV are those of --preset [default: the preset's GPUs].
    #[arg(long, aliases = ["tensor-parallel-size", "tp"], value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) tp_size: Option<u32>,
    /// Shown in /model_info; nothing is parsed.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) reasoning_parser: Option<String>,
    /// Shown in /model_info; nothing is parsed.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) tool_call_parser: Option<String>,
    /// Name or path of the model, as /model_info shows it [default: the preset's model].
    #[arg(long, alias = "model", value_name = "NAME")]
    pub(in crate::cli) model_path: Option<String>,
    /// Name the model is served under [default: --model-path].
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) served_model_name: Option<String>,
}

/// An empty key is none, as in SGLang.
fn key(typed: Option<&String>) -> Option<String> {
    typed.filter(|key| !key.is_empty()).cloned()
}

impl WireArgs {
    /// What was typed, resolved. A worker that answers without an engine has none to wait for.
    pub(in crate::cli) fn resolve(&self, is_instant: bool, default_priority: Option<i64>) -> WireConfig {
        let at_once = self.health_at_once || is_instant;
        let http2 = Http2Config { max_concurrent_streams: self.http2_max_concurrent_streams };
        WireConfig {
            compat: self.compat,
            health: if at_once { Health::AtOnce } else { Health::Generation },
            enable_metrics: self.enable_metrics,
            api_key: key(self.api_key.as_ref()),
            admin_api_key: key(self.admin_api_key.as_ref()),
            http2: self.enable_http2.then_some(http2),
            allow_auto_truncate: self.allow_auto_truncate,
            is_embedding: self.is_embedding,
            stream_include_usage: self.stream_response_default_include_usage,
            default_priority,
            tokenizer_path: self.tokenizer_path.clone(),
            load_format: self.load_format.clone(),
            tp_size: self.tp_size,
            reasoning_parser: self.reasoning_parser.clone(),
            tool_call_parser: self.tool_call_parser.clone(),
        }
    }
}
