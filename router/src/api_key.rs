//! The keys that clients and operators must show, where there are any.

mod operators;

use std::fmt;

use http::{HeaderMap, HeaderValue, header};

pub(crate) use operators::{AdminKeys, AdminRole};

/// A secret: its text leaves this module in no other way than by comparison.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ApiKey(String);

impl ApiKey {
    /// What a key is, for whoever gave something else.
    pub(crate) const FORM: &str = "one or more visible ASCII characters, without blanks";

    /// A key that a header field can carry; `None` if none can.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let sendable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        sendable.then(|| Self(text.to_owned()))
    }

    /// What shows it: the value of `Authorization`.
    pub(crate) fn credential(&self) -> HeaderValue {
        let mut value =
            HeaderValue::try_from(format!("Bearer {}", self.0)).unwrap_or(HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }

    /// Whether the request shows this key: `Authorization: Bearer KEY`.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        shown(headers).is_some_and(|shown| same(shown, self.0.as_bytes()))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// The key that a request shows.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()))
}

/// The token of a `Bearer` credential; the scheme's case does not matter (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that tells nothing but the length.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (x, y)| std::hint::black_box(bits | (x ^ y)));
    a.len() == b.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_whole_key_as_a_bearer_is_admitted() {
        let key = ApiKey::new("sk-1").expect("a key");
        let admits = |value: &'static str| {
            key.admits(&HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))]))
        };
        for value in ["Bearer sk-1", "bearer sk-1", "BEARER  sk-1"] {
            assert!(admits(value), "{value}");
        }
        for value in
            ["", "sk-1", "Bearer", "Bearer ", "Bearer sk-", "Bearer sk-2", "Bearer sk-11", "Basic sk-1"]
        {
            assert!(!admits(value), "{value}");
        }
        assert!(!key.admits(&HeaderMap::new()));
    }

    #[test]
    fn a_key_is_never_shown() {
        assert!(!format!("{:?}", ApiKey::new("sk-1")).contains("sk-1"));
    }

    #[test]
    fn what_no_header_can_carry_is_no_key() {
        assert!(["", "a b", "a\n", "é"].iter().all(|text| ApiKey::new(text).is_none()));
    }
}
