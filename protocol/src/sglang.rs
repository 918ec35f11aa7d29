//! Response bodies of SGLang's own routes.

use serde::Serialize;

/// The answer to `/generate`, whole or one frame of its stream.
#[derive(Debug, Clone, Serialize)]
pub struct Generated<'a> {
    /// The text: all of it so far, or the new part with incremental streaming.
    pub text: &'a str,
    /// The token ids of `text`.
    pub output_ids: &'a [u32],
    /// Everything else.
    pub meta_info: MetaInfo<'a>,
    /// The tokens of the prompt, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<&'a [u32]>,
    /// Which prompt of a batch; only in streams of batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// `meta_info` of an answer.
#[derive(Debug, Clone, Serialize)]
pub struct MetaInfo<'a> {
    /// The request's id.
    pub id: &'a str,
    /// Why it ended; `null` before the last frame.
    pub finish_reason: Option<FinishReason<'a>>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// The version of the weights.
    pub weight_version: &'static str,
    /// How often the request was retracted.
    pub num_retractions: u32,
    /// What the scheduler says about time; only with `--enable-metrics`.
    #[serde(flatten)]
    pub scheduled: Option<SchedulerTimes>,
    /// Output tokens that were reasoning.
    pub reasoning_tokens: u32,
    /// Output tokens so far.
    pub completion_tokens: u32,
    /// Prompt tokens served from the cache.
    pub cached_tokens: u32,
    /// The same by tier.
    pub cached_tokens_details: CachedTokensDetails,
    /// The data-parallel rank that served it.
    pub dp_rank: u32,
    /// Log-probabilities, where they were asked for.
    #[serde(flatten)]
    pub logprobs: Option<LogProbs>,
    /// Seconds from arrival to the end; only in the last frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_latency: Option<f64>,
    /// What the front end says about time; only in the last frame, and with `--enable-metrics`.
    #[serde(flatten)]
    pub served: Option<FrontEndTimes>,
    /// When the frame was handed to HTTP, seconds since the epoch.
    pub response_sent_to_client_ts: f64,
}

/// Times of a request in the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SchedulerTimes {
    /// When it was first scheduled, seconds since the epoch.
    pub forward_entry_time: f64,
    /// When its prefill was complete, seconds since the epoch.
    pub prefill_finished_time: f64,
    /// Seconds in the queue.
    pub queue_time: f64,
}

/// Times of a request in the front end, known at its end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FrontEndTimes {
    /// When it arrived, seconds since the epoch.
    pub request_received_ts: f64,
    /// Seconds from there to its first token.
    pub first_token_latency: f64,
    /// When it had been handed to the scheduler, seconds since the epoch.
    pub api_server_dispatch_finish_ts: f64,
    /// When its end was known, seconds since the epoch.
    pub request_finished_ts: f64,
    /// Output tokens per second after the first; none without a second token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode_throughput: Option<f64>,
}

/// The logarithm of a token's probability, the token, and its text, which is only there when it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogProb(pub Option<f64>, pub u32, pub Option<String>);

/// Log-probabilities of a prompt and of a reply, token by token. The first token of what is told of a prompt has none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogProbs {
    /// Of the prompt, from `logprob_start_len` on.
    pub input_token_logprobs: Vec<LogProb>,
    /// Of the reply.
    pub output_token_logprobs: Vec<LogProb>,
    /// How many tokens the reply has so far.
    pub output_token_logprobs_length: usize,
    /// The best alternatives at each place of the prompt (`top_logprobs_num`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_top_logprobs: Option<Vec<Option<Vec<LogProb>>>>,
    /// The same for the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_top_logprobs: Option<Vec<Option<Vec<LogProb>>>>,
    /// Given tokens at each place of the prompt (`token_ids_logprob`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_token_ids_logprobs: Option<Vec<Option<Vec<LogProb>>>>,
    /// The same for the reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_token_ids_logprobs: Option<Vec<Option<Vec<LogProb>>>>,
}

/// Cached prompt tokens by tier.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CachedTokensDetails {
    /// On the GPU.
    pub device: u32,
    /// In host memory.
    pub host: u32,
}

/// Why a request ended.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FinishReason<'a> {
    /// A stop token or a stop string.
    Stop {
        /// The token or the string.
        matched: Matched<'a>,
    },
    /// The output budget is used up.
    Length {
        /// Output tokens.
        length: u32,
    },
    /// Aborted by a client, or by the engine with a status.
    Abort {
        /// Why.
        message: &'a str,
        /// The HTTP status that a whole answer has.
        status_code: Option<u16>,
        /// The kind of error.
        err_type: Option<&'a str>,
    },
}

/// What ended a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Matched<'a> {
    /// A stop token, or the end of the text.
    Token(u32),
    /// A stop string.
    Text(&'a str),
}

/// The error body of `/generate`.
#[derive(Debug, Clone, Serialize)]
pub struct NativeError<'a> {
    /// The error.
    pub error: NativeErrorMessage<'a>,
}

/// The inner part of [`NativeError`].
#[derive(Debug, Clone, Serialize)]
pub struct NativeErrorMessage<'a> {
    /// What is wrong.
    pub message: &'a str,
}

/// An error after a stream of `/generate` has begun.
#[derive(Debug, Clone, Serialize)]
pub struct StreamError<'a> {
    /// The error.
    pub error: StreamErrorMessage<'a>,
}

/// The inner part of [`StreamError`].
#[derive(Debug, Clone, Serialize)]
pub struct StreamErrorMessage<'a> {
    /// What is wrong.
    pub message: &'a str,
    /// `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The status it would have had.
    pub code: u16,
    /// Whether trying again may help.
    pub retryable: bool,
}

/// The answer to `/model_info`.
#[derive(Debug, Clone, Serialize)]
pub struct ModelInfo<'a> {
    /// Where the weights are.
    pub model_path: &'a str,
    /// The name the model is served under.
    pub served_model_name: &'a str,
    /// Where the tokenizer is.
    pub tokenizer_path: &'a str,
    /// True for language models.
    pub is_generation: bool,
    /// Sampling defaults of the model.
    pub preferred_sampling_params: Option<()>,
    /// The version of the weights.
    pub weight_version: &'static str,
    /// How the weights were loaded.
    pub load_format: &'a str,
    /// The reasoning parser.
    pub reasoning_parser: Option<&'a str>,
    /// The tool call parser.
    pub tool_call_parser: Option<&'a str>,
    /// `null` (the word) on a regular worker.
    pub disaggregation_mode: &'static str,
    /// Whether images are understood.
    pub has_image_understanding: bool,
    /// Whether audio is understood.
    pub has_audio_understanding: bool,
    /// The architecture family.
    pub model_type: &'static str,
    /// The architecture classes.
    pub architectures: &'static [&'static str],
}
