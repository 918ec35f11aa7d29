//! Whether an event bears output, told at a glance where that can be. The predicate that everyone shares parses JSON;
//! nearly every event of an engine is told by a look at where its text stands, and only the others are parsed.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::{memchr, memchr2, memrchr};
use protocol::output::carries_output;

/// The beginning of what a chat's event says.
static DELTA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"delta\":{"));
/// The beginning of a text of a chat: `"content":"` or `"reasoning_content":"`.
static CONTENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(CONTENT_KEY));
const CONTENT_KEY: &[u8] = b"content\":\"";
/// The beginning of a completion's text.
static TEXT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(TEXT_KEY));
const TEXT_KEY: &[u8] = b"\"text\":\"";
/// The beginning of any string that may be the type of an event of `/v1/responses`.
static RESPONSE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"response."));
/// The beginning of what an event of `/v1/responses` adds.
static ADDED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ADDED_KEY));
const ADDED_KEY: &[u8] = b",\"delta\":\"";

/// Whether an event with this data counts as a token.
pub(super) fn bears_output(data: &[u8]) -> bool {
    at_a_glance(data).unwrap_or_else(|| carries_output(data))
}

/// Whether an event counts as a token, if a glance tells.
fn at_a_glance(data: &[u8]) -> Option<bool> {
    match response_type(data) {
        Some(name) if name.ends_with(b".delta") => plainly_adds(data).then_some(true),
        Some(_) => Some(false),
        None => (plainly_speaks(data) && RESPONSE.find(data).is_none()).then_some(true),
    }
}

/// The type of an event of `/v1/responses`, if it stands first, as OpenAI sends it, or last, as SGLang does: there it
/// cannot be that of anything within the event.
fn response_type(data: &[u8]) -> Option<&[u8]> {
    let name = if let Some(rest) = data.strip_prefix(b"{\"type\":\"") {
        &rest[..memchr(b'"', rest)?]
    } else {
        let rest = data.strip_suffix(b"\"}")?;
        let (before, name) = rest.split_at(memrchr(b'"', rest)? + 1);
        before.ends_with(b",\"type\":\"").then_some(name)?
    };
    (name.starts_with(b"response.") && !name.contains(&b'\\')).then_some(name)
}

/// Whether an event of `/v1/responses` has a delta that is not empty, before anything nested. False says nothing.
fn plainly_adds(data: &[u8]) -> bool {
    ADDED.find(data).is_some_and(|at| {
        memchr2(b'{', b'[', &data[1..at]).is_none() && begins_text(&data[at + ADDED_KEY.len()..])
    })
}

/// Whether the text in an event of any other endpoint shows at once. False says nothing.
fn plainly_speaks(data: &[u8]) -> bool {
    if let Some(text) = data.strip_prefix(b"{\"text\":\"") {
        return begins_text(text);
    }
    if let Some(delta) = DELTA.find(data) {
        let delta = &data[delta..];
        return CONTENT.find_iter(delta).any(|at| begins_text(&delta[at + CONTENT_KEY.len()..]));
    }
    TEXT.find(data)
        .is_some_and(|at| data[..at].ends_with(b"\"index\":0,") && begins_text(&data[at + TEXT_KEY.len()..]))
}

/// Whether a string that begins here is not empty.
fn begins_text(rest: &[u8]) -> bool {
    rest.first().is_some_and(|byte| *byte != b'"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_engines_send_is_told_at_a_glance() {
        for data in [
            r#"{"text":" a","output_ids":[5]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"index":0,"text":"x"}]}"#,
            r#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"delta":"{"}"#,
            r#"{"content_index":0,"delta":"\"","logprobs":[],"type":"response.output_text.delta"}"#,
        ] {
            assert_eq!(at_a_glance(data.as_bytes()), Some(true), "{data}");
        }
        for data in [
            r#"{"type":"response.output_text.done","delta":"x","text":"whole"}"#,
            r#"{"response":{"delta":{"content":"x"}},"type":"response.completed"}"#,
        ] {
            assert_eq!(at_a_glance(data.as_bytes()), Some(false), "{data}");
        }
    }

    #[test]
    fn what_a_glance_might_mistake_is_parsed() {
        for data in [
            r#"{"text":"whole","type":"response.output_text.done","sequence_number":3}"#,
            r#"{"text":"whole", "type": "response.output_text.done"}"#,
            r#"{"type":"response.output_text.delta","a":{"b":0,"delta":"x"},"delta":""}"#,
            r#"{"n":1,"type":"response.x","choices":[{"delta":{"content":"x"}}]}"#,
            r#"{"type":"response.output_text\u002edelta","delta":"x"}"#,
            r#"{"text":"x","a\",\"type":"response.x.done"}"#,
        ] {
            assert_eq!(at_a_glance(data.as_bytes()), None, "{data}");
        }
    }
}
