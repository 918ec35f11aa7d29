//! The same in a stream: each item's first frame that can hold its lists gets them, and everything else passes as it came.

use super::lists::{InputLists, index};

/// As much of an event is waited for before the stream passes as it is.
const MAX_FRAME: usize = 16 << 20;

/// Puts the lists into the frames of a stream, however its bytes arrive.
#[derive(Debug)]
pub struct Frames {
    lists: InputLists,
    /// The items with lists whose frame has not come.
    open: Vec<bool>,
    /// The beginning of an event.
    held: Vec<u8>,
    /// As much of it is known not to hold an event's end.
    searched: usize,
}

impl Frames {
    /// For a stream from its beginning.
    #[must_use]
    pub fn new(lists: InputLists) -> Self {
        let open = lists.present();
        Self { lists, open, held: Vec::new(), searched: 0 }
    }

    /// Whether the rest passes as it comes.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.held.is_empty() && !self.open.contains(&true)
    }

    /// Takes the next bytes; what goes on of the stream by that.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut out = Vec::new();
        let mut begin = 0;
        let mut from = std::mem::take(&mut self.searched);
        while self.open.contains(&true) {
            let Some(end) = event_end(&held, from) else {
                if held.len() - begin > MAX_FRAME {
                    self.open.clear();
                    break;
                }
                self.held = if begin == 0 { held } else { held[begin..].to_vec() };
                // An end has up to three bytes.
                self.searched = self.held.len().saturating_sub(2);
                return out;
            };
            let event = &held[begin..end];
            match self.merged(event) {
                Some(merged) => out.extend_from_slice(&merged),
                None => out.extend_from_slice(event),
            }
            (begin, from) = (end, end);
        }
        out.extend_from_slice(&held[begin..]);
        out
    }

    /// The stream has ended: what was held back of it.
    pub fn finish(&mut self) -> Vec<u8> {
        self.open.clear();
        std::mem::take(&mut self.held)
    }

    /// An event with its lists, if it is the first one of its item that can hold them.
    fn merged(&mut self, event: &[u8]) -> Option<Vec<u8>> {
        let begin = data_begin(event)?;
        let length = memchr::memchr2(b'\n', b'\r', &event[begin..])?;
        let data = &event[begin..begin + length];
        let at = index(data)?;
        let open = self.open.get_mut(at).filter(|open| **open)?;
        let merged = self.lists.merged_item(at, data);
        *open = merged.is_none();
        Some([&event[..begin], &merged?, &event[begin + length..]].concat())
    }
}

/// Where the first event ends, with its blank line, that ends behind `from`.
fn event_end(bytes: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let at = from + memchr::memchr(b'\n', &bytes[from..])?;
        match &bytes[at + 1..] {
            [b'\n', ..] => return Some(at + 2),
            [b'\r', b'\n', ..] => return Some(at + 3),
            _ => from = at + 1,
        }
    }
}

/// Where the data of an event begins that has a line of it.
fn data_begin(event: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        if let Some(data) = event[from..].strip_prefix(b"data:") {
            let blank = usize::from(data.first() == Some(&b' '));
            return Some(from + b"data:".len() + blank);
        }
        from += memchr::memchr(b'\n', &event[from..])? + 1;
    }
}
