//! When does a stream begin to bear output? Not with the role chunk of a chat, an empty delta, the chunk that only ends
//! a choice, or the usage chunk; nor with an event of the Responses API that announces something, or repeats as a whole
//! what came piece by piece before. The time to the first token is the time to the first event for which
//! [`carries_output`] holds, for whoever measures it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Whether the event with this data carries output: text, token ids, reasoning or tool calls, in the form of
/// any of the four generating endpoints. Data that is no such event carries none.
#[must_use]
pub fn carries_output(data: &[u8]) -> bool {
    serde_json::from_slice::<Frame>(data).is_ok_and(|frame| frame.speaks())
}

/// An event of a stream; the first two members are those of `/generate`, the last two those of `/v1/responses`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    text: Content,
    output_ids: Content,
    choices: Vec<Choice>,
    #[serde(borrow, rename = "type")]
    kind: Kind<'a>,
    delta: Content,
}

impl Frame<'_> {
    fn speaks(&self) -> bool {
        match &self.kind {
            // Some of these have a `text` too: all of it, once more.
            Kind::Name(name) if name.starts_with("response.") => {
                name.ends_with(".delta") && self.delta.is_some()
            }
            _ => self.text.is_some() || self.output_ids.is_some() || self.choices.iter().any(Choice::speaks),
        }
    }
}

/// The `type` of an event. Never fails, like [`Content`].
#[derive(Deserialize)]
#[serde(untagged)]
enum Kind<'a> {
    Name(#[serde(borrow)] Cow<'a, str>),
    Other(IgnoredAny),
}

impl Default for Kind<'_> {
    fn default() -> Self {
        Self::Other(IgnoredAny)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Choice {
    /// Of a completion.
    text: Content,
    /// Of a chat.
    delta: Option<Delta>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    content: Content,
    reasoning_content: Content,
    tool_calls: Content,
}

impl Choice {
    fn speaks(&self) -> bool {
        let Self { text, delta } = self;
        let delta = delta.as_ref();
        text.is_some()
            || delta.is_some_and(|delta| {
                [&delta.content, &delta.reasoning_content, &delta.tool_calls]
                    .into_iter()
                    .any(Content::is_some)
            })
    }
}

/// Whether a member has anything in it. Never fails, so that one odd member does not spoil the others.
#[derive(Default)]
enum Content {
    /// Absent, `null`, an empty string, list or object, or no container at all.
    #[default]
    Nothing,
    Something,
}

impl Content {
    fn is_some(&self) -> bool {
        matches!(self, Self::Something)
    }

    fn some_if(there: bool) -> Self {
        if there { Self::Something } else { Self::Nothing }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

/// Reads any value as [`Content`].
struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Nothing)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Content, E> {
        Ok(Content::Nothing)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Content, E> {
        Ok(Content::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Content, E> {
        Ok(Content::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Content, E> {
        Ok(Content::Nothing)
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::some_if(!text.is_empty()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Content, A::Error> {
        let mut members = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            members += 1;
        }
        Ok(Content::some_if(members > 0))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Content, A::Error> {
        let mut members = 0;
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            members += 1;
        }
        Ok(Content::some_if(members > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ids_reasoning_and_tool_calls_are_output() {
        for data in [
            r#"{"text":" a","output_ids":[5],"meta_info":{"completion_tokens":1}}"#,
            r#"{"text":"","output_ids":[5]}"#,
            r#"{"choices":[{"index":0,"text":"x","finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"content":"x","reasoning_content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#,
            r#"{"choices":[{"delta":{}},{"delta":{"content":"second choice"}}]}"#,
            r#"{"choices":[{"delta":{"content":"\u00e9"}}]}"#,
            r#"{"text":7,"output_ids":[1]}"#,
            r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
            r#"{"content_index":0,"delta":" ","logprobs":[],"type":"response.output_text.delta"}"#,
            r#"{"type":"response.reasoning_text.delta","delta":"hm"}"#,
            r#"{"type":"response.reasoning_summary_text.delta","delta":"so"}"#,
            r#"{"type":"response.function_call_arguments.delta","delta":"{\""}"#,
            r#"{"type":"response.refusal.delta","delta":"no"}"#,
            r#"{"type":"response\u002erefusal.delta","delta":"no"}"#,
            r#"{"type":"text_completion","choices":[{"text":"x"}]}"#,
            r#"{"type":{"response.":[1,null]},"text":"x"}"#,
            r#"{"type":null,"text":"x"}"#,
        ] {
            assert!(carries_output(data.as_bytes()), "{data}");
        }
    }

    #[test]
    fn everything_else_is_not() {
        for data in [
            "[DONE]",
            "",
            "{",
            "[]",
            r#"{"text":"","output_ids":[],"meta_info":{"completion_tokens":0}}"#,
            r#"{"text":null,"choices":[{"delta":null}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":"","reasoning_content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"tool_calls":null},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":null,"tool_calls":[]}}]}"#,
            r#"{"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":3}}"#,
            r#"{"error":{"message":"no","code":400}}"#,
            r#"{"type":"response.output_text.delta","delta":""}"#,
            r#"{"type":"response.output_text.delta","delta":null,"text":"x"}"#,
            r#"{"type":"response.output_text.delta"}"#,
            r#"{"type":"response.output_text.done","text":"Hi you"}"#,
            r#"{"text":"Hi you","type":"response.output_text.done"}"#,
            r#"{"type":"response.function_call_arguments.done","arguments":"{}"}"#,
            r#"{"type":"response.created","response":{"output":[],"usage":null}}"#,
            r#"{"type":"response.in_progress","response":{"text":{"format":{"type":"text"}}}}"#,
            r#"{"type":"response.output_item.added","item":{"type":"message","content":[]}}"#,
            r#"{"type":"response.output_item.done","item":{"content":[{"text":"Hi you"}]}}"#,
            r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#,
            r#"{"type":"response.content_part.done","part":{"type":"output_text","text":"Hi"}}"#,
            r#"{"type":"response.completed","response":{"usage":{"output_tokens":2}}}"#,
            r#"{"type":"message.delta","delta":"x"}"#,
            r#"{"delta":"x"}"#,
        ] {
            assert!(!carries_output(data.as_bytes()), "{data}");
        }
    }
}
