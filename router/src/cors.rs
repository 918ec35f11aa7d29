//! Which web pages may use the router from a browser (the Fetch standard's CORS protocol).
//!
//! Closed unless its operator names origins: then no answer says anything about origins, and a preflight is a request
//! with a method that no path is served with. Who may read an answer is the router's to say and not a worker's, so what
//! workers say about it goes no further.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use crate::body::Body;
use crate::config::Cors;

/// What pages may send beside what they always may.
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, OPTIONS");
const ALLOWED_HEADERS: HeaderValue = HeaderValue::from_static("content-type, authorization, x-request-id");
/// What they may read beside what they always may.
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static("x-request-id");
/// Seconds for which a browser need not ask again.
const MAX_AGE: HeaderValue = HeaderValue::from_static("3600");

const ANY: HeaderValue = HeaderValue::from_static("*");

/// Names of the protocol's fields begin so.
const FIELDS: &str = "access-control-";

/// What an answer says about the origin of its request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing: no origin is allowed.
    Closed,
    /// The answer depends on the origin, and this one has no part in it.
    Denied,
    /// Pages of this origin may use it.
    Allowed(HeaderValue),
    /// Every page may.
    Any,
}

impl Cors {
    /// What is to be said to this request.
    pub(crate) fn judge(&self, headers: &HeaderMap) -> Verdict {
        let listed = match self {
            Self::Closed => return Verdict::Closed,
            Self::Any => return Verdict::Any,
            Self::Listed(origins) => origins,
        };
        let is_listed = |origin: &&HeaderValue| {
            listed.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
        };
        headers.get(ORIGIN).filter(is_listed).cloned().map_or(Verdict::Denied, Verdict::Allowed)
    }
}

impl Verdict {
    /// The whole answer, if the request is a browser's question whether its page may ask.
    pub(crate) fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let is_question = request.method() == Method::OPTIONS
            && request.headers().contains_key(ORIGIN)
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !is_question || !matches!(self, Self::Allowed(_) | Self::Any) {
            return None;
        }
        let mut response = Response::new(Body::own(""));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        self.allow_origin(headers);
        Some(response)
    }

    /// Says it in an answer, in place of what a worker says.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        if headers.keys().any(is_of_cors) {
            let said: Vec<HeaderName> = headers.keys().filter(|name| is_of_cors(name)).cloned().collect();
            for name in said {
                headers.remove(name);
            }
        }
        if matches!(self, Self::Allowed(_) | Self::Any) {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        }
        self.allow_origin(headers);
    }

    fn allow_origin(&self, headers: &mut HeaderMap) {
        match self {
            Self::Closed => return,
            Self::Any => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
                return;
            }
            Self::Allowed(origin) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            }
            Self::Denied => {}
        }
        // A cache must not give one origin's answer to another.
        if !varies_by_origin(headers) {
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
    }
}

fn is_of_cors(name: &HeaderName) -> bool {
    name.as_str().starts_with(FIELDS)
}

fn varies_by_origin(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(VARY).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|name| name.trim().eq_ignore_ascii_case("origin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(allowed: &[&'static str], origin: Option<&'static str>) -> Verdict {
        let cors = match allowed {
            [] => Cors::Closed,
            ["*"] => Cors::Any,
            list => Cors::Listed(list.iter().copied().map(HeaderValue::from_static).collect()),
        };
        cors.judge(&origin.map(|origin| (ORIGIN, HeaderValue::from_static(origin))).into_iter().collect())
    }

    #[test]
    fn only_named_origins_are_allowed() {
        let list = ["https://chat.example", "http://localhost:3000"];
        let allowed = |origin| Verdict::Allowed(HeaderValue::from_static(origin));
        for origin in [None, Some("https://chat.example"), Some("null")] {
            assert_eq!(verdict(&[], origin), Verdict::Closed);
            assert_eq!(verdict(&["*"], origin), Verdict::Any);
        }
        for origin in ["https://chat.example", "http://localhost:3000"] {
            assert_eq!(verdict(&list, Some(origin)), allowed(origin));
        }
        for origin in [
            "http://chat.example",
            "https://chat.example:8443",
            "https://chat.example.evil.example",
            "https://evil.example?https://chat.example",
            "http://localhost",
            "null",
            "",
        ] {
            assert_eq!(verdict(&list, Some(origin)), Verdict::Denied, "{origin}");
        }
        assert_eq!(verdict(&list, None), Verdict::Denied);
    }

    #[test]
    fn the_routers_word_replaces_a_workers() {
        let said = [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-origin", "http://other.example"),
            ("access-control-allow-credentials", "true"),
            ("vary", "Accept-Encoding, origin"),
            ("etag", "1"),
        ];
        let said = said.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        for (verdict, origin) in [
            (verdict(&[], None), None),
            (verdict(&["http://a.example"], None), None),
            (verdict(&["http://a.example"], Some("http://a.example")), Some("http://a.example")),
            (verdict(&["*"], None), Some("*")),
        ] {
            let mut headers: HeaderMap = HeaderMap::new();
            for (name, value) in said.clone() {
                headers.append(name, value);
            }
            verdict.mark(&mut headers);
            let origins: Vec<_> = headers.get_all(ACCESS_CONTROL_ALLOW_ORIGIN).iter().collect();
            assert_eq!(origins, Vec::from_iter(origin), "{verdict:?}");
            assert!(!headers.contains_key("access-control-allow-credentials"), "{verdict:?}");
            assert_eq!(headers.get_all(VARY).iter().count(), 1, "{verdict:?}");
            assert_eq!(headers["etag"], "1");
        }
    }
}
