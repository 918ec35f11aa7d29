//! Server-sent events: cuts a byte stream into events, however the bytes arrive.
//!
//! The splitter is incremental: any split of the same bytes into chunks gives the same events. Lines end with
//! `\n`, `\r\n` or `\r`; comments and fields other than `event` and `data` are skipped; several `data` lines of
//! one event are joined by `\n`. One deviation from the W3C text is deliberate: an event that the stream's end
//! cuts short of its blank line is still given by [`Splitter::finish`], because some servers omit the last
//! newline and losing their final usage report would be worse.
//!
//! Memory is bounded: an event longer than the limit is an error, not a growing buffer.

use memchr::{memchr, memchr2};

/// Longest event by default, in bytes. Cumulative streams repeat the whole text in every event.
pub const MAX_EVENT_BYTES: usize = 16 << 20;

/// One event of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field; empty when there was none.
    pub name: &'a [u8],
    /// The `data` lines, joined by `\n`.
    pub data: &'a [u8],
}

impl Event<'_> {
    /// Whether this is the `[DONE]` mark that ends OpenAI and SGLang streams.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.data.trim_ascii() == b"[DONE]"
    }
}

/// An event grew past the limit; the stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {limit} bytes")]
pub struct EventTooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Cuts a byte stream into events.
#[derive(Debug)]
pub struct Splitter {
    limit: usize,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was `\r`, so a `\n` that follows belongs to it.
    after_cr: bool,
    failed: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl Splitter {
    /// A splitter that refuses events of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            failed: false,
        }
    }

    /// Takes the next bytes and calls `on_event` for every event that they complete.
    ///
    /// # Errors
    /// [`EventTooLong`], from then on at every call.
    pub fn push(&mut self, bytes: &[u8], mut on_event: impl FnMut(Event<'_>)) -> Result<(), EventTooLong> {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            self.line_end(&rest[..at], &mut on_event)?;
            let cr = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if cr {
                self.after_cr = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.check(rest.len())?;
        self.line.extend_from_slice(rest);
        Ok(())
    }

    /// Ends the stream: gives the event that was not closed by a blank line, if there is one.
    ///
    /// # Errors
    /// [`EventTooLong`] as for [`Splitter::push`].
    pub fn finish(mut self, mut on_event: impl FnMut(Event<'_>)) -> Result<(), EventTooLong> {
        if !self.line.is_empty() {
            self.line_end(b"", &mut on_event)?;
        }
        self.dispatch(&mut on_event);
        Ok(())
    }

    /// A line is complete: what was kept of it, and `tail`.
    fn line_end(&mut self, tail: &[u8], on_event: &mut impl FnMut(Event<'_>)) -> Result<(), EventTooLong> {
        self.check(tail.len())?;
        if self.line.is_empty() {
            self.field(tail, on_event);
        } else {
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(tail);
            self.field(&line, on_event);
            line.clear();
            self.line = line;
        }
        Ok(())
    }

    fn field(&mut self, line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        let (key, value) = match memchr(b':', line) {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &b""[..]),
        };
        match key {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            _ => {}
        }
    }

    fn dispatch(&mut self, on_event: &mut impl FnMut(Event<'_>)) {
        if self.has_data {
            on_event(Event { name: &self.name, data: &self.data });
        }
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }

    /// The limit counts what is kept: the event so far and the line so far.
    fn check(&mut self, more: usize) -> Result<(), EventTooLong> {
        self.failed |= self.data.len() + self.name.len() + self.line.len() + more > self.limit;
        if self.failed { Err(EventTooLong { limit: self.limit }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (Vec<u8>, Vec<u8>);

    fn split(chunks: &[&[u8]]) -> Vec<Owned> {
        let mut events = Vec::new();
        let mut splitter = Splitter::default();
        let mut take = |e: Event<'_>| events.push((e.name.to_vec(), e.data.to_vec()));
        for chunk in chunks {
            splitter.push(chunk, &mut take).unwrap();
        }
        splitter.finish(&mut take).unwrap();
        events
    }

    fn data(text: &str) -> Owned {
        (Vec::new(), text.as_bytes().to_vec())
    }

    #[test]
    fn forms_of_lines() {
        let cases: [(&str, &str, Vec<Owned>); 12] = [
            ("plain", "data: a\n\ndata: b\n\n", vec![data("a"), data("b")]),
            ("crlf", "data: a\r\n\r\ndata: b\r\n\r\n", vec![data("a"), data("b")]),
            ("lone cr", "data: a\r\rdata: b\r\r", vec![data("a"), data("b")]),
            ("comment and unknown field", ": hello\nid: 4\nretry: 1\ndata: a\n\n", vec![data("a")]),
            ("several data lines", "data: a\ndata:\ndata:  b\n\n", vec![data("a\n\n b")]),
            ("no blank", "data:{\"a\":1}\n\n", vec![data("{\"a\":1}")]),
            ("missing last blank line", "data: a\n\ndata: [DONE]", vec![data("a"), data("[DONE]")]),
            ("named", "event: x\ndata: a\n\ndata: b\n\n", vec![(b"x".to_vec(), b"a".to_vec()), data("b")]),
            ("ends within a line end", "data: a\r\n\r", vec![data("a")]),
            ("a comment between the lines", "data: a\n: ping\ndata: b\n\n: ping\n\n", vec![data("a\nb")]),
            ("nothing but a comment at the end", "data: a\n\n: bye", vec![data("a")]),
            ("nothing but blank lines", "\n\n\r\n: c\n\n", vec![]),
        ];
        for (case, text, expected) in cases {
            assert_eq!(split(&[text.as_bytes()]), expected, "{case}");
        }
    }

    #[test]
    fn done_is_recognised() {
        assert!(Event { name: b"", data: b"[DONE]" }.is_done());
        assert!(!Event { name: b"", data: b"{\"text\":\"[DONE]\"}" }.is_done());
    }

    #[test]
    fn a_long_event_is_an_error_and_stays_one() {
        let mut splitter = Splitter::new(8);
        assert!(splitter.push(b"data: 1", |_| {}).is_ok());
        assert_eq!(splitter.push(b"2345", |_| {}), Err(EventTooLong { limit: 8 }));
        assert!(splitter.push(b"\n\n", |_| panic!("nothing after a failure")).is_err());
    }

    /// A line without its end; the last one of a stream may have none.
    fn a_line() -> impl Strategy<Value = String> {
        prop_oneof![
            2 => "",
            3 => "data: [a-z:]{0,6}",
            1 => "data[a-z: ]{0,3}",
            1 => ":[ a-z]{0,4}",
            1 => "event: [a-z]{0,3}",
            1 => "(id|retry): ?[0-9]{0,2}",
        ]
    }

    /// What the events of a whole stream are, line by line, a missing end added.
    fn plain_reading(text: &str) -> Vec<Owned> {
        let text = text.replace("\r\n", "\n").replace('\r', "\n") + "\n\n";
        let (mut events, mut name, mut data) = (vec![], String::new(), Vec::<&str>::new());
        for line in text.split('\n') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => data.push(value),
                "event" => name = value.to_owned(),
                "" if line.is_empty() => {
                    let name = std::mem::take(&mut name);
                    let data = std::mem::take(&mut data);
                    if !data.is_empty() {
                        events.push((name.into_bytes(), data.join("\n").into_bytes()));
                    }
                }
                _ => {}
            }
        }
        events
    }

    proptest! {
        #[test]
        fn any_split_gives_the_events_of_a_plain_reading(
            lines in proptest::collection::vec((a_line(), prop_oneof!["\n", "\r\n", "\r"]), 0..12),
            tail in a_line(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let text: String = lines.iter().flat_map(|(line, end)| [line, end]).chain([&tail]).cloned().collect();
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            let expected = plain_reading(&text);
            prop_assert_eq!(&split(&[bytes]), &expected);
            prop_assert_eq!(&split(&chunks), &expected);
            prop_assert_eq!(&split(&single), &expected);
            for cut in 0..=bytes.len() {
                let (head, rest) = bytes.split_at(cut);
                prop_assert_eq!(&split(&[head, rest]), &expected, "cut at {}", cut);
            }
        }

        #[test]
        fn what_a_server_writes_comes_back(payloads in proptest::collection::vec("[^\r\n]*", 0..8)) {
            let text: String = payloads.iter().map(|p| format!("data: {p}\n\n")).collect();
            let expected: Vec<Owned> = payloads.iter().map(|p| data(p)).collect();
            prop_assert_eq!(split(&[text.as_bytes()]), expected);
        }
    }
}
