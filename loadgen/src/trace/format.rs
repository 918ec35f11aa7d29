//! The formats and what is known about each without reading it.

/// A format of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Mooncake's JSON lines.
    Mooncake,
    /// The Azure LLM inference traces of 2023 and 2024, CSV.
    Azure,
    /// BurstGPT, CSV.
    BurstGpt,
    /// The Qwen-Bailian usage traces, JSON lines.
    Bailian,
    /// ShareGPT's conversations, JSON.
    ShareGpt,
    /// aiperf's relaxation of Mooncake's form, JSON lines.
    Aiperf,
    /// The agentic coding traces of Weka's kv-cache-tester, JSON.
    Weka,
    /// What `router --record-trace` writes, JSON lines.
    Router,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] = [
        Self::Mooncake,
        Self::Azure,
        Self::BurstGpt,
        Self::Bailian,
        Self::ShareGpt,
        Self::Aiperf,
        Self::Weka,
        Self::Router,
    ];

    /// The word used in files and on the command line.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Azure => "azure",
            Self::BurstGpt => "burstgpt",
            Self::Bailian => "bailian",
            Self::ShareGpt => "sharegpt",
            Self::Aiperf => "aiperf",
            Self::Weka => "weka",
            Self::Router => "router",
        }
    }

    /// What a file of this format looks like.
    #[must_use]
    pub fn looks(self) -> &'static str {
        match self {
            Self::Mooncake => "JSON lines with timestamp (ms), input_length, output_length and hash_ids",
            Self::Azure => "CSV with TIMESTAMP, ContextTokens and GeneratedTokens",
            Self::BurstGpt => "CSV with Timestamp (s), Request tokens and Response tokens",
            Self::Bailian => "JSON lines with chat_id, parent_chat_id, timestamp (s) and hash_ids",
            Self::ShareGpt => "JSON conversations of messages",
            Self::Aiperf => "JSON lines with input_length, text_input or messages, the rest as it may be",
            Self::Weka => "JSON objects of one conversation each, with block_size and requests",
            Self::Router => "JSON lines, the first with router_trace: a recording of the router",
        }
    }

    /// What the rows are that are no requests and are left out, if there can be such.
    #[must_use]
    pub fn left_out(self) -> &'static str {
        match self {
            Self::BurstGpt => "failed requests (no response tokens)",
            Self::ShareGpt => "conversations without a reply",
            Self::Weka => "conversations without a request",
            Self::Router => "requests that were refused or failed, or whose prompt is missing",
            _ => "rows",
        }
    }
}
