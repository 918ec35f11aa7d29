//! The access log: one line per request in the log, when the request is over.
//!
//! A line is put together in one buffer and written by one call, so lines of different threads do not mix. Whatever
//! comes from a client or a worker is bounded in length and escaped, so it can neither end a line nor begin a field.
//! The log's level is `info`: where nothing of that level is logged, there are no lines.

mod line;
mod time;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::AccessLog;
use crate::log;
use line::Line;

/// The usual length of a line, so that its buffer is allocated once.
const USUAL_LENGTH: usize = 1024;

/// What there is to say about a request. What is `None` is left out.
#[derive(Debug, Default, Clone)]
pub(crate) struct Record<'a> {
    pub(crate) request_id: &'a [u8],
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    pub(crate) model: Option<&'a str>,
    pub(crate) streaming: bool,
    pub(crate) status: Option<u16>,
    /// The router's own code, or empty.
    pub(crate) error_code: &'static str,
    /// How it ended.
    pub(crate) end: &'static str,
    pub(crate) attempts: u32,
    /// Of the last try: that of the leg that answers.
    pub(crate) decision: Option<Decision<'a>>,
    /// That of the prefill leg, if there was one.
    pub(crate) prefill: Option<Decision<'a>>,
    /// The leg of a pair that failed last, and its worker; a try that came after it may have gone well.
    pub(crate) failed: Option<(&'static str, &'a str)>,
    /// As the router estimated.
    pub(crate) estimated_prompt_tokens: Option<u64>,
    /// As the engine told.
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
    pub(crate) queue_ns: Option<u64>,
    /// From arrival, as the duration is.
    pub(crate) first_token_ns: Option<u64>,
    pub(crate) duration_ns: u64,
    /// Of the answer's body: the worker's, as far as it was passed on, or the router's own.
    pub(crate) bytes: u64,
}

/// Where a request went, and why.
#[derive(Debug, Clone)]
pub(crate) struct Decision<'a> {
    pub(crate) worker: &'a str,
    pub(crate) policy: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) matched: Option<Matched>,
}

/// What the prefix index said, where the policy looks at one.
#[derive(Debug, Clone)]
pub(crate) struct Matched {
    pub(crate) chars: u64,
    pub(crate) prompt_chars: u64,
    pub(crate) predicted_tokens: u64,
}

/// As much of a foreign text as a line takes.
pub(crate) fn excerpt(text: &str) -> Box<str> {
    // At least as much: the line cuts by bytes.
    text.chars().take(line::MAX_VALUE + 1).collect::<String>().into()
}

/// A time in milliseconds since 1970 as RFC 3339 in UTC.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let mut out = Vec::new();
    time::push_rfc3339(&mut out, unix_ms);
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether lines are wanted now.
pub(crate) fn is_on(form: AccessLog) -> bool {
    form != AccessLog::Off && tracing::enabled!(tracing::Level::INFO)
}

/// Writes the line of a request that is over.
pub(crate) fn write(form: AccessLog, record: &Record<'_>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let line = record.line(form == AccessLog::Json, unix_ms);
    log::write(&line);
}

impl Record<'_> {
    /// The line, with its end.
    fn line(&self, json: bool, unix_ms: u64) -> Vec<u8> {
        let out = Vec::with_capacity(USUAL_LENGTH);
        let mut line = if json { Line::json(out, unix_ms) } else { Line::text(out, unix_ms) };
        line.foreign("request_id", self.request_id);
        line.word("method", self.method);
        line.foreign("path", self.path.as_bytes());
        line.some(self.model, |line, model| line.foreign("model", model.as_bytes()));
        line.flag("stream", self.streaming);
        line.some(self.status, |line, status| line.number("status", u64::from(status)));
        if !self.error_code.is_empty() {
            line.word("error_code", self.error_code);
        }
        line.word("end", self.end);
        line.number("attempts", u64::from(self.attempts));
        let keys = if self.prefill.is_some() { Keys::DECODE } else { Keys::WHOLE };
        line.some(self.decision.as_ref(), |line, decision| decision.put(&keys, line));
        line.some(self.prefill.as_ref(), |line, decision| decision.put(&Keys::PREFILL, line));
        line.some(self.failed, |line, (leg, worker)| {
            line.word("failed_leg", leg);
            line.foreign("failed_worker", worker.as_bytes());
        });
        for (key, count) in [
            ("estimated_prompt_tokens", self.estimated_prompt_tokens),
            ("prompt_tokens", self.prompt_tokens),
            ("cached_tokens", self.cached_tokens),
            ("output_tokens", self.output_tokens),
        ] {
            line.some(count, |line, count| line.number(key, count));
        }
        line.some(self.queue_ns, |line, time| line.millis("queue_ms", time));
        line.some(self.first_token_ns, |line, time| line.millis("ttft_ms", time));
        line.millis("duration_ms", self.duration_ns);
        line.number("bytes", self.bytes);
        line.end()
    }
}

/// What the parts of a decision are called.
struct Keys {
    worker: &'static str,
    policy: &'static str,
    reason: &'static str,
    matched: [&'static str; 3],
}

impl Keys {
    const WHOLE: Self = Self {
        worker: "worker",
        policy: "policy",
        reason: "reason",
        matched: ["matched_chars", "prompt_chars", "predicted_cached_tokens"],
    };
    /// What decode workers have of a prompt is not what engines tell as cached.
    const DECODE: Self = Self {
        matched: ["decode_matched_chars", "decode_prompt_chars", "decode_predicted_cached_tokens"],
        ..Self::WHOLE
    };
    const PREFILL: Self = Self {
        worker: "prefill_worker",
        policy: "prefill_policy",
        reason: "prefill_reason",
        matched: ["prefill_matched_chars", "prefill_prompt_chars", "prefill_predicted_cached_tokens"],
    };
}

impl Decision<'_> {
    fn put(&self, keys: &Keys, line: &mut Line) {
        line.foreign(keys.worker, self.worker.as_bytes());
        line.word(keys.policy, self.policy);
        line.word(keys.reason, self.reason);
        line.some(self.matched.as_ref(), |line, matched| {
            let values = [matched.chars, matched.prompt_chars, matched.predicted_tokens];
            keys.matched.iter().zip(values).for_each(|(key, value)| line.number(key, value));
        });
    }
}

#[cfg(test)]
mod tests;
