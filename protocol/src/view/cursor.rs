//! Walking over JSON without building anything.
//!
//! Strings are passed by looking for quotes, objects and arrays by looking for their own brackets outside of
//! strings, both with vector instructions. Nothing recurses and nothing is allocated, so the cost is linear and no
//! depth is too deep. In valid JSON the other kind of bracket is always balanced between a pair, which is why one
//! kind suffices. Invalid JSON is not found out in full, but it is never more than misread: a walk ends with `None`
//! where the text cannot go on.

use super::digits::leading_digits;
use super::find::{quote, structural};
use super::quoted::Quoted;

/// One JSON value, not yet looked into.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    String(Quoted<'a>),
    /// With its brackets.
    Array(&'a [u8]),
    /// With its brackets.
    Object(&'a [u8]),
    /// Whatever else stands where a value is due: a number, `true`, `false`, `null`, or nonsense.
    Scalar(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) fn is_null(self) -> bool {
        matches!(self, Value::Scalar(b"null"))
    }

    pub(crate) fn string(self) -> Option<Quoted<'a>> {
        if let Value::String(quoted) = self { Some(quoted) } else { None }
    }

    /// The bytes it is written in, of a string those between the quotes.
    pub(crate) fn raw(self) -> &'a [u8] {
        match self {
            Value::String(quoted) => quoted.raw(),
            Value::Array(raw) | Value::Object(raw) | Value::Scalar(raw) => raw,
        }
    }
}

/// A place in a JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// How many bytes are left.
    pub(crate) fn left(self) -> usize {
        self.rest.len()
    }

    /// The next byte that is no white space; the cursor moves up to it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    /// Passes `byte` if it comes next.
    pub(crate) fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.rest = &self.rest[1..])
    }

    /// What lies between here and `later`, a cursor that came from this one.
    pub(crate) fn until(self, later: Self) -> &'a [u8] {
        &self.rest[..self.rest.len() - later.rest.len()]
    }

    /// Passes one value.
    pub(crate) fn value(&mut self) -> Option<Value<'a>> {
        Some(match self.peek()? {
            b'"' => Value::String(self.quoted()?),
            b'[' => Value::Array(self.nested(b'[', b']')?),
            b'{' => Value::Object(self.nested(b'{', b'}')?),
            _ => Value::Scalar(self.scalar()?),
        })
    }

    /// Passes an object, calling `member` with the key and the cursor before the value, which it has to pass.
    pub(crate) fn members(
        &mut self,
        mut member: impl FnMut(Quoted<'a>, &mut Self) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        if self.take(b'}').is_some() {
            return Some(());
        }
        loop {
            let key = self.quoted()?;
            self.take(b':')?;
            member(key, self)?;
            if self.take(b',').is_none() {
                return self.take(b'}');
            }
        }
    }

    /// Passes an array, calling `element` with the cursor before each element, which it has to pass.
    pub(crate) fn elements(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(b'[')?;
        if self.take(b']').is_some() {
            return Some(());
        }
        loop {
            element(self)?;
            if self.take(b',').is_none() {
                return self.take(b']');
            }
        }
    }

    /// Passes a number without sign, fraction and exponent that fits into 32 bits.
    pub(crate) fn token_id(&mut self) -> Option<u32> {
        self.peek()?;
        let (id, rest) = leading_digits(self.rest)?;
        self.rest = rest;
        Some(id)
    }

    /// Passes a string.
    pub(crate) fn quoted(&mut self) -> Option<Quoted<'a>> {
        self.take(b'"')?;
        let end = closing_quote(self.rest)?;
        let (inner, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Some(Quoted::new(inner))
    }

    fn nested(&mut self, open: u8, close: u8) -> Option<&'a [u8]> {
        let (mut at, mut depth) = (1, 1_usize);
        while depth > 0 {
            at += structural(&self.rest[at..], open, close)?;
            let byte = self.rest[at];
            at += 1;
            if byte == b'"' {
                at += closing_quote(&self.rest[at..])? + 1;
            } else if byte == close {
                depth -= 1;
            } else {
                depth += 1;
            }
        }
        Some(self.split(at))
    }

    fn scalar(&mut self) -> Option<&'a [u8]> {
        let ends = |byte: &u8| matches!(byte, b',' | b':' | b'[' | b']' | b'{' | b'}' | b'"' | 0..=b' ');
        let len = self.rest.iter().position(ends).unwrap_or(self.rest.len());
        (len > 0).then(|| self.split(len))
    }

    fn split(&mut self, at: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(at);
        self.rest = rest;
        taken
    }
}

/// Where a string ends of which `text` holds what follows the opening quote: at the first quote with an even number
/// of backslashes before it. Every backslash is counted at most once.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + quote(&text[from..])?;
        let backslashes = text[from..at].iter().rev().take_while(|&&byte| byte == b'\\').count();
        if backslashes % 2 == 0 {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Option<Value<'_>> {
        Cursor::new(text.as_bytes()).value()
    }

    #[test]
    fn a_value_ends_where_it_ends() {
        let cases: &[(&str, Option<&str>)] = &[
            (r#" "a",1"#, Some("a")),
            (r#""a\"b" x"#, Some(r#"a\"b"#)),
            (r#""a\\" x"#, Some(r"a\\")),
            (r#""a\\\"b\\\\",1"#, Some(r#"a\\\"b\\\\"#)),
            (r#""long enough for the vector \" search""#, Some(r#"long enough for the vector \" search"#)),
            (r#"[1,[2,"]"],{"a":"}]"}],3"#, Some(r#"[1,[2,"]"],{"a":"}]"}]"#)),
            (r#"{"{":[{}],"b":"\"}"}}"#, Some(r#"{"{":[{}],"b":"\"}"}"#)),
            ("-1.5e9]", Some("-1.5e9")),
            ("null\n,", Some("null")),
            (r#""no end"#, None),
            (r#""no end\""#, None),
            ("[1,2", None),
            (r#"{"a":"}"#, None),
            (",", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(first(text).map(Value::raw), expected.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn a_walk_ends_where_the_text_cannot_go_on() {
        let members = |text: &str| {
            let mut keys = Vec::new();
            let whole = Cursor::new(text.as_bytes()).members(|key, cursor| {
                keys.push(key.text().into_owned());
                cursor.value().map(drop)
            });
            (whole.is_some(), keys.concat())
        };
        assert_eq!(members(r#"{"a":1 , "b":[] }"#), (true, "ab".into()));
        assert_eq!(members("{ }"), (true, String::new()));
        for text in [r#"{"a":1 "b":2}"#, r#"{"a":1,}"#, r#"{"a":1"#, r#"{"a":1,b:2}"#, r#"{"a":1]"#] {
            assert_eq!(members(text), (false, "a".into()), "{text}");
        }
    }
}
