//! Bodies that are not what they should be. Their length stays, as it may have been told in the head.

use bytes::Bytes;

use crate::fault::Garbage;

/// What the data of an event begins with.
const FIELD: &[u8] = b"data: ";
/// What an event ends with.
const END: &[u8] = b"\n\n";

/// Breaks one answer's body, chunk by chunk. Chunks of streams hold whole events.
#[derive(Debug)]
pub(super) struct Garbler {
    what: Garbage,
    /// The body is a stream of events.
    is_stream: bool,
    events: u64,
}

impl Garbler {
    pub(super) fn new(what: Garbage, is_stream: bool) -> Self {
        Self { what, is_stream, events: 0 }
    }

    pub(super) fn garble(&mut self, chunk: &[u8]) -> Bytes {
        let mut out = chunk.to_vec();
        if !self.is_stream {
            if self.what == Garbage::Json {
                break_json(&mut out);
            }
            return out.into();
        }
        let mut from = 0;
        while from < out.len() {
            let length = out[from..].windows(END.len()).position(|two| two == END);
            let to = length.map_or(out.len(), |length| from + length + END.len());
            self.event(&mut out[from..to]);
            from = to;
        }
        out.into()
    }

    /// Breaks an event at its line of data, which may have the event's name before it.
    fn event(&mut self, event: &mut [u8]) {
        let Some(end) = event.len().checked_sub(END.len()).filter(|end| event[*end..] == *END) else {
            return;
        };
        let Some(line) = line_of_data(&event[..end]) else { return };
        let data = line + FIELD.len()..end;
        match self.what {
            Garbage::Json => break_json(&mut event[data]),
            Garbage::Sse => match self.events % 3 {
                0 => event[line..][..4].copy_from_slice(b"date"),
                1 => event[data].iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0xff),
                _ => event[end..].copy_from_slice(b"  "),
            },
        }
        self.events += 1;
    }
}

/// Where the line of data begins.
fn line_of_data(event: &[u8]) -> Option<usize> {
    let mut begins = 0;
    for line in event.split(|byte| *byte == b'\n') {
        if line.starts_with(FIELD) {
            return Some(begins);
        }
        begins += line.len() + 1;
    }
    None
}

/// The object does not end.
fn break_json(text: &mut [u8]) {
    if let Some(last) = text.iter_mut().rev().find(|byte| matches!(**byte, b'}' | b']')) {
        *last = b'{';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_broken_wherever_it_stands() {
        assert_eq!(Garbler::new(Garbage::Json, false).garble(b"{\"a\":[1]}"), "{\"a\":[1]{");
        let mut garbler = Garbler::new(Garbage::Json, true);
        let named = garbler.garble(b"event: a\ndata: {}\n\nevent: b\ndata: {\"c\":{}}\n\n");
        assert_eq!(named, "event: a\ndata: {{\n\nevent: b\ndata: {\"c\":{}{\n\n", "each of several");
        assert_eq!(garbler.garble(b"data: {}\n\ndata: [DONE]\n\n"), "data: {{\n\ndata: [DONE{\n\n");
    }

    #[test]
    fn events_are_broken_in_three_ways() {
        let whole = Garbler::new(Garbage::Sse, false).garble(b"{\"a\":[1]}");
        assert_eq!(whole, "{\"a\":[1]}", "a whole answer has no events");
        let mut garbler = Garbler::new(Garbage::Sse, true);
        assert_eq!(garbler.garble(b"data: {}\n\n"), "date: {}\n\n");
        let two = garbler.garble(b"data: {12}\n\ndata: {}\n\n");
        assert_eq!(two[..], *b"data: {\xff2\xff\n\ndata: {}  ");
        let named = garbler.garble(b"event: a\ndata: {}\n\nevent: b\ndata: {}\n\nevent: c\ndata: {}\n\n");
        assert_eq!(named[..], *b"event: a\ndate: {}\n\nevent: b\ndata: {\xff\n\nevent: c\ndata: {}  ");
    }
}
