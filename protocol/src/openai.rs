//! Response bodies of the OpenAI routes, as SGLang writes them.

use serde::{Serialize, Serializer};

use crate::sglang::{CachedTokensDetails, Matched};

/// The `object` of a completion and of its chunks.
pub const TEXT_COMPLETION: &str = "text_completion";
/// The `object` of a chat answer.
pub const CHAT_COMPLETION: &str = "chat.completion";
/// The `object` of a chunk of a chat answer.
pub const CHAT_COMPLETION_CHUNK: &str = "chat.completion.chunk";

/// An answer or a chunk of one: they differ in `object` and in their choices.
#[derive(Debug, Clone, Serialize)]
pub struct Answer<'a, C> {
    /// The request's id.
    pub id: &'a str,
    /// What this is.
    pub object: &'static str,
    /// When the request came, seconds since the epoch.
    pub created: u64,
    /// The model that was asked for.
    pub model: &'a str,
    /// The choices; none in the chunk that carries the usage.
    pub choices: Vec<C>,
    /// Token counts, in the form of the route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageMember>,
    /// Only in whole answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// SGLang's own members, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sglext: Option<SglExt>,
}

/// What SGLang tells beyond OpenAI's members.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SglExt {
    /// Cached prompt tokens by tier.
    pub cached_tokens_details: CachedTokensDetails,
}

/// The forms in which `usage` is written. (Left out altogether: the chunks of a chat that carry none.)
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum UsageMember {
    /// `null`: the chunks of a completion that carry none.
    Null,
    /// With `null` for details that there are not.
    Full(Usage),
    /// Without such details: the last chunk of a completion.
    Brief(BriefUsage),
}

/// Token counts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Prompt and output.
    pub total_tokens: u32,
    /// Tokens of the output.
    pub completion_tokens: u32,
    /// Only with the engine's cache report on, else `null`.
    pub prompt_tokens_details: Option<PromptTokensDetails>,
    /// Output tokens that were reasoning.
    pub reasoning_tokens: u32,
    /// Only where there was reasoning, which the mock does not do.
    pub completion_tokens_details: Option<()>,
}

/// [`Usage`] without members that are `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BriefUsage {
    /// As in [`Usage`].
    pub prompt_tokens: u32,
    /// As in [`Usage`].
    pub total_tokens: u32,
    /// As in [`Usage`].
    pub completion_tokens: u32,
    /// Only with the engine's cache report on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
    /// As in [`Usage`].
    pub reasoning_tokens: u32,
}

impl From<Usage> for BriefUsage {
    fn from(usage: Usage) -> Self {
        let Usage { prompt_tokens, total_tokens, completion_tokens, .. } = usage;
        let Usage { prompt_tokens_details, reasoning_tokens, .. } = usage;
        Self { prompt_tokens, total_tokens, completion_tokens, prompt_tokens_details, reasoning_tokens }
    }
}

/// What is known of the prompt's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    /// Prompt tokens served from the cache.
    pub cached_tokens: u32,
}

/// Data about the answer's making.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Metadata {
    /// The version of the weights.
    pub weight_version: &'static str,
}

/// A choice of a completion, whole or in a chunk.
#[derive(Debug, Clone, Serialize)]
pub struct CompletionChoice<'a> {
    /// Which choice.
    pub index: u32,
    /// Its text, or the new part of it.
    pub text: &'a str,
    /// Log-probabilities, where they were asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// `stop`, `length`, `abort`, or `null` before the end.
    pub finish_reason: Option<&'static str>,
    /// The stop token or stop string that matched.
    pub matched_stop: Option<Matched<'a>>,
}

/// Log-probabilities of a completion, token by token.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CompletionLogprobs {
    /// Where each token begins, which SGLang does not know: −1.
    pub text_offset: Vec<i32>,
    /// Of each token; the first of a prompt has none.
    pub token_logprobs: Vec<Option<f64>>,
    /// The text of each token.
    pub tokens: Vec<String>,
    /// The best alternatives at each place, if there are to be any.
    pub top_logprobs: Vec<Option<TopTokens>>,
}

/// Texts of tokens and their log-probabilities, in an order of their own; an object in JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct TopTokens(pub Vec<(String, f64)>);

impl Serialize for TopTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

/// Log-probabilities of a chat answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChatLogprobs {
    /// Token by token.
    pub content: Vec<TokenLogprob>,
}

