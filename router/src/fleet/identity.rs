//! The id under which operators know a worker. It is made of where the worker is, so two registrations of one worker
//! have one id, at the same time and after a restart of the router.

use std::fmt;

use crate::upstream::Address;

/// In the form of a UUID (RFC 9562, version 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity(u128);

impl Identity {
    /// The id of whoever is dialled like this.
    pub(crate) fn of(address: &Address) -> Self {
        Self::of_text(&address.dialled())
    }

    /// The id of a data-parallel rank of the engine that is dialled like this; without one, of the whole engine.
    pub(crate) fn of_rank(address: &Address, rank: Option<u32>) -> Self {
        match rank {
            None => Self::of(address),
            Some(rank) => Self::of_text(&format!("{}@{rank}", address.dialled())),
        }
    }

    fn of_text(text: &str) -> Self {
        const VERSION: u128 = 8 << 76;
        const VARIANT: u128 = 2 << 62;
        let hash = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        Self(hash & !(0xf << 76) & !(3 << 62) | VERSION | VARIANT)
    }

    /// Reads the form with hyphens.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hyphens = [8, 13, 18, 23];
        let is_form = text.len() == 36
            && text.bytes().enumerate().all(|(at, byte)| match hyphens.contains(&at) {
                true => byte == b'-',
                false => byte.is_ascii_hexdigit(),
            });
        let digits = is_form.then(|| text.replace('-', ""))?;
        u128::from_str_radix(&digits, 16).ok().map(Self)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        f.write_str(&parts.join("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_has_one_id_however_it_is_spelled() {
        let id = |url| Identity::of(&Address::parse(url).expect(url));
        assert_eq!(id("http://W:80/"), id("http://w"));
        assert_ne!(id("http://w:81"), id("http://w"));
        let rank = |url, rank| Identity::of_rank(&Address::parse(url).expect(url), rank);
        assert_eq!(rank("http://W:80/", Some(1)), rank("http://w", Some(1)));
        assert_eq!(rank("http://w", None), id("http://w"));
        assert_ne!(rank("http://w", Some(0)), rank("http://w", Some(1)));
        assert_ne!(rank("http://w", Some(0)), id("http://w"));
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = Identity::of(&Address::parse("http://127.0.0.1:1").expect("a URL"));
        let text = id.to_string();
        assert_eq!((text.len(), &text[14..15]), (36, "8"));
        assert_eq!(Identity::parse(&text), Some(id));
        for wrong in ["", "x", &text[1..], &text.replace('-', "0"), &format!("{text}0")] {
            assert_eq!(Identity::parse(wrong), None, "{wrong}");
        }
    }
}
