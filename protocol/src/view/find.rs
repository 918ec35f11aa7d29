//! Finding the next byte of a kind. JSON has its marks close together between long texts, so a few bytes are looked
//! at one by one before the vector search, which has a price per call, takes over.

use memchr::{memchr, memchr3};

/// How many bytes are looked at one by one.
const NEAR: usize = 8;

/// The first quotation mark.
pub(super) fn quote(text: &[u8]) -> Option<usize> {
    find([b'"'], text, |far| memchr(b'"', far))
}

/// The first backslash.
pub(super) fn backslash(text: &[u8]) -> Option<usize> {
    find([b'\\'], text, |far| memchr(b'\\', far))
}

/// The first quotation mark or bracket of the kind at hand.
pub(super) fn structural(text: &[u8], open: u8, close: u8) -> Option<usize> {
    find([b'"', open, close], text, |far| memchr3(b'"', open, close, far))
}

#[inline]
fn find<const N: usize>(
    needles: [u8; N],
    text: &[u8],
    far: impl Fn(&[u8]) -> Option<usize>,
) -> Option<usize> {
    let near = text.len().min(NEAR);
    let found = text[..near].iter().position(|byte| needles.contains(byte));
    found.or_else(|| far(&text[near..]).map(|at| near + at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_plain_search(text in proptest::collection::vec(prop_oneof![
            Just(b'"'), Just(b'!'), Just(b'#'), Just(b'['), Just(b'Z'), Just(b']'), Just(b'\\'), Just(0xA2), Just(0), Just(b'a'),
        ], 0..40), pad in 0..20_usize) {
            let mut bytes = vec![b'a'; pad];
            bytes.extend(text);
            let plain = |needles: &[u8]| bytes.iter().position(|byte| needles.contains(byte));
            prop_assert_eq!(quote(&bytes), plain(b"\""));
            prop_assert_eq!(backslash(&bytes), plain(b"\\"));
            prop_assert_eq!(structural(&bytes, b'[', b']'), plain(b"\"[]"));
        }
    }
}
