//! The log-probabilities of a prompt, from the answer of the engine that computed it into the answer of the engine that
//! generated.
//!
//! They are lists in `meta_info` of SGLang's `/generate`, whose names all begin with `input_`. Every list of the prefill
//! engine goes in front of what the decode engine has under the same name. Numbers keep their spelling.

use crate::splice::{Member, splice};
use crate::sse::{Event, Splitter};
use crate::view::cursor::{Cursor, Value};
use crate::view::fields::{fields, number};

const META_INFO: &str = "meta_info";
const PREFIX: &[u8] = b"input_";

/// A name, and a list without its brackets and the white space around it.
type List = (Box<str>, Box<[u8]>);

/// The lists of an answer, by the place of their item in its batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputLists(Vec<Vec<List>>);

fields! {
    /// One answer.
    Answer { meta_info, index }
}

impl InputLists {
    /// Reads the prefill engine's answer: an object, a list of them or a stream of events.
    #[must_use]
    pub fn read(answer: &[u8]) -> Self {
        let mut lists = Self::default();
        each_frame(answer, |at, item| lists.take(at, item));
        lists
    }

    /// Whether there is nothing to merge.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    /// Which items there are lists for.
    pub(super) fn present(&self) -> Vec<bool> {
        self.0.iter().map(|lists| !lists.is_empty()).collect()
    }

    /// The decode engine's whole answer with these lists in it, item by item; `None` if it stays as it is.
    #[must_use]
    pub fn merged(&self, answer: &[u8]) -> Option<Vec<u8>> {
        let (mut out, mut from) = (Vec::new(), 0);
        each_item(answer, |at, item| {
            if let Some(merged) = self.merged_item(at, item) {
                let begin = offset(answer, item);
                out.extend_from_slice(&answer[from..begin]);
                out.extend_from_slice(&merged);
                from = begin + item.len();
            }
        });
        if from == 0 {
            return None;
        }
        out.extend_from_slice(&answer[from..]);
        Some(out)
    }

    /// The answer to one item, with its lists in it; `None` if it stays as it is.
    pub(super) fn merged_item(&self, at: usize, item: &[u8]) -> Option<Vec<u8>> {
        let lists = self.0.get(at).filter(|lists| !lists.is_empty())?;
        let meta = meta_info(item)?;
        let own = input_lists(meta);
        let members = lists.iter().map(|(name, first)| {
            let after = own.iter().find(|(other, _)| other == name).map_or(&b""[..], |(_, list)| list);
            let comma: &[u8] = if first.is_empty() || after.is_empty() { b"" } else { b"," };
            let whole = [b"[", &**first, comma, after, b"]"].concat();
            Member::new(name, String::from_utf8_lossy(&whole))
        });
        let meta = splice(meta, &members.collect::<Vec<_>>()).ok()?;
        let meta = Member::new(META_INFO, String::from_utf8_lossy(&meta));
        splice(item, &[meta]).ok()
    }

    /// Takes the lists of one item; of several frames about the same one, the last that has a list counts.
    fn take(&mut self, at: usize, item: &[u8]) {
        let Some(meta) = meta_info(item) else { return };
        // What an engine says is its place is believed as far as a batch can be long.
        if at >= super::MAX_ITEMS {
            return;
        }
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Vec::new);
        }
        for list in input_lists(meta).into_iter().filter(|(_, list)| !list.is_empty()) {
            self.0[at].retain(|(name, _)| *name != list.0);
            self.0[at].push(list);
        }
    }
}

/// Calls `see` with each object of an answer, which may be a stream of them, and the place of the item that it is about.
pub(crate) fn each_frame(answer: &[u8], mut see: impl FnMut(usize, &[u8])) {
    if let Some(b'{' | b'[') = answer.trim_ascii_start().first() {
        return each_item(answer, see);
    }
    let mut splitter = Splitter::default();
    let mut event = |event: Event<'_>| {
        if let Some(at) = index(event.data) {
            see(at, event.data);
        }
    };
    // Of a stream with an event that is too long, what came before.
    let _ = splitter.push(answer, &mut event).and_then(|()| splitter.finish(event));
}

/// Calls `see` with each item of an answer and its place.
fn each_item<'a>(answer: &'a [u8], mut see: impl FnMut(usize, &'a [u8])) {
    let mut cursor = Cursor::new(answer);
    match cursor.value() {
        Some(Value::Object(item)) => see(0, item),
        Some(Value::Array(list)) => {
            let mut at = 0;
            super::elements(list, |element| {
                if let Value::Object(item) = element {
                    see(at, item);
                }
                at += 1;
            });
        }
        _ => {}
    }
}

/// The place of the item that a frame of a stream is about; `None` if the frame is no object.
pub(super) fn index(frame: &[u8]) -> Option<usize> {
    let answer = answer(frame)?;
    Some(number(answer.index).and_then(|at| usize::try_from(at).ok()).unwrap_or(0))
}

fn answer(item: &[u8]) -> Option<Answer<'_>> {
    let mut answer = Answer::default();
    answer.read(&mut Cursor::new(item))?;
    Some(answer)
}

fn meta_info(item: &[u8]) -> Option<&[u8]> {
    match answer(item)?.meta_info {
        Some(Value::Object(meta)) => Some(meta),
        _ => None,
    }
}

fn input_lists(meta: &[u8]) -> Vec<List> {
    let mut lists = Vec::new();
    let _ = Cursor::new(meta).members(|name, cursor| {
        let value = cursor.value()?;
        if let Value::Array(list) = value
            && name.raw().starts_with(PREFIX)
        {
            let inner = list[1..list.len() - 1].trim_ascii();
            lists.push((name.text().into(), inner.into()));
        }
        Some(())
    });
    lists
}

/// Where a part of a text begins in it.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - whole.as_ptr().addr()
}
