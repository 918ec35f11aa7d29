//! The members of objects that are of interest; everything else is passed over.

use std::borrow::Cow;

use super::cursor::{Cursor, Value};

/// Declares a struct of values. It is read from an object with any keys in any order; the last of duplicate keys
/// counts, and `null` is the same as absent.
macro_rules! fields {
    ($(#[$meta:meta])* $name:ident { $($field:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default)]
        pub(crate) struct $name<'a> { $(pub(crate) $field: Option<Value<'a>>),+ }

        impl<'a> $name<'a> {
            /// Passes an object. `None` if there is none or it breaks off; what was read up to there stays.
            pub(crate) fn read(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
                cursor.members(|key, cursor| {
                    let value = cursor.value()?;
                    let given = (!value.is_null()).then_some(value);
                    let name = key.name();
                    $(if *name == *stringify!($field).as_bytes() {
                        self.$field = given;
                        return Some(());
                    })+
                    Some(())
                })
            }
        }
    };
}

pub(crate) use fields;

fields! {
    /// The fields of a body that any of the dialects knows.
    Fields {
        model, stream, rid, n, max_tokens, max_completion_tokens, max_output_tokens, sampling_params,
        messages, tools, tool_choice, prompt, text, input_ids, input, instructions, query, documents, items,
    }
}

fields! {
    /// The fields of interest of `sampling_params`.
    Sampling { n, max_new_tokens }
}

fields! {
    /// One message of a chat, or one item of a response's input.
    Message { role, content, tool_calls }
}

fields! {
    /// One part of a message's content.
    Part { text, image_url, video_url, audio_url, input_audio }
}

fields! {
    /// A picture, film or sound: where it is, or its bytes in base64.
    Media { url, data }
}

/// A string.
pub(crate) fn text(value: Option<Value<'_>>) -> Option<Cow<'_, str>> {
    value?.string().map(|quoted| quoted.text())
}

/// A count, also one written as `32.0`.
pub(crate) fn number(value: Option<Value<'_>>) -> Option<u64> {
    let Value::Scalar(raw @ [b'0'..=b'9' | b'-', ..]) = value? else { return None };
    let text = std::str::from_utf8(raw).ok()?;
    text.parse().ok().or_else(|| {
        let value: f64 = text.parse().ok()?;
        // Exact below 2^53, and no budget is larger.
        (value.fract() == 0.0 && (0.0..9.0e15).contains(&value)).then_some(value as u64)
    })
}
