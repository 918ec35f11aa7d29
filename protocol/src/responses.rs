//! Bodies of the Responses API, as SGLang writes them for replies of text.

use serde::Serialize;

/// A response; also what its first and last events carry.
#[derive(Debug, Clone, Serialize)]
pub struct Response<'a> {
    /// Its id, which is that of the request in the engine.
    pub id: &'a str,
    /// `response`.
    pub object: &'static str,
    /// When the request came, seconds since the epoch.
    pub created_at: u64,
    /// The model.
    pub model: &'a str,
    /// The reply, once it is there.
    pub output: Vec<Message<'a>>,
    /// How far it is.
    pub status: Status,
    /// Token counts, once it has ended.
    pub usage: Option<ResponseUsage>,
    /// Always true.
    pub parallel_tool_calls: bool,
    /// `auto`: no tools are called.
    pub tool_choice: &'static str,
    /// None are told.
    pub tools: [(); 0],
    /// Why it failed.
    pub error: Option<ResponseError<'a>>,
    /// Why it is incomplete.
    pub incomplete_details: Option<IncompleteDetails>,
    /// As in the request.
    pub instructions: Option<&'a str>,
    /// As in the request.
    pub max_output_tokens: Option<i64>,
    /// As in the request.
    pub previous_response_id: Option<&'a str>,
    /// Whether it can be asked for again.
    pub store: bool,
}

/// How far a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is being made.
    InProgress,
    /// It ended by itself.
    Completed,
    /// Its budget was used up.
    Incomplete,
    /// It was not made, or not to its end.
    Failed,
    /// A client has cancelled it.
    Cancelled,
}

impl Status {
    /// The word in JSON, which is also the end of an event's name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl<'a> Response<'a> {
    /// A response without anything in it yet.
    #[must_use]
    pub fn new(id: &'a str, created_at: u64, model: &'a str) -> Self {
        Self {
            id,
            object: "response",
            created_at,
            model,
            output: Vec::new(),
            status: Status::InProgress,
            usage: None,
            parallel_tool_calls: true,
            tool_choice: "auto",
            tools: [],
            error: None,
            incomplete_details: None,
            instructions: None,
            max_output_tokens: None,
            previous_response_id: None,
            store: true,
        }
    }
}

/// A message of the assistant.
#[derive(Debug, Clone, Serialize)]
pub struct Message<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its text; nothing when it is announced.
    pub content: Vec<OutputText<'a>>,
    /// `assistant`.
    pub role: &'static str,
    /// How far it is.
    pub status: Status,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `final_answer`.
    pub phase: &'static str,
}

impl<'a> Message<'a> {
    /// A message that has begun, or with its text.
    #[must_use]
    pub fn new(id: &'a str, text: Option<&'a str>) -> Self {
        Self {
            id,
            content: text.map(OutputText::new).into_iter().collect(),
            role: "assistant",
            status: if text.is_some() { Status::Completed } else { Status::InProgress },
            kind: "message",
            phase: "final_answer",
        }
    }
}

/// A piece of text in a message.
#[derive(Debug, Clone, Serialize)]
pub struct OutputText<'a> {
    /// There are none.
    pub annotations: [(); 0],
    /// The text.
    pub text: &'a str,
    /// `output_text`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// There are none.
    pub logprobs: Option<()>,
}

impl<'a> OutputText<'a> {
    /// With this text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { annotations: [], text, kind: "output_text", logprobs: None }
    }
}

/// Token counts of a response.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ResponseUsage {
    /// Tokens of the prompt.
    pub input_tokens: u32,
    /// More about them.
    pub input_tokens_details: InputDetails,
    /// Tokens of the reply.
    pub output_tokens: u32,
    /// More about them.
    pub output_tokens_details: OutputDetails,
    /// Both together.
    pub total_tokens: u32,
}

impl ResponseUsage {
    /// Of a prompt, of whose tokens some came from the cache, and of a reply.
    #[must_use]
    pub fn new(input_tokens: u32, cached_tokens: u32, output_tokens: u32) -> Self {
        Self {
            input_tokens,
            input_tokens_details: InputDetails { cached_tokens, cache_write_tokens: 0 },
            output_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens: 0 },
            total_tokens: input_tokens + output_tokens,
        }
    }
}

/// More about the tokens of a prompt.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct InputDetails {
    /// Served from the cache, where that is reported.
    pub cached_tokens: u32,
    /// Always 0.
    pub cache_write_tokens: u32,
}

/// More about the tokens of a reply.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OutputDetails {
    /// Always 0.
    pub reasoning_tokens: u32,
}

/// Why a response failed.
#[derive(Debug, Clone, Serialize)]
pub struct ResponseError<'a> {
    /// `server_error`.
    pub code: &'static str,
    /// What happened.
    pub message: &'a str,
}

/// Why a response is incomplete.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct IncompleteDetails {
    /// `max_output_tokens`.
    pub reason: &'static str,
}
