//! Chats as one text: tools, then messages, in the order in which chat templates put them.
//!
//! The engine's prefix cache sees what the template makes of a body. The rendering here cannot be the same text, but
//! it has to be the same *relation*: bodies that begin alike for the engine begin alike here, and bodies that differ
//! there from some place on differ here from about that place on. So definitions of tools come first, as most
//! templates want it, and each picture is represented by a fingerprint.

use std::borrow::Cow;
use std::fmt::Write;

use super::cursor::{Cursor, Value};
use super::fields::{Fields, Media, Message, Part};
use super::quoted::lossy;
use crate::chat::header;
use crate::tokenizer::mix;

/// Room for headers that a body does not spell out.
const SLACK: usize = 64;

/// The rendering of `messages`; `None` if that is no list of objects.
pub(super) fn chat(fields: &Fields<'_>) -> Option<String> {
    let Value::Array(messages) = fields.messages? else { return None };
    let mut text = opening(fields, messages.len());
    turns(&mut text, messages)?;
    header(&mut text, "assistant");
    Some(text)
}

/// The rendering of `instructions` and `input`, as that of the chat that they are short for.
pub(super) fn response(fields: &Fields<'_>) -> Option<String> {
    let instructions = fields.instructions.and_then(Value::string).filter(|quoted| !quoted.raw().is_empty());
    let input = fields.input?;
    let mut text = opening(fields, input.raw().len() + instructions.map_or(0, |quoted| quoted.raw().len()));
    if let Some(quoted) = instructions {
        header(&mut text, "system");
        quoted.append_to(&mut text);
    }
    match input {
        Value::String(quoted) => {
            header(&mut text, "user");
            quoted.append_to(&mut text);
        }
        Value::Array(items) => turns(&mut text, items)?,
        _ => return None,
    }
    header(&mut text, "assistant");
    Some(text)
}

/// A content that stands alone.
pub(super) fn content_text(value: Value<'_>) -> Option<Cow<'_, str>> {
    if let Value::String(quoted) = value {
        return Some(quoted.text());
    }
    let mut text = String::new();
    content(&mut text, value)?;
    Some(Cow::Owned(text))
}

/// Begins a rendering, with room for `len` bytes of messages: in JSON they are hardly ever shorter than rendered.
fn opening(fields: &Fields<'_>, len: usize) -> String {
    let tools = tools(fields);
    let mut text = String::with_capacity(len + tools.iter().map(|raw| raw.len()).sum::<usize>() + SLACK);
    if !tools.is_empty() {
        header(&mut text, "tools");
        tools.iter().for_each(|raw| text.push_str(&lossy(raw)));
    }
    text
}

/// What comes before the messages: the definitions of the tools, as they are written. SGLang shows the model none of
/// them under the choice `none`, and under the choice of one function that one alone; such a body shares no prefix
/// with those that leave the choice to the model.
fn tools<'a>(fields: &Fields<'a>) -> Vec<&'a [u8]> {
    match (fields.tools, fields.tool_choice) {
        (None, _) => vec![],
        (Some(Value::Array(raw)), _) if is_empty(raw) => vec![],
        (_, Some(Value::String(choice))) if choice.text() == "none" => vec![],
        (Some(tools), Some(Value::Object(choice))) => vec![choice, tools.raw()],
        (Some(tools), _) => vec![tools.raw()],
    }
}

fn is_empty(array: &[u8]) -> bool {
    array[1..array.len() - 1].trim_ascii().is_empty()
}

/// Renders a list that is not empty.
fn turns(text: &mut String, messages: &[u8]) -> Option<()> {
    if is_empty(messages) {
        return None;
    }
    Cursor::new(messages).elements(|cursor| turn(text, cursor))
}

/// Renders one message. One of an unknown form, such as a call among the items of a response, is put in as it is
/// written.
fn turn(text: &mut String, cursor: &mut Cursor<'_>) -> Option<()> {
    let start = *cursor;
    let mut message = Message::default();
    message.read(cursor)?;
    let role = message.role.and_then(Value::string);
    header(text, &role.map_or(Cow::Borrowed(""), |role| role.text()));
    match message.content {
        Some(value) => content(text, value)?,
        None if role.is_none() => text.push_str(&lossy(start.until(*cursor).trim_ascii_start())),
        None => {}
    }
    match message.tool_calls {
        Some(Value::Array(calls)) if !is_empty(calls) => {
            header(text, "tool_calls");
            text.push_str(&lossy(calls));
        }
        _ => {}
    }
    Some(())
}

/// Renders the content of one message: a text, or parts joined by blanks, as SGLang joins them. What is neither is
/// for the engine to refuse, and is put in as it is written.
fn content(text: &mut String, value: Value<'_>) -> Option<()> {
    match value {
        Value::String(quoted) => quoted.append_to(text),
        Value::Array(list) => {
            let mut parts = Parts { text, any: false };
            Cursor::new(list).elements(|cursor| parts.add(cursor.value()?))?;
        }
        Value::Object(raw) | Value::Scalar(raw) => text.push_str(&lossy(raw)),
    }
    Some(())
}

/// The parts of one content.
struct Parts<'t> {
    text: &'t mut String,
    any: bool,
}

impl Parts<'_> {
    /// Renders one part. One without text and media (thoughts, a refusal) is left out, as most templates do.
    fn add(&mut self, value: Value<'_>) -> Option<()> {
        let mut part = Part::default();
        match value {
            Value::String(_) => part.text = Some(value),
            Value::Object(raw) => part.read(&mut Cursor::new(raw))?,
            Value::Array(_) | Value::Scalar(_) => return Some(()),
        }
        if let Some(Value::String(quoted)) = part.text {
            quoted.append_to(self.next());
            return Some(());
        }
        let media = [
            ("image", part.image_url),
            ("video", part.video_url),
            ("audio", part.audio_url),
            ("audio", part.input_audio),
        ];
        for (kind, value) in media {
            if let Some(source) = value.and_then(source) {
                // Writing to a `String` cannot fail.
                let _ = write!(self.next(), "<|{kind} {:016x}|>", fingerprint(source.as_bytes()));
            }
        }
        Some(())
    }

    /// Where the next part goes: behind a blank, unless it is the first.
    fn next(&mut self) -> &mut String {
        if std::mem::replace(&mut self.any, true) {
            self.text.push(' ');
        }
        self.text
    }
}

/// What tells one picture, film or sound from another: its address, which may be the whole of it (`data:`).
fn source(value: Value<'_>) -> Option<Cow<'_, str>> {
    match value {
        Value::String(quoted) => Some(quoted.text()),
        Value::Object(raw) => {
            let mut media = Media::default();
            media.read(&mut Cursor::new(raw))?;
            media.url.or(media.data)?.string().map(|quoted| quoted.text())
        }
        Value::Array(_) | Value::Scalar(_) => None,
    }
}

/// A hash that is the same in every build and every process. It takes eight bytes a step, since pictures come in
/// megabytes.
fn fingerprint(bytes: &[u8]) -> u64 {
    let step = |hash: u64, word: [u8; 8]| {
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    };
    let (words, tail) = bytes.as_chunks();
    let hash = words.iter().fold(bytes.len() as u64, |hash, &word| step(hash, word));
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    mix(step(hash, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_tell_sources_apart() {
        let mut seen: Vec<u64> = (0..40).map(|len| fingerprint(&vec![0; len])).collect();
        seen.extend((0..40).map(|at| {
            let mut bytes = [0; 40];
            bytes[at] = 1;
            fingerprint(&bytes)
        }));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
