//! The id by which a request is known to its client, its worker and the log.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The field that carries the id to the worker and back to the client.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that is taken from a client; what is longer is no id but a load on every log line.
const MAX_LENGTH: usize = 128;

/// Characters of an id of our own, behind its prefix, as the gateway's ids have.
const OWN_LENGTH: usize = 24;

/// Letters and digits, two of them twice, so that six bits choose one.
const ALPHABET: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyzXx";

/// Different in every process, so that ids do not meet across restarts.
static SALT: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The id that the client sent in the first of these fields that has one, or a new one that begins with `prefix`.
pub(crate) fn of(headers: &HeaderMap, fields: &[HeaderName], prefix: &str) -> HeaderValue {
    let sent = fields.iter().find_map(|field| headers.get(field)).filter(|id| is_fit(id));
    sent.cloned().unwrap_or_else(|| new(prefix))
}

/// Visible ASCII of a bounded length: it can stand in a log line as it is.
fn is_fit(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=MAX_LENGTH).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}

fn new(prefix: &str) -> HeaderValue {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut id = Vec::with_capacity(prefix.len() + OWN_LENGTH);
    id.extend_from_slice(prefix.as_bytes());
    for part in 0..3_u64 {
        let mut bits = SALT.hash_one((number, part));
        for _ in 0..OWN_LENGTH / 3 {
            id.push(ALPHABET[(bits & 63) as usize]);
            bits >>= 6;
        }
    }
    // The alphabet and the prefixes are visible ASCII; an id that is not there is seen by everyone.
    HeaderValue::try_from(id).unwrap_or(HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const FIELDS: [HeaderName; 2] = [REQUEST_ID, HeaderName::from_static("x-correlation-id")];

    fn id(sent: &[(&'static str, &[u8])]) -> String {
        let fields = sent.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("a value"))
        });
        of(&fields.collect(), &FIELDS, "req-").to_str().expect("visible ASCII").to_owned()
    }

    #[test]
    fn the_first_field_with_an_id_counts() {
        assert_eq!(id(&[("x-request-id", b"a"), ("x-correlation-id", b"b")]), "a");
        assert_eq!(id(&[("x-correlation-id", b"b")]), "b");
        assert_eq!(id(&[("x-request-id", &[b'x'; MAX_LENGTH])]), "x".repeat(MAX_LENGTH));
    }

    #[test]
    fn what_is_no_fit_id_is_replaced() {
        let longer = [b'x'; MAX_LENGTH + 1];
        for sent in [&b""[..], b"a b", b"a\tb", "ä".as_bytes(), b"\xff", &longer] {
            let id = id(&[("x-request-id", sent)]);
            assert!(id.starts_with("req-") && id.len() == 4 + OWN_LENGTH, "{id}");
        }
    }

    #[test]
    fn new_ids_differ() {
        let ids: HashSet<_> = (0..10_000).map(|_| id(&[])).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
