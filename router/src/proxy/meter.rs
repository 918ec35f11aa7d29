//! Reads along with an answer, cheaply: when the first token came, how many there are, and the engine's counts.
//!
//! Up to the first token every event of a stream is looked at by the shared predicate. After that a chunk costs
//! two substring searches: for events, and for the engine's `…_tokens` counts, wherever they stand in the answer.
//! Inside a JSON string a quotation mark is escaped, so generated text cannot pretend to be a count.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use protocol::output::carries_output;
use protocol::sse::Splitter;

/// The end of every key that is looked for.
static COUNT_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"_tokens\""));
/// The beginning of an event's data.
static DATA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"data:"));

/// Longest event that is looked at while waiting for the first token; a longer one counts as a token.
const MAX_FIRST_EVENT: usize = 1 << 20;

/// What is kept of a chunk, so that a count cut in two is found: longer than any key with its number.
const CARRY: usize = 48;

/// The engine's own counts, as far as the answer told them so far. The last one told counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
}

/// Reads along with one answer.
#[derive(Debug)]
pub(crate) struct Meter {
    stage: Stage,
    events: u64,
    counts: Counts,
    carry: [u8; CARRY],
    carried: usize,
}

#[derive(Debug)]
enum Stage {
    /// A stream that has given no token yet.
    Waiting(Splitter),
    /// A stream that has.
    Flowing,
    /// An answer in one piece: its tokens all come with its end.
    Buffered,
}

impl Meter {
    /// A meter for an answer that is a stream of events, or not.
    pub(crate) fn new(is_stream: bool) -> Self {
        let stage = if is_stream { Stage::Waiting(Splitter::new(MAX_FIRST_EVENT)) } else { Stage::Buffered };
        Self { stage, events: 0, counts: Counts::default(), carry: [0; CARRY], carried: 0 }
    }

    /// Takes the next bytes; whether the first token was among them.
    pub(crate) fn see(&mut self, chunk: &[u8]) -> bool {
        self.find_counts(chunk);
        match &mut self.stage {
            Stage::Buffered => false,
            Stage::Flowing => {
                self.events += json_events(chunk);
                false
            }
            Stage::Waiting(splitter) => {
                let mut tokens = 0;
                let read = splitter.push(chunk, |event| tokens += u64::from(carries_output(event.data)));
                self.events += tokens;
                let came = tokens > 0 || read.is_err();
                if came {
                    self.stage = Stage::Flowing;
                }
                came
            }
        }
    }

    /// Output tokens so far: what the engine said, or the number of events if that is more.
    pub(crate) fn output_tokens(&self) -> u64 {
        self.events.max(self.counts.completion_tokens.unwrap_or(0))
    }

    /// The engine's counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    fn find_counts(&mut self, chunk: &[u8]) {
        if self.carried > 0 {
            let mut seam = [0; 2 * CARRY];
            let fresh = chunk.len().min(CARRY);
            let end = self.carried + fresh;
            seam[..self.carried].copy_from_slice(&self.carry[..self.carried]);
            seam[self.carried..end].copy_from_slice(&chunk[..fresh]);
            self.counts.find_in(&seam[..end]);
        }
        self.counts.find_in(chunk);
        let fresh = chunk.len().min(CARRY);
        let old = self.carried.min(CARRY - fresh);
        self.carry.copy_within(self.carried - old..self.carried, 0);
        self.carry[old..old + fresh].copy_from_slice(&chunk[chunk.len() - fresh..]);
        self.carried = old + fresh;
    }
}

/// Events with a JSON object that begin in these bytes; the blank after the colon may be absent.
fn json_events(bytes: &[u8]) -> u64 {
    let begins = |at: &usize| {
        let data = &bytes[at + b"data:".len()..];
        data.strip_prefix(b" ").unwrap_or(data).starts_with(b"{\"")
    };
    DATA.find_iter(bytes).filter(begins).count() as u64
}

impl Counts {
    fn find_in(&mut self, bytes: &[u8]) {
        for at in COUNT_KEY.find_iter(bytes) {
            let before = &bytes[..at];
            let slot = if before.ends_with(b"\"cached") {
                &mut self.cached_tokens
            } else if before.ends_with(b"\"prompt") {
                &mut self.prompt_tokens
            } else if before.ends_with(b"\"completion") {
                &mut self.completion_tokens
            } else {
                continue;
            };
            if let Some(count) = number_after(&bytes[at + b"_tokens\"".len()..]) {
                *slot = Some(count);
            }
        }
    }
}

/// The number in `: 123,`. Nothing if the bytes end before the number does: it might go on.
fn number_after(bytes: &[u8]) -> Option<u64> {
    let value = bytes.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = value.iter().position(|byte| !byte.is_ascii_digit())?;
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = concat!(
        ": ping\n\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a \\\"cached_tokens\\\": 99,\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2271,\"total_tokens\": 2300,",
        "\"completion_tokens\":29,\"prompt_tokens_details\":{\"cached_tokens\": 2135}}}\n\n",
        "data: [DONE]\n\n",
    );

    #[test]
    fn a_stream_in_pieces_of_any_size_gives_the_same_counts() {
        for size in [1, 2, 3, 7, 20, 48, 49, 1000] {
            let mut meter = Meter::new(true);
            let firsts = CHAT.as_bytes().chunks(size).filter(|chunk| meter.see(chunk)).count();
            assert_eq!(firsts, 1, "pieces of {size}");
            let counts =
                Counts { prompt_tokens: Some(2271), cached_tokens: Some(2135), completion_tokens: Some(29) };
            assert_eq!(meter.counts(), counts, "pieces of {size}");
            assert_eq!(meter.output_tokens(), 29);
        }
    }

    #[test]
    fn the_first_token_is_neither_the_role_nor_a_comment() {
        let mut meter = Meter::new(true);
        let (before, after) =
            CHAT.split_at(CHAT.find("data: {\"choices\":[{\"delta\":{\"content").expect("is there"));
        assert!(!meter.see(before.as_bytes()));
        assert!(meter.see(after.as_bytes()));
    }

    #[test]
    fn events_count_with_and_without_a_blank_and_not_inside_text() {
        let mut meter = Meter::new(true);
        assert!(meter.see(b"data:{\"text\":\"a\"}\n\n"));
        meter.see(b"data:{\"text\":\"b data: {\\\"\"}\n\ndata: {\"text\":\"c\"}\n\ndata: [DONE]\n\n");
        assert_eq!(meter.output_tokens(), 3);
    }

    #[test]
    fn a_buffered_answer_has_counts_but_no_first_token() {
        let mut meter = Meter::new(false);
        assert!(!meter.see(br#"{"text":"x","meta_info":{"prompt_tokens":6,"cached_tokens":3}}"#));
        assert_eq!(meter.counts().prompt_tokens, Some(6));
        assert_eq!(meter.counts().cached_tokens, Some(3));
    }
}
