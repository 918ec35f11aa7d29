//! What is asked for in a URL, read as SGLang's web framework reads it: nothing in it is malformed, what is not UTF-8 is
//! replaced, and of several values the last counts.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query as Pairs};
use axum::http::Uri;
use axum::http::request::Parts;

/// The query of a URL.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// The value of `key`.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let pairs = Pairs::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        Ok(pairs.map(|Pairs(pairs)| Self(pairs)).unwrap_or_default())
    }
}

/// What comes after `prefix` in the path, decoded.
pub(super) fn after(prefix: &str, uri: &Uri) -> String {
    let rest = uri.path().strip_prefix(prefix).unwrap_or_default().as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    let mut at = 0;
    while let Some(byte) = rest.get(at) {
        let code = rest.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(hex);
        decoded.push(code.unwrap_or(*byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let value = |digit: &u8| char::from(*digit).to_digit(16);
    digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + value(digit)?)).map(|code| code as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_whatever_they_hold() {
        let cases = [
            ("/m/org%2Fname", "org/name"),
            ("/m/a%20b%C3%A9", "a bé"),
            ("/m/%ff", "\u{fffd}"),
            ("/m/%zz%4", "%zz%4"),
            ("/m/%+1", "%+1"),
            ("/other", ""),
        ];
        for (path, decoded) in cases {
            assert_eq!(after("/m/", &path.parse().unwrap()), decoded, "{path}");
        }
    }
}
