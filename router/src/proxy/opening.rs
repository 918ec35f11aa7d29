//! The opening of a decode worker's answer, which is looked at before anything of it goes to the client.
//!
//! SGLang sends the head of a stream at once, so that a transfer which fails afterwards is told of in the first event of an
//! answer of success. Until that event is whole, its bytes are held back; then they go on at once, or the try has failed.

use http::{HeaderMap, header};
use protocol::pd;
use protocol::sse::Splitter;

use super::ours::{Ours, Reason};

/// As much is held back, in bytes, of a stream whose first event does not end.
const MAX_HELD: usize = 16 << 10;

/// What has come of an answer.
pub(super) struct Opening {
    ours: Ours,
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
    /// The engine has given up.
    GivenUp(pd::Failed),
    /// It refuses what is the router's doing.
    Ours(Reason),
}

impl Opening {
    /// That of an answer with these header fields.
    pub(super) fn of(headers: &HeaderMap, ours: Ours) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let form = if headers.contains_key(header::CONTENT_ENCODING) {
            Form::Opaque
        } else if kind.to_ascii_lowercase().starts_with(b"text/event-stream") {
            Form::Stream(Splitter::new(MAX_HELD))
        } else {
            Form::Piece
        };
        Self { ours, form, length: 0 }
    }

    /// Takes the next bytes.
    pub(super) fn see(&mut self, bytes: &[u8]) -> Sight {
        self.length += bytes.len();
        let ours = self.ours;
        match &mut self.form {
            Form::Opaque => Sight::Fine,
            Form::Piece if self.length > MAX_HELD => Sight::Fine,
            Form::Piece => Sight::of(bytes, ours),
            Form::Stream(splitter) => {
                let mut first = None;
                let read = splitter.push(bytes, |event| {
                    first.get_or_insert_with(|| Sight::of(event.data, ours));
                });
                match first {
                    Some(sight) => sight,
                    None if read.is_err() || self.length > MAX_HELD => Sight::Fine,
                    None => Sight::More,
                }
            }
        }
    }

    /// Its end has come.
    pub(super) fn finish(self) -> Sight {
        let Form::Stream(splitter) = self.form else { return Sight::Fine };
        let mut sight = Sight::Fine;
        // An event that is too long is passed by.
        let _ = splitter.finish(|event| sight = Sight::of(event.data, self.ours));
        sight
    }
}

impl Sight {
    /// That of a whole answer or event. What is wrong with the request the client is to know.
    fn of(answer: &[u8], ours: Ours) -> Self {
        match pd::failure(answer) {
            Some(failed) if failed.status >= 500 => Self::GivenUp(failed),
            Some(_) => ours.reason(answer).map_or(Self::Fine, Self::Ours),
            None => Self::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const ABORT: &[u8] = b"data: {\"text\":\"\",\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"status_code\":500}}}\n\n";
    const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";
    const TWICE: &[u8] = b"data: {\"error\":{\"message\":\"Duplicate request ID detected: a\"}}\n\n";
    const WRONG: &[u8] = b"data: {\"error\":{\"message\":\"too long\"}}\n\n";

    fn given_up(status: u16) -> Sight {
        Sight::GivenUp(pd::Failed { status, hand_off: None })
    }

    fn opening(fields: &[(header::HeaderName, &'static str)]) -> Opening {
        Opening::of(
            &fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect(),
            Ours { is_again: true, ..Ours::default() },
        )
    }

    fn stream() -> Opening {
        opening(&[(header::CONTENT_TYPE, "Text/Event-Stream; charset=utf-8")])
    }

    #[test]
    fn the_first_event_decides_however_its_bytes_come() {
        for (event, expected) in [
            (TOKEN, Sight::Fine),
            (ABORT, given_up(500)),
            (TWICE, Sight::Ours(Reason::Duplicate)),
            (WRONG, Sight::Fine),
        ] {
            assert_eq!(stream().see(event), expected);
            assert_eq!(stream().see(&[event, ABORT, TOKEN].concat()), expected, "not a later one");
            assert_eq!(stream().see(&[b": a comment\r\n\r\n", event].concat()), expected);
            let mut opening = stream();
            let (last, before) = event.split_last().expect("bytes");
            assert!(before.iter().all(|byte| opening.see(&[*byte]) == Sight::More));
            assert_eq!(opening.see(&[*last]), expected);
            let mut cut = stream();
            assert_eq!(cut.see(before), Sight::More);
            assert_eq!(cut.finish(), expected, "a stream may end without its last newline");
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
        assert_eq!(json().see(abort), given_up(503));
        assert_eq!(json().see(&abort[..20]), Sight::Fine);
        assert_eq!(opening(&[]).see(br#"{"text":"a"}"#), Sight::Fine);
        let coded = [(header::CONTENT_TYPE, "text/event-stream"), (header::CONTENT_ENCODING, "gzip")];
        assert_eq!(opening(&coded).see(b"\x1f\x8b"), Sight::Fine);
        assert_eq!(opening(&coded).finish(), Sight::Fine);
    }
}
