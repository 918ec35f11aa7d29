//! One live request: a streamed `/generate`, read frame by frame.

use bytes::Bytes;
use http::uri::Uri;
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use protocol::record::RequestRecord;
use protocol::sse::Splitter;
use protocol::tokenizer::{self, Token};
use serde::Deserialize;
use serde_json::json;

use super::drive::WallClock;
use super::places::Places;
use crate::workload::PlannedRequest;

pub(super) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// A record in the making, and the gaps between its tokens.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) record: RequestRecord,
    /// `(gap, tokens)`: so many tokens came in frames whose tokens were so far apart on average.
    pub(super) gaps_ns: Vec<(u64, u64)>,
    /// How long the engine says it took until the first token.
    engine_first_ns: Option<u64>,
    /// The text that has come, where another request's prompt is to hold it.
    reply: Option<String>,
    last_frame_ns: u64,
}

/// What is also read of a frame of a reply that is kept.
#[derive(Debug, Deserialize)]
struct Said {
    #[serde(default)]
    text: String,
}

/// What is read of a frame; everything else passes by unread.
#[derive(Debug, Deserialize)]
struct Frame {
    meta_info: Option<Meta>,
    error: Option<FrameError>,
}

#[derive(Debug, Deserialize)]
struct Meta {
    prompt_tokens: u64,
    completion_tokens: u64,
    #[serde(default)]
    cached_tokens: u64,
    #[serde(default)]
    dp_rank: Option<u32>,
    /// Seconds of the engine's time from the arrival of the request to its first token; in the last frame.
    #[serde(default)]
    first_token_latency: Option<f64>,
    finish_reason: Option<FinishReason>,
}

#[derive(Debug, Deserialize)]
struct FinishReason {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
struct FrameError {
    message: String,
}

impl Answer {
    /// Nothing has come yet. `due_ns` is when it was to be sent, if that was settled; `keeps_reply`: its text is wanted.
    pub(super) fn begin(
        planned: &PlannedRequest,
        due_ns: Option<u64>,
        now_ns: u64,
        keeps_reply: bool,
    ) -> Self {
        let record = planned.record(due_ns.unwrap_or(now_ns), now_ns);
        Self {
            record,
            gaps_ns: Vec::new(),
            engine_first_ns: None,
            reply: keeps_reply.then(String::new),
            last_frame_ns: 0,
        }
    }

    /// What of the time to the first token, from the actual send, the engine did not take; where it tells.
    pub(super) fn router_ns(&self) -> Option<u64> {
        let taken_ns = self.record.first_ns?.saturating_sub(self.record.sent_ns);
        Some(taken_ns.saturating_sub(self.engine_first_ns?))
    }

    /// The tokens of the reply, if they were wanted.
    pub(super) fn take_reply(&mut self) -> Option<Vec<Token>> {
        self.reply.take().map(|text| tokenizer::encode(&text))
    }

    /// Engines that do not stream increments say again what they have said before.
    fn read_text(&mut self, data: &[u8]) {
        let Some(reply) = &mut self.reply else { return };
        let Ok(Said { text }) = serde_json::from_slice(data) else { return };
        if !reply.is_empty() && text.starts_with(reply.as_str()) {
            *reply = text;
        } else {
            reply.push_str(&text);
        }
    }

    /// Of two legs, that which computes the prompt is what the cell's policy chose.
    fn read_decision(&mut self, headers: &HeaderMap, places: &Places) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let place = |name: &str| places.of(text(name)?);
        self.record.worker = place("x-router-worker-url");
        self.record.prefill_worker = place("x-router-prefill-worker-url");
        let reason = text("x-router-prefill-reason").or(text("x-router-reason"));
        self.record.reason = reason.unwrap_or_default().to_owned();
        self.record.predicted_cached_tokens = text("x-router-predicted-tokens").and_then(|v| v.parse().ok());
    }

    fn read_tokens(&mut self, new_tokens: u64, now_ns: u64) {
        if self.record.first_ns.is_none() {
            self.record.first_ns = Some(now_ns);
        } else {
            // A frame may carry several tokens: each is given its share of the gap.
            let gap_ns = now_ns.saturating_sub(self.last_frame_ns).checked_div(new_tokens).unwrap_or(0);
            self.gaps_ns.push((gap_ns, new_tokens));
        }
        self.last_frame_ns = now_ns;
    }

