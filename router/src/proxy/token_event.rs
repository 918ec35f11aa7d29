//! Does an event of a stream carry output? The role chunk, empty deltas, the finishing chunk and the usage chunk do
//! not: the time of the first token is the time of the first event that does.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The fields of an event in which output may be, under all three endpoints' forms.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Event {
    /// `/generate`.
    text: Filled,
    output_ids: Filled,
    /// The OpenAI forms.
    choices: Vec<Choice>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice {
    /// Completions.
    text: Filled,
    /// Chat.
    delta: Option<Delta>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Delta {
    content: Filled,
    reasoning_content: Filled,
    tool_calls: Filled,
}

/// Whether the event with this data carries output.
pub(super) fn carries_output(data: &[u8]) -> bool {
    let Ok(event) = serde_json::from_slice::<Event>(data) else { return false };
    let in_choice = |choice: &Choice| {
        let delta = choice.delta.as_ref();
        choice.text.0 || delta.is_some_and(|d| d.content.0 || d.reasoning_content.0 || d.tool_calls.0)
    };
    event.text.0 || event.output_ids.0 || event.choices.iter().any(in_choice)
}

/// Whether a value is there and not empty: a string with a character, a list or object with a member.
#[derive(Default)]
struct Filled(bool);

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FilledVisitor).map(Filled)
    }
}

struct FilledVisitor;

impl<'de> Visitor<'de> for FilledVisitor {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(!text.is_empty())
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        let mut filled = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(filled)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut filled = false;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            filled = true;
        }
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_told_from_the_rest() {
        for data in [
            r#"{"text":" a","output_ids":[5],"meta_info":{"completion_tokens":1}}"#,
            r#"{"text":"","output_ids":[5]}"#,
            r#"{"choices":[{"index":0,"text":"x","finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"content":"x"}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{}},{"delta":{"content":"second"}}]}"#,
        ] {
            assert!(carries_output(data.as_bytes()), "{data}");
        }
        for data in [
            "[DONE]",
            "",
            "{",
            r#"{"text":"","output_ids":[],"meta_info":{"completion_tokens":0}}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":"","reasoning_content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":null,"tool_calls":null},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":3}}"#,
            r#"{"error":{"message":"no","code":400}}"#,
        ] {
            assert!(!carries_output(data.as_bytes()), "{data}");
        }
    }
}
