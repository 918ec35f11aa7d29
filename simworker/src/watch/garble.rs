//! Bodies that are not what they should be. Their length stays, as it may have been told in the head.

use bytes::Bytes;

use crate::fault::Garbage;

/// What an event of a stream begins with.
const FIELD: &[u8] = b"data: ";
/// What it ends with.
const END: &[u8] = b"\n\n";

/// Breaks one answer's body, chunk by chunk. Chunks of streams hold whole events.
#[derive(Debug)]
pub(super) struct Garbler {
    what: Garbage,
    events: u64,
}

impl Garbler {
    pub(super) fn new(what: Garbage) -> Self {
        Self { what, events: 0 }
    }

    pub(super) fn garble(&mut self, chunk: &[u8]) -> Bytes {
        let mut out = chunk.to_vec();
        if !chunk.starts_with(FIELD) {
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

    fn event(&mut self, event: &mut [u8]) {
        let Some(data) = FIELD.len().checked_add(END.len()).and_then(|least| event.len().checked_sub(least))
        else {
            return;
        };
        match self.what {
            Garbage::Json => break_json(&mut event[FIELD.len()..][..data]),
            Garbage::Sse => match self.events % 3 {
                0 => event[..4].copy_from_slice(b"date"),
                1 => event[FIELD.len()..][..data].iter_mut().skip(1).step_by(2).for_each(|byte| *byte = 0xff),
                _ => event[FIELD.len() + data..].copy_from_slice(b"  "),
            },
        }
        self.events += 1;
    }
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
        let mut garbler = Garbler::new(Garbage::Json);
        assert_eq!(garbler.garble(b"{\"a\":[1]}"), "{\"a\":[1]{");
        assert_eq!(garbler.garble(b"data: {}\n\ndata: [DONE]\n\n"), "data: {{\n\ndata: [DONE{\n\n");
    }

    #[test]
    fn events_are_broken_in_three_ways() {
        let mut garbler = Garbler::new(Garbage::Sse);
        assert_eq!(garbler.garble(b"{\"a\":[1]}"), "{\"a\":[1]}", "a whole answer has no events");
        assert_eq!(garbler.garble(b"data: {}\n\n"), "date: {}\n\n");
        let two = garbler.garble(b"data: {12}\n\ndata: {}\n\n");
        assert_eq!(two[..], *b"data: {\xff2\xff\n\ndata: {}  ");
    }
}
