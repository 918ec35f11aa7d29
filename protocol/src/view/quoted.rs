//! JSON strings: kept as they are written, read when they are needed.

use std::borrow::Cow;

use super::find::backslash;

/// What stands between the quotes of a JSON string.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quoted<'a>(&'a [u8]);

impl<'a> Quoted<'a> {
    pub(crate) fn new(raw: &'a [u8]) -> Self {
        Self(raw)
    }

    /// The bytes between the quotes, escapes and all.
    pub(crate) fn raw(self) -> &'a [u8] {
        self.0
    }

    /// The text as the name of a member, where it does not matter whether it is UTF-8.
    pub(crate) fn name(self) -> Cow<'a, [u8]> {
        if backslash(self.0).is_none() {
            return Cow::Borrowed(self.0);
        }
        Cow::Owned(self.text().into_owned().into_bytes())
    }

    /// The text, borrowed unless it holds escapes or is not UTF-8.
    pub(crate) fn text(self) -> Cow<'a, str> {
        let raw = lossy(self.0);
        if backslash(raw.as_bytes()).is_none() {
            return raw;
        }
        let mut text = String::with_capacity(raw.len());
        unescape(&raw, &mut text);
        Cow::Owned(text)
    }

    /// Appends the text to `out`.
    pub(crate) fn append_to(self, out: &mut String) {
        unescape(&lossy(self.0), out);
    }
}

/// `bytes` as text, with the replacement character for what is not UTF-8.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    // The plain check is several times faster than the one that also finds out what is wrong.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn unescape(raw: &str, out: &mut String) {
    let mut rest = raw;
    while let Some(at) = backslash(rest.as_bytes()) {
        out.push_str(&rest[..at]);
        rest = escape(&rest[at + 1..], out);
    }
    out.push_str(rest);
}

/// Reads one escape, of which `rest` is what follows the backslash, and returns what follows the escape.
fn escape<'t>(rest: &'t str, out: &mut String) -> &'t str {
    let mut chars = rest.chars();
    out.push(match chars.next() {
        Some(own @ ('"' | '\\' | '/')) => own,
        Some('n') => '\n',
        Some('t') => '\t',
        Some('r') => '\r',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('u') => return code_point(chars.as_str(), out),
        _ => char::REPLACEMENT_CHARACTER,
    });
    chars.as_str()
}

/// Reads the four digits after `\u`, and the other half of a surrogate pair if this is one half. Python's reader lets
/// a lone surrogate pass, so the engine may answer it; in text of UTF-8 its place is taken by the replacement
/// character.
fn code_point<'t>(rest: &'t str, out: &mut String) -> &'t str {
    let Some((unit, after)) = hex4(rest) else {
        out.push(char::REPLACEMENT_CHARACTER);
        return rest;
    };
    if (0xD800..0xDC00).contains(&unit)
        && let Some((low, after)) = after.strip_prefix("\\u").and_then(hex4)
        && (0xDC00..0xE000).contains(&low)
    {
        let point = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        out.push(char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER));
        return after;
    }
    out.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    after
}

fn hex4(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    Some((u32::from_str_radix(digits, 16).ok()?, &text[4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_every_kind() {
        let cases: &[(&[u8], &str)] = &[
            (b"plain", "plain"),
            (br#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (br"\u0041\u00e9\u65E5", "Aé日"),
            (br"\ud83e\udd80!", "🦀!"),
            (br"a\ud83eb", "a\u{fffd}b"),
            (br"\udd80\ud83e", "\u{fffd}\u{fffd}"),
            (br"\ud83e\n", "\u{fffd}\n"),
            (br"\ud83e\u0041", "\u{fffd}A"),
            (br"\u12", "\u{fffd}12"),
            (br"\u+123", "\u{fffd}+123"),
            ("\\u12é".as_bytes(), "\u{fffd}12é"),
            ("\\é".as_bytes(), "\u{fffd}"),
            (br"\", "\u{fffd}"),
            (b"\xFFa\\n", "\u{fffd}a\n"),
        ];
        for (raw, expected) in cases {
            assert_eq!(Quoted::new(raw).text(), *expected);
            let mut out = String::from("|");
            Quoted::new(raw).append_to(&mut out);
            assert_eq!(out, format!("|{expected}"));
        }
    }
}
