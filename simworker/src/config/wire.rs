//! What clients see of a worker, beyond its engine.

/// How a worker answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireConfig {
    /// Which generation of engines the routes are those of.
    pub compat: Compat,
    /// When `/health` answers.
    pub health: Health,
    /// `/metrics` is there (`--enable-metrics`).
    pub enable_metrics: bool,
    /// What clients must send as a bearer token (`--api-key`).
    pub api_key: Option<String>,
    /// What they must send on the routes that manage the worker (`--admin-api-key`).
    pub admin_api_key: Option<String>,
    /// The port also speaks HTTP/2 without TLS to clients that begin with it (`--enable-http2`).
    pub http2: Option<Http2Config>,
    /// Prompts that are too long are cut instead of refused (`--allow-auto-truncate`).
    pub allow_auto_truncate: bool,
    /// The model makes vectors and no text (`--is-embedding`).
    pub is_embedding: bool,
    /// Streams tell the usage also when nobody asks (`--stream-response-default-include-usage`).
    pub stream_include_usage: bool,
    /// The priority of requests that name none, where priorities count (`--default-priority-value`).
    pub default_priority: Option<i64>,
    /// Where the tokenizer is said to come from; none = from the model (`--tokenizer-path`).
    pub tokenizer_path: Option<String>,
    /// How the weights are said to be loaded (`--load-format`).
    pub load_format: String,
    /// GPUs that the worker is said to have; none = those of the preset (`--tp-size`).
    pub tp_size: Option<u32>,
    /// What the info routes say of `--reasoning-parser`.
    pub reasoning_parser: Option<String>,
    /// What they say of `--tool-call-parser`.
    pub tool_call_parser: Option<String>,
}

impl WireConfig {
    /// Quick and open: what tests of clients want.
    #[must_use]
    pub fn mock() -> Self {
        Self {
            compat: Compat::Current,
            health: Health::AtOnce,
            enable_metrics: true,
            api_key: None,
            admin_api_key: None,
            http2: None,
            allow_auto_truncate: false,
            is_embedding: false,
            stream_include_usage: false,
            default_priority: None,
            tokenizer_path: None,
            load_format: "auto".to_owned(),
            tp_size: None,
            reasoning_parser: None,
            tool_call_parser: None,
        }
    }
}

/// Generations of engines that clients can tell apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compat {
    /// SGLang 0.5.23.
    #[default]
    Current,
    /// Earlier ones of 0.5: `/v1/loads` with `aggregate`, `/get_load`, KV events as arrays.
    Older,
}

impl Compat {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Current, Self::Older];

    /// The word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Older => "older",
        }
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compat| compat.label() == label)
    }
}

/// When the health routes answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// `/health` at once; `/health_generate` as soon as the engine has made a token.
    AtOnce,
    /// Both when a look, one each second, has found that the engine made a token, as SGLang does.
    Generation,
}

/// HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http2Config {
    /// Most requests at once on a connection.
    pub max_concurrent_streams: u32,
}
