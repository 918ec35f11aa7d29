//! One try at one worker: the request that goes out, and why no response head came back.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, header, request};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::error::Refusal;
use crate::upstream::{Address, NoAnswer};

/// Why a try gave no response head; what the operator may know, as against what the client is told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    NoAnswer(#[from] NoAnswer),
    #[error("no response head within the time limit")]
    TimedOut,
    #[error("the answer is none to this request: {0}")]
    Invalid(&'static str),
}

impl Failure {
    /// What came back, unless the client could make nothing of it.
    ///
    /// # Errors
    /// [`Failure::Invalid`].
    pub(crate) fn of_answer<C>(answered: (C, Response<Incoming>)) -> Result<(C, Response<Incoming>), Self> {
        let response = &answered.1;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Self::Invalid("nobody asked for another protocol"));
        }
        if !super::headers::is_plainly_framed(response.headers()) {
            return Err(Self::Invalid("its transfer coding was not asked for"));
        }
        Ok(answered)
    }

    /// Whether it shows that there is no worker at this address.
    pub(crate) fn is_nobody_there(&self) -> bool {
        matches!(self, Self::NoAnswer(missing) if missing.is_nobody_there())
    }

    /// What the client is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::NoAnswer(NoAnswer::Connect(_)) => Refusal::ConnectFailed,
            Self::NoAnswer(NoAnswer::Broken(_) | NoAnswer::Unsent) => Refusal::UpstreamBroken,
            Self::TimedOut => Refusal::UpstreamTimeout,
            Self::Invalid(_) => Refusal::UpstreamInvalid,
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
