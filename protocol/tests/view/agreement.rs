//! The reader against the oracle, on valid JSON of any form.

use proptest::prelude::*;
use protocol::view::{Prompt, RequestView};

use crate::bodies::{body, style, write};
use crate::{DIALECTS, oracle, read};

/// Whether an escape of half a surrogate pair may be in it: the oracle refuses one that stands alone.
fn may_have_surrogates(json: &str) -> bool {
    json.to_ascii_lowercase().contains("\\ud")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_valid_body_is_read_as_by_a_full_parser(json in body(), style in style()) {
        let body = write(&json, &style);
        for dialect in DIALECTS {
            let expected = oracle::view(dialect, &body).expect("the body is JSON");
            prop_assert_eq!(read(dialect, &body), expected, "{:?} {}", dialect, body);
        }
    }

    #[test]
    fn a_damaged_body_is_read_without_a_panic_and_rightly_where_it_is_still_json(
        json in body(),
        style in style(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8, any::<u8>()), 1..4),
    ) {
        let mut body = write(&json, &style).into_bytes();
        for (at, kind, byte) in damage {
            let at = at.index(body.len());
            match kind {
                0 => body[at] = byte,
                1 => body[at] = b"\"\\{}[]:,u "[usize::from(byte) % 10],
                2 => body.insert(at, b"\"\\{}[]:,u\xFF"[usize::from(byte) % 10]),
                _ => drop(body.remove(at)),
            }
            if body.is_empty() {
                return Ok(());
            }
        }
        let text = std::str::from_utf8(&body).ok().filter(|text| !may_have_surrogates(text));
        for dialect in DIALECTS {
            let view = RequestView::read(dialect, &body);
            let _ = (view.prompt.first(), view.prompt.estimated_tokens());
            if let Some(expected) = text.and_then(|text| oracle::view(dialect, text)) {
                prop_assert_eq!(view, expected, "{:?} {:?}", dialect, text);
            }
        }
    }

    #[test]
    fn a_body_that_breaks_off_or_goes_on_has_no_prompt(
        json in body(),
        style in style(),
        cut in any::<prop::sample::Index>(),
    ) {
        let body = write(&json, &style);
        let end = body.trim_end().len();
        let cut = &body.as_bytes()[..cut.index(end)];
        let more = format!("{body}x");
        for dialect in DIALECTS {
            prop_assert_eq!(RequestView::read(dialect, cut).prompt, Prompt::Unreadable);
            prop_assert_eq!(read(dialect, &more).prompt, Prompt::Unreadable);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in any::<Vec<u8>>()) {
        for dialect in DIALECTS {
            let _ = RequestView::read(dialect, &bytes);
        }
    }
}