    /// Takes in one frame that arrived at `now_ns`.
    fn read_frame(&mut self, data: &[u8], now_ns: u64) -> Result<(), String> {
        let frame: Frame =
            serde_json::from_slice(data).map_err(|e| format!("a frame of the stream is malformed: {e}"))?;
        if let Some(error) = frame.error {
            return Err(error.message);
        }
        self.read_text(data);
        let meta = frame.meta_info.ok_or("a frame of the stream has no meta_info")?;
        let new_tokens = meta.completion_tokens.saturating_sub(self.record.output_tokens);
        if new_tokens > 0 {
            self.read_tokens(new_tokens, now_ns);
        }
        self.record.output_tokens = meta.completion_tokens;
        self.record.prompt_tokens = meta.prompt_tokens;
        self.record.cached_tokens = meta.cached_tokens;
        let seconds = meta.first_token_latency.filter(|seconds| *seconds >= 0.0);
        self.engine_first_ns = seconds.map(|seconds| (seconds * 1e9) as u64).or(self.engine_first_ns);
        // A decode worker tells its own, and the prompt was computed elsewhere.
        self.record.rank = meta.dp_rank.filter(|_| self.record.prefill_worker.is_none());
        match meta.finish_reason {
            Some(reason) if reason.kind == "abort" => {
                Err(reason.message.unwrap_or_else(|| "the engine aborted the request".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// The body that asks for `planned`; `reply` adds the reply to an earlier request.
pub(super) fn body(planned: &PlannedRequest, reply: impl FnMut(u32, &mut Vec<Token>)) -> Bytes {
    let body = json!({
        "text": tokenizer::decode(&planned.tokens(reply)),
        "sampling_params": {"max_new_tokens": planned.output_tokens, "ignore_eos": true, "temperature": 0},
        "stream": true,
    });
    Bytes::from(body.to_string())
}

/// Sends `body` and reads its answer to the end into `answer`.
///
/// # Errors
/// What went wrong, in words fit for the record.
pub(super) async fn exchange(
    client: &HttpClient,
    target: &Uri,
    routing_key: Option<String>,
    body: Bytes,
    (clock, places): (WallClock, &Places),
    answer: &mut Answer,
) -> Result<(), String> {
    let mut request = Request::post(target.clone()).header(header::CONTENT_TYPE, "application/json");
    if let Some(key) = routing_key {
        request = request.header("x-smg-routing-key", key);
    }
    let request = request.body(Full::new(body)).map_err(|e| e.to_string())?;
    let response = client.request(request).await.map_err(|e| with_causes(&e))?;
    answer.record.status = response.status().as_u16();
    answer.read_decision(response.headers(), places);
    if !response.status().is_success() {
        let body = response.into_body().collect().await.map_err(|e| with_causes(&e))?.to_bytes();
        let start = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
        return Err(format!("status {}: {start}", answer.record.status));
    }
    read_stream(response.into_body(), clock, answer).await
}

/// A stream counts only if it had a token and ended with `[DONE]`.
async fn read_stream(mut body: Incoming, clock: WallClock, answer: &mut Answer) -> Result<(), String> {
    let mut splitter = Splitter::default();
    let mut done = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| format!("the stream broke: {}", with_causes(&e)))?;
        let Ok(bytes) = frame.into_data() else { continue };
        let now_ns = clock.now_ns();
        let mut read = Ok(());
        let cut = splitter.push(&bytes, |event| {
            if event.is_done() {
                done = true;
            } else if read.is_ok() {
                read = answer.read_frame(event.data, now_ns);
            }
        });
        cut.map_err(|e| e.to_string())?;
        read?;
    }
    match (done, answer.record.first_ns) {
        (true, Some(_)) => Ok(()),
        (true, None) => Err("the stream had no token".to_owned()),
        (false, _) => Err("the stream ended without [DONE]".to_owned()),
    }
}

/// An error with all its causes: `client error (Connect): tcp connect error: Connection refused`.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
