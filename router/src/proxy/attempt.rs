//! One try at one worker: the request that goes out, and why no response head came back.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, Version, header, request};
use http_body_util::Full;

use crate::error::Refusal;
use crate::upstream::{Address, NoAnswer};

/// Why a try gave no response head; what the operator may know, as against what the client is told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    NoAnswer(#[from] NoAnswer),
    #[error("no response head within the time limit")]
    TimedOut,
}

impl Failure {
    /// What the client is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::NoAnswer(NoAnswer::Connect(_)) => Refusal::ConnectFailed,
            Self::NoAnswer(NoAnswer::Broken(_) | NoAnswer::Unsent) => Refusal::UpstreamBroken,
            Self::TimedOut => Refusal::UpstreamTimeout,
        }
    }
}

/// The client's request as a worker gets it: the same method, path, query, end-to-end headers and body, and the
/// worker's own `Host`.
pub(crate) fn upstream_request(head: request::Parts, body: Bytes, address: &Address) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = origin_form(head.uri);
    *request.headers_mut() = upstream_headers(head.headers, address);
    request
}

fn upstream_headers(mut headers: HeaderMap, address: &Address) -> HeaderMap {
    super::headers::strip_hop_by_hop(&mut headers);
    // Answered here: the body has been received.
    headers.remove(header::EXPECT);
    headers.insert(header::HOST, address.host.clone());
    headers
}

fn origin_form(uri: Uri) -> Uri {
    if uri.scheme().is_none() {
        return uri;
    }
    let path = uri.into_parts().path_and_query;
    path.map_or_else(|| Uri::from_static("/"), Uri::from)
}
