//! What a canned answer needs to know of a body, found by searching its bytes as they arrive.
//!
//! Nothing is parsed and nothing is kept, so a long body costs little more than the reading of it. A key in quotes
//! cannot occur within a JSON string, where its quotes would be escaped, so a match is a key or a string of just
//! that word, and only a key is followed by a colon. Keys count at any depth: `max_new_tokens` stands in an object.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// What a body asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// A stream.
    pub(super) stream: bool,
    /// So many tokens.
    pub(super) tokens: Option<u32>,
    /// The usage at the end of a stream.
    pub(super) usage: bool,
}

/// `"stream"` and `"stream_options"` begin alike, the limits on output end alike: two searches find them all.
static STREAM: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"stream"));
static TOKENS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("_tokens\""));

/// The names of the limit on output, without their common end. Other names that end alike are none.
const LIMITS: [&[u8]; 3] = [b"\"max", b"\"max_completion", b"\"max_new"];

/// Most bytes of a key with its value: what is longer and cut by the end of a piece is not seen.
const SPAN: usize = 96;

/// Reads a body piece by piece.
#[derive(Debug, Default)]
pub(super) struct Scan {
    wish: Wish,
    /// The end of what came before.
    tail: Vec<u8>,
}

impl Scan {
    /// Reads the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        let head = &piece[..piece.len().min(SPAN)];
        let has_seam = !self.tail.is_empty();
        self.tail.extend_from_slice(head);
        if has_seam {
            self.wish.search(&self.tail);
        }
        self.wish.search(piece);
        if piece.len() > SPAN {
            self.tail.clear();
            self.tail.extend_from_slice(&piece[piece.len() - SPAN..]);
        }
        let excess = self.tail.len().saturating_sub(SPAN);
        self.tail.drain(..excess);
    }

    /// What the body asked for.
    pub(super) fn wish(&self) -> Wish {
        self.wish
    }
}

impl Wish {
    /// What one piece that holds the whole body asks for.
    pub(super) fn of(body: &[u8]) -> Self {
        let mut wish = Self::default();
        wish.search(body);
        wish
    }

    fn search(&mut self, text: &[u8]) {
        for at in STREAM.find_iter(text) {
            let rest = &text[at + STREAM.needle().len()..];
            if let Some(value) = rest.strip_prefix(b"\"").and_then(value) {
                self.stream |= value.starts_with(b"true");
            } else if let Some(options) = rest.strip_prefix(b"_options\"") {
                self.usage |= wants_usage(options);
            }
        }
        for at in TOKENS.find_iter(text) {
            let named = LIMITS.iter().any(|name| text[..at].ends_with(name));
            if let Some(tokens) =
                value(&text[at + TOKENS.needle().len()..]).filter(|_| named).and_then(number)
            {
                self.tokens = Some(tokens);
            }
        }
    }
}

/// What follows a key: `None` if it is no key.
fn value(after_key: &[u8]) -> Option<&[u8]> {
    Some(after_key.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

/// A whole number that the text ends after, rather than within.
fn number(text: &[u8]) -> Option<u32> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

fn wants_usage(options: &[u8]) -> bool {
    let object = &options[..options.iter().position(|byte| *byte == b'}').unwrap_or(options.len())];
    let key = b"\"include_usage\"";
    let at = object.windows(key.len()).position(|window| window == key);
    at.and_then(|at| value(&object[at + key.len()..])).is_some_and(|value| value.starts_with(b"true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::view::{Dialect, RequestView};

    const BODIES: &[&str] = &[
        r#"{"messages":[{"role":"user","content":"say \"stream\": true, \"max_tokens\": 7"}]}"#,
        r#"{"model":"m","messages":[],"max_tokens":100,"stream":true}"#,
        r#"{"stream" : true , "max_completion_tokens" : 12 , "messages":[]}"#,
        r#"{"messages":["stream"],"stream":false,"max_tokens":3}"#,
        r#"{"stop":"stream","messages":[],"total_tokens":9}"#,
        r#"{}"#,
    ];

    #[test]
    fn finds_what_a_parser_finds() {
        for body in BODIES {
            let view = RequestView::read(Dialect::Chat, body.as_bytes());
            let wish = Wish::of(body.as_bytes());
            assert_eq!(wish.stream, view.stream, "{body}");
            assert_eq!(wish.tokens.map(u64::from), view.output_budget, "{body}");
        }
        let nested = br#"{"text":"x","sampling_params":{"max_new_tokens":5},"stream":true}"#;
        assert_eq!(Wish::of(nested), Wish { stream: true, tokens: Some(5), usage: false });
    }

    #[test]
    fn usage_is_an_option_of_streams() {
        let wish =
            |options: &str| Wish::of(format!(r#"{{"stream_options":{options},"n":1}}"#).as_bytes()).usage;
        assert!(wish(r#"{"include_usage": true}"#));
        assert!(wish(r#"{"continuous_usage_stats":true,"include_usage":true}"#));
        assert!(!wish(r#"{"include_usage":false}"#));
        assert!(!wish("null"));
    }

    #[test]
    fn pieces_may_be_cut_anywhere() {
        let body = br#"{"messages":[],"max_tokens":1024,"stream_options":{"include_usage":true},"stream":true,"n":1}"#;
        let expected = Wish { stream: true, tokens: Some(1024), usage: true };
        for first in 0..body.len() {
            for second in first..body.len() {
                let mut scan = Scan::default();
                for piece in [&body[..first], &body[first..second], &body[second..]] {
                    scan.push(piece);
                }
                assert_eq!(scan.wish(), expected, "cut at {first} and {second}");
            }
        }
    }
}
