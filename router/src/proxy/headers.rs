//! Which header fields cross the router.
//!
//! All end-to-end fields do, in both directions, repeated ones included. What concerns one connection only
//! (RFC 9110 section 7.6.1, with the older names) is dropped, and so is whatever `Connection` names.

use http::HeaderValue;
use http::header::{self, HeaderMap, HeaderName};

/// Fields of one connection, whether `Connection` names them or not.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Whether a message is framed in no other way than this hop undoes: a body that is encoded for the transfer besides
/// being cut in chunks would lose that coding with the field that tells it.
pub(crate) fn is_plainly_framed(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first_is_plain = codings.next().is_none_or(|only| only.as_bytes().eq_ignore_ascii_case(b"chunked"));
    first_is_plain && codings.next().is_none()
}

/// Makes an answer's `Content-Length` true, or drops it: `length` is that of the body as it was understood. A worker may
/// state one beside a transfer coding, where it counts for nothing (RFC 9112, section 6.3), or state it twice.
pub(crate) fn settle_length(headers: &mut HeaderMap, length: Option<u64>) {
    if !headers.contains_key(header::CONTENT_LENGTH) {
        return;
    }
    match length {
        Some(length) if !headers.contains_key(header::TRANSFER_ENCODING) => {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        _ => {
            headers.remove(header::CONTENT_LENGTH);
        }
    }
}

/// Drops the fields that end at this hop.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
    }
    // Most messages have none: one walk over their few names is cheaper than looking each of these up.
    while let Some(name) = headers.keys().find(|name| HOP_BY_HOP.contains(name)).cloned() {
        headers.remove(name);
    }
}

/// The fields that `Connection` lists. Framing is ours to decide, so a list cannot remove it.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lists = headers.get_all(header::CONNECTION).iter().filter_map(|list| list.to_str().ok());
    let names = lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok());
    names.filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    #[test]
    fn only_what_concerns_the_connection_is_dropped() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Own"),
            ("connection", "x-second,, content-length"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("x-own", "1"),
            ("x-second", "2"),
            ("content-length", "3"),
            ("x-kept", "a"),
            ("x-kept", "b"),
            ("authorization", "Bearer k"),
            ("set-cookie", "c"),
        ]);
        strip_hop_by_hop(&mut headers);
        let kept = map(&[
            ("content-length", "3"),
            ("x-kept", "a"),
            ("x-kept", "b"),
            ("authorization", "Bearer k"),
            ("set-cookie", "c"),
        ]);
        assert_eq!(headers, kept);
    }
}