/// One token of a chat answer.
#[derive(Debug, Clone, Serialize)]
pub struct TokenLogprob {
    /// Its text.
    pub token: String,
    /// The bytes of its text.
    pub bytes: Vec<u8>,
    /// The logarithm of its probability.
    pub logprob: f64,
    /// The best alternatives to it.
    pub top_logprobs: Vec<TopLogprob>,
}

/// An alternative to a token.
#[derive(Debug, Clone, Serialize)]
pub struct TopLogprob {
    /// Its text.
    pub token: String,
    /// The bytes of its text.
    pub bytes: Vec<u8>,
    /// The logarithm of its probability.
    pub logprob: f64,
}

/// A choice of a whole chat answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChatChoice<'a> {
    /// Which choice.
    pub index: u32,
    /// The message.
    pub message: ChatMessage<'a>,
    /// Log-probabilities, where they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length`, `tool_calls` or `abort`.
    pub finish_reason: Option<&'static str>,
    /// The stop token or stop string that matched.
    pub matched_stop: Option<Matched<'a>>,
}

/// The assistant's message.
#[derive(Debug, Clone, Serialize)]
pub struct ChatMessage<'a> {
    /// `assistant`.
    pub role: &'static str,
    /// Its text.
    pub content: &'a str,
    /// Reasoning apart from the text; the mock has none.
    pub reasoning_content: Option<&'a str>,
    /// Calls of tools; left out where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<[ToolCall<'a>; 1]>,
}

/// A call of a tool, or in a stream what is new of it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ToolCall<'a> {
    /// Its id; in a stream only in the first chunk about it.
    pub id: Option<&'a str>,
    /// Which of the calls of a message.
    pub index: u32,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What is called.
    pub function: FunctionCall<'a>,
}

/// The function of a [`ToolCall`].
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FunctionCall<'a> {
    /// Its name; in a stream only in the first chunk about it.
    pub name: Option<&'a str>,
    /// JSON text, or the next piece of it.
    pub arguments: &'a str,
}

/// A choice in a chunk of a chat answer.
#[derive(Debug, Clone, Serialize)]
pub struct ChatChunkChoice<'a, D = Delta<'a>> {
    /// Which choice.
    pub index: u32,
    /// What is new: a [`Delta`] or a [`CallDelta`].
    pub delta: D,
    /// Log-probabilities, where they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length`, `tool_calls` or `abort` in the last chunk of the choice.
    pub finish_reason: Option<&'static str>,
    /// The stop token or stop string that matched.
    pub matched_stop: Option<Matched<'a>>,
}

/// What a chunk adds to a call of a tool. SGLang writes these chunks in another way than those with text: what is not
/// there is `null`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CallDelta<'a> {
    /// Always `null`.
    pub role: Option<()>,
    /// Always `null`.
    pub content: Option<()>,
    /// Always `null`.
    pub reasoning_content: Option<()>,
    /// What is new of the call.
    pub tool_calls: [ToolCall<'a>; 1],
}

/// What a chunk adds to a chat message. The default adds nothing: it is the delta of the chunk with the finish reason.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Delta<'a> {
    /// More reasoning. Always there, as `null` where there is none: clients read it without asking.
    pub reasoning_content: Option<&'a str>,
    /// `assistant`, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// More text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'a str>,
}

impl<'a> Delta<'a> {
    /// The opening of a message.
    #[must_use]
    pub fn opening() -> Self {
        Self { role: Some("assistant"), content: Some(""), reasoning_content: None }
    }

    /// More text.
    #[must_use]
    pub fn text(content: &'a str) -> Self {
        Self { content: Some(content), ..Self::default() }
    }
}

/// The error body of the OpenAI routes.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorBody<'a> {
    /// `error`.
    pub object: &'static str,
    /// What is wrong.
    pub message: &'a str,
    /// `BadRequestError`, or the status as text.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The field at fault, which SGLang never names.
    pub param: Option<()>,
    /// The HTTP status.
    pub code: u16,
}

/// The answer to `/v1/models`.
#[derive(Debug, Clone, Serialize)]
pub struct ModelList<'a> {
    /// `list`.
    pub object: &'static str,
    /// The models.
    pub data: Vec<ModelCard<'a>>,
}

/// One served model.
#[derive(Debug, Clone, Serialize)]
pub struct ModelCard<'a> {
    /// Its name.
    pub id: &'a str,
    /// `model`.
    pub object: &'static str,
    /// Seconds since the epoch.
    pub created: u64,
    /// `sglang`.
    pub owned_by: &'static str,
    /// The name it derives from.
    pub root: &'a str,
    /// The model it is an adapter of.
    pub parent: Option<&'a str>,
    /// Context length in tokens.
    pub max_model_len: u32,
}
