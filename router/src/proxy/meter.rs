//! Reads along with an answer, cheaply: which bytes complete a token, how many there are, and the engine's counts.
//!
//! An event of a stream counts as a token if it bears output by the predicate that everyone shares; the role chunk of a
//! chat, empty deltas, the usage chunk, comments and `[DONE]` do not, nor what `/v1/responses` sends around its deltas.
//! A chunk that holds whole events is read where it lies; only pieces of events are copied.
//!
//! Inside a JSON string a quotation mark is escaped, so generated text can pretend to be neither a key nor a count.

mod glance;

use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::Finder;
use protocol::sse::Splitter;

use self::glance::bears_output;

/// The end of every key of a count that is looked for.
static COUNT_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"_tokens\""));
/// Longest event that is looked at; of a stream with a longer one only the beginnings of events are counted.
const MAX_EVENT: usize = 1 << 20;

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
    /// A stream was asked for, and no byte has come yet.
    Unopened,
    /// A stream of events.
    Stream {
        splitter: Splitter,
        /// What came so far ends between two events, and the splitter holds nothing.
        between: bool,
    },
    /// A stream with events that are too long to be looked at.
    Opaque,
    /// An answer in one piece: its tokens all come with its end.
    Buffered,
}

impl Meter {
    /// A meter for an answer to a request that asked for a stream of events, or not.
    pub(crate) fn new(streaming: bool) -> Self {
        let stage = if streaming { Stage::Unopened } else { Stage::Buffered };
        Self { stage, events: 0, counts: Counts::default(), carry: [0; CARRY], carried: 0 }
    }

    /// Takes the next bytes; how many tokens of a stream they complete.
    pub(crate) fn see(&mut self, chunk: &[u8]) -> u32 {
        if matches!(self.stage, Stage::Unopened) && !chunk.is_empty() {
            self.stage = Stage::opened_by(chunk);
        }
        let tokens = match &mut self.stage {
            Stage::Unopened | Stage::Buffered => 0,
            Stage::Opaque => beginnings(chunk),
            Stage::Stream { splitter, between } => {
                if *between && let Some(tokens) = whole_events(chunk) {
                    self.carried = 0;
                    self.counts.find_in(chunk);
                    self.events += u64::from(tokens);
                    return tokens;
                }
                let mut tokens = 0;
                let read = splitter.push(chunk, |event| tokens += u32::from(bears_output(event.data)));
                *between = chunk.ends_with(b"\n\n") || chunk.ends_with(b"\r\n\r\n");
                if read.is_err() {
                    self.stage = Stage::Opaque;
                    tokens += 1;
                }
                tokens
            }
        };
        self.find_counts(chunk);
        self.events += u64::from(tokens);
        tokens
    }

    /// Output tokens so far: what the engine said, or the number of events that bore output if that is more.
    pub(crate) fn output_tokens(&self) -> u64 {
        self.events.max(self.counts.completion_tokens.unwrap_or(0))
    }

    /// The engine's counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Looks for counts in a chunk that may begin or end in the midst of one.
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

impl Stage {
    /// What begins so. An answer in JSON is no stream, whatever was asked for.
    fn opened_by(chunk: &[u8]) -> Self {
        match chunk.trim_ascii_start().first() {
            Some(b'{' | b'[') => Self::Buffered,
            _ => Self::Stream { splitter: Splitter::new(MAX_EVENT), between: true },
        }
    }
}

/// The tokens in a chunk that holds nothing but whole events of one `data` line each, with or without an `event` line
/// before it, as engines send them; `None` if it may hold anything else.
fn whole_events(chunk: &[u8]) -> Option<u32> {
    let mut rest = chunk;
    let mut tokens = 0;
    while !rest.is_empty() {
        if rest.starts_with(b"event:") {
            rest = split_line(rest)?.1.strip_prefix(b"\n")?;
        }
        let (line, after) = split_line(rest)?;
        let data = line.strip_prefix(b"data:")?;
        rest = after.strip_prefix(b"\n\n")?;
        tokens += u32::from(bears_output(data.strip_prefix(b" ").unwrap_or(data)));
    }
    Some(tokens)
}

/// A line, and what follows from its end on, however it ends: all but a line feed is left to the splitter.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr2(b'\n', b'\r', bytes).map(|end| bytes.split_at(end))
}

/// Events with a JSON object that begin in these bytes.
fn beginnings(bytes: &[u8]) -> u32 {
    let events = memchr::memmem::find_iter(bytes, b"data:").filter(|at| {
        let data = &bytes[at + b"data:".len()..];
        data.strip_prefix(b" ").unwrap_or(data).starts_with(b"{\"")
    });
    u32::try_from(events.count()).unwrap_or(u32::MAX)
}

impl Counts {
    /// Takes the counts in these bytes. `/v1/responses` calls the prompt input and the completion output.
    fn find_in(&mut self, bytes: &[u8]) {
        for at in COUNT_KEY.find_iter(bytes) {
            let before = &bytes[..at];
            let slot = if before.ends_with(b"\"cached") {
                &mut self.cached_tokens
            } else if before.ends_with(b"\"prompt") || before.ends_with(b"\"input") {
                &mut self.prompt_tokens
            } else if before.ends_with(b"\"completion") || before.ends_with(b"\"output") {
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

/// More tokens than this no request has; sums of what is below are far from an overflow.
const MOST_TOKENS: u64 = 1 << 32;

/// The whole number in `: 123,`. Nothing if the bytes end before the number does: it might go on.
fn number_after(bytes: &[u8]) -> Option<u64> {
    let value = bytes.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = value.iter().position(|byte| !byte.is_ascii_digit())?;
    // `1.9`, `1e3` and `0x10` are other numbers than they begin with.
    let is_whole = matches!(value[digits], b',' | b'}' | b']') || value[digits].is_ascii_whitespace();
    let count = std::str::from_utf8(&value[..digits]).ok()?.parse().ok()?;
    Some(count).filter(|count| is_whole && *count <= MOST_TOKENS)
}

#[cfg(test)]
mod tests;
