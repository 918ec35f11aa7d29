//! One line of key and value, in either form.
//!
//! As text, `key=value` with blanks between; a value from outside stands in quotation marks unless it is a plain word.
//! As JSON, one object. What is in quotation marks is escaped as JSON demands in both forms.

use super::time::{push_padded, push_rfc3339};

/// Longest value from outside that is written, in bytes.
pub(super) const MAX_VALUE: usize = 128;

/// A line that is being written.
#[derive(Debug)]
pub(super) struct Line {
    out: Vec<u8>,
    json: bool,
}

impl Line {
    /// `time  INFO access:`, in the manner of the other log lines.
    pub(super) fn text(mut out: Vec<u8>, unix_ms: u64) -> Self {
        push_rfc3339(&mut out, unix_ms);
        out.extend_from_slice(b"  INFO access:");
        Self { out, json: false }
    }

    /// An object that begins with time, level and the name of this log.
    pub(super) fn json(mut out: Vec<u8>, unix_ms: u64) -> Self {
        out.extend_from_slice(b"{\"time\":\"");
        push_rfc3339(&mut out, unix_ms);
        out.extend_from_slice(b"\",\"level\":\"info\",\"log\":\"access\"");
        Self { out, json: true }
    }

    /// A value of our own that is a plain word.
    pub(super) fn word(&mut self, key: &str, word: &'static str) {
        debug_assert!(word.bytes().all(is_plain), "`{word}` is no plain word");
        self.key(key);
        if self.json {
            self.out.push(b'"');
        }
        self.out.extend_from_slice(word.as_bytes());
        if self.json {
            self.out.push(b'"');
        }
    }

    /// A value that others have written.
    pub(super) fn foreign(&mut self, key: &str, value: &[u8]) {
        self.key(key);
        let value = &value[..value.len().min(MAX_VALUE)];
        let is_word = !value.is_empty() && value.iter().copied().all(is_plain);
        let quotes: &[u8] = if is_word && !self.json { b"" } else { b"\"" };
        self.out.extend_from_slice(quotes);
        if is_word {
            self.out.extend_from_slice(value);
        } else {
            self.escaped(value);
        }
        self.out.extend_from_slice(quotes);
    }

    pub(super) fn flag(&mut self, key: &str, flag: bool) {
        self.key(key);
        self.out.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    pub(super) fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        self.digits(number);
    }

    /// A time in milliseconds to three places.
    pub(super) fn millis(&mut self, key: &str, time_ns: u64) {
        self.key(key);
        self.digits(time_ns / 1_000_000);
        self.out.push(b'.');
        push_padded(&mut self.out, time_ns / 1000, 3);
    }

    /// Puts what there is.
    pub(super) fn some<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.out.extend_from_slice(if self.json { b"}\n" } else { b"\n" });
        self.out
    }

    fn key(&mut self, key: &str) {
        self.out.extend_from_slice(if self.json { b",\"" } else { b" " });
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(if self.json { b"\":" } else { b"=" });
    }

    fn digits(&mut self, number: u64) {
        let width = number.checked_ilog10().unwrap_or(0) + 1;
        push_padded(&mut self.out, number, width as usize);
    }

    fn escaped(&mut self, value: &[u8]) {
        for part in value.utf8_chunks() {
            part.valid().chars().for_each(|char| self.char(char));
            if !part.invalid().is_empty() {
                self.char(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    fn char(&mut self, char: char) {
        match char {
            '"' | '\\' => self.out.extend_from_slice(&[b'\\', char as u8]),
            // What a terminal obeys, and what some readers take for the end of a line.
            '\u{2028}' | '\u{2029}' => self.escape(char),
            _ if char.is_control() => self.escape(char),
            _ => self.out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    fn escape(&mut self, char: char) {
        self.out.extend_from_slice(b"\\u");
        for place in (0..4).rev() {
            let digit = u32::from(char) >> (4 * place) & 0xF;
            self.out.push(b"0123456789abcdef"[digit as usize]);
        }
    }
}

/// Bytes that need no quotation marks.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9')
        || matches!(byte, b'-' | b'_' | b'.' | b'/' | b':' | b'@' | b'+' | b',' | b';' | b'~' | b'%')
}
