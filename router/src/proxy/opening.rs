//! The opening of a decode worker's answer, which is looked at before anything of it goes to the client.
//!
//! SGLang sends the head of a stream at once, so that a transfer which fails afterwards is told of in the first event of an
//! answer of success. Until that event is whole, its bytes are held back; then they go on at once, or the try has failed.

use http::{HeaderMap, header};
use protocol::pd;
use protocol::sse::Splitter;

/// As much is held back, in bytes, of a stream whose first event does not end.
const MAX_HELD: usize = 16 << 10;

/// What has come of an answer.
pub(super) struct Opening {
    form: Form,
    /// How many bytes.
    length: usize,
}

enum Form {
    Stream(Splitter),
    /// In one piece, or in pieces that are none of events: what comes first is looked at, and no more is waited for.
    Piece,
    /// What is compressed cannot be read.
    Opaque,
}

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Too little.
    More,
    /// It may go on.
    Fine,
    /// The engine has given up, with this status.
    GivenUp(u16),
}

impl Opening {
    /// That of an answer with these header fields.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let form = if headers.contains_key(header::CONTENT_ENCODING) {
            Form::Opaque
        } else if kind.to_ascii_lowercase().starts_with(b"text/event-stream") {
            Form::Stream(Splitter::new(MAX_HELD))
        } else {
            Form::Piece
        };
        Self { form, length: 0 }
    }

    /// Takes the next bytes.
    pub(super) fn see(&mut self, bytes: &[u8]) -> Sight {
        self.length += bytes.len();
        match &mut self.form {
            Form::Opaque => Sight::Fine,
            Form::Piece if self.length > MAX_HELD => Sight::Fine,
            Form::Piece => Sight::of(pd::failure(bytes)),
            Form::Stream(splitter) => {
                let mut first = None;
                let read = splitter.push(bytes, |event| {
                    first.get_or_insert_with(|| Sight::of(pd::failure(event.data)));
                });
                match first {
                    Some(sight) => sight,
                    None if read.is_err() || self.length > MAX_HELD => Sight::Fine,
                    None => Sight::More,
                }
            }
        }
    }

    /// Its end has come: with which status the engine has given up, if it has.
    pub(super) fn finish(self) -> Option<u16> {
        let Form::Stream(splitter) = self.form else { return None };
        let mut failure = None;
        // An event that is too long is passed by.
        let _ = splitter.finish(|event| failure = pd::failure(event.data));
        failure
    }
}

impl Sight {
    fn of(failure: Option<u16>) -> Self {
        failure.map_or(Self::Fine, Self::GivenUp)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const ABORT: &[u8] = b"data: {\"text\":\"\",\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"status_code\":500}}}\n\n";
    const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";

    fn opening(fields: &[(header::HeaderName, &'static str)]) -> Opening {
        Opening::of(
            &fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect(),
        )
    }

    fn stream() -> Opening {
        opening(&[(header::CONTENT_TYPE, "Text/Event-Stream; charset=utf-8")])
    }

    #[test]
    fn the_first_event_decides_however_its_bytes_come() {
        for (event, expected) in [(TOKEN, Sight::Fine), (ABORT, Sight::GivenUp(500))] {
            assert_eq!(stream().see(event), expected);
            assert_eq!(stream().see(&[event, ABORT, TOKEN].concat()), expected, "not a later one");
            assert_eq!(stream().see(&[b": a comment\r\n\r\n", event].concat()), expected);
            let mut opening = stream();
            let (last, before) = event.split_last().expect("bytes");
            assert!(before.iter().all(|byte| opening.see(&[*byte]) == Sight::More));
            assert_eq!(opening.see(&[*last]), expected);
            let mut cut = stream();
            assert_eq!(cut.see(before), Sight::More);
            let failure = if expected == Sight::Fine { None } else { Some(500) };
            assert_eq!(cut.finish(), failure, "a stream may end without its last newline");
        }
    }

    #[test]
    fn no_more_is_held_than_a_first_event_takes() {
        let (mut one, mut comments) = (stream(), stream());
        let line = [&b":"[..], &[b'x'; 1 << 10], b"\n\n"].concat();
        for _ in 0..15 {
            assert_eq!(one.see(&[b'x'; 1 << 10]), Sight::More);
            assert_eq!(comments.see(&line), Sight::More);
        }
        assert_eq!(one.see(&[b'x'; (1 << 10) + 1]), Sight::Fine);
        assert_eq!(comments.see(&line), Sight::Fine);
    }

    #[test]
    fn what_is_no_stream_is_not_waited_for_and_what_is_compressed_is_not_read() {
        let abort = br#"{"meta_info":{"finish_reason":{"type":"abort","status_code":503}}}"#;
        let json = || opening(&[(header::CONTENT_TYPE, "application/json")]);
        assert_eq!(json().see(abort), Sight::GivenUp(503));
        assert_eq!(json().see(&abort[..20]), Sight::Fine);
        assert_eq!(opening(&[]).see(br#"{"text":"a"}"#), Sight::Fine);
        let coded = [(header::CONTENT_TYPE, "text/event-stream"), (header::CONTENT_ENCODING, "gzip")];
        assert_eq!(opening(&coded).see(b"\x1f\x8b"), Sight::Fine);
        assert_eq!(opening(&coded).finish(), None);
    }
}
