//! A file that is looked at again and again, by what it contains.

use std::path::Path;

/// Tells one content of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents(u128);

/// Which content was taken over last, and which was seen last. Nothing: there was no file that could be read.
#[derive(Debug)]
pub(super) struct Watch {
    taken: Option<Contents>,
    seen: Option<Contents>,
}

impl Contents {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(bytes))
    }

    /// Of a file that can be read.
    pub(super) fn of_file(path: &Path) -> Option<Self> {
        std::fs::read(path).ok().map(|bytes| Self::of(&bytes))
    }
}

impl Watch {
    /// A file that was read when it was so.
    pub(super) fn new(taken: Option<Contents>) -> Self {
        Self { taken, seen: taken }
    }

    /// This is what it contains now. True if that is news, and was so at the look before too: a file that is being written
    /// in place is half a file for a moment, or an empty one, and that may be read without a complaint.
    pub(super) fn look(&mut self, now: Option<Contents>) -> bool {
        let is_settled = std::mem::replace(&mut self.seen, now) == now;
        is_settled && now != self.taken
    }

    /// What was taken over, of use or not.
    pub(super) fn take(&mut self, contents: Option<Contents>) {
        self.taken = contents;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_is_what_stays_and_was_not_taken() {
        let of = |text: &str| (text != "-").then(|| Contents::of(text.as_bytes()));
        let mut watch = Watch::new(of("a"));
        let mut looks = |texts: &str| texts.split(' ').map(|text| watch.look(of(text))).collect::<Vec<_>>();
        assert_eq!(looks("a a b a"), [false; 4], "it came and went");
        assert_eq!(looks("b c d"), [false; 3], "it is being written");
        assert_eq!(looks("d"), [true], "it stays");
        assert_eq!(looks("- -"), [false, true], "it has gone");
    }

    #[test]
    fn what_was_taken_is_no_news_however_it_was_asked_for() {
        let of = |text: &str| Some(Contents::of(text.as_bytes()));
        let mut watch = Watch::new(of("a"));
        watch.take(of("b"));
        assert_eq!([watch.look(of("b")), watch.look(of("b"))], [false, false]);
        assert_eq!([watch.look(of("a")), watch.look(of("a"))], [false, true]);
    }
}
