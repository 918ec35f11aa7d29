//! One scan over the body: the fields of interest as slices, everything else skipped.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Declares a struct of raw JSON slices. It is read from an object with any keys in any order; the last of duplicate
/// keys counts.
macro_rules! raw_fields {
    ($(#[$meta:meta])* $name:ident { $($field:ident),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default)]
        pub(super) struct $name<'a> { $(pub(super) $field: Option<&'a RawValue>),+ }

        impl<'de: 'a, 'a> Deserialize<'de> for $name<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Keys;
                impl<'de> Visitor<'de> for Keys {
                    type Value = $name<'de>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut fields = $name::default();
                        while let Some(key) = map.next_key::<Text<'de>>()? {
                            match key.0.as_ref() {
                                $(stringify!($field) => fields.$field = Some(map.next_value()?),)+
                                _ => { map.next_value::<IgnoredAny>()?; }
                            }
                        }
                        Ok(fields)
                    }
                }
                deserializer.deserialize_map(Keys)
            }
        }
    };
}

raw_fields! {
    /// The fields of a body that any of the dialects knows.
    Fields {
        model, stream, prompt, text, input_ids, messages, n, max_tokens, max_completion_tokens, sampling_params, rid,
    }
}

raw_fields! {
    /// The fields of interest of `sampling_params`.
    Sampling { n, max_new_tokens }
}

raw_fields! {
    /// One message of a chat.
    RawMessage { role, content }
}

raw_fields! {
    /// One part of a message's content.
    RawPart { text }
}

/// A string that borrows from the body unless it holds escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;
        impl<'de> Visitor<'de> for Words {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(Words)
    }
}

/// Reads one kept slice; `None` when it is absent or of another type.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    T::deserialize(raw?).ok()
}

/// A count, also one written as `32.0`.
pub(super) fn number(raw: Option<&RawValue>) -> Option<u64> {
    read(raw).or_else(|| {
        let value: f64 = read(raw)?;
        // Exact below 2^53, and no budget is larger.
        (value.fract() == 0.0 && (0.0..9.0e15).contains(&value)).then_some(value as u64)
    })
}
