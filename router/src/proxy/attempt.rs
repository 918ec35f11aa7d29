//! One try at one worker: a request goes out, a response head comes back.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, Version, header, request};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::error::Refusal;
use crate::upstream::{Address, Connection, ExchangeError, Pool, PoolKey};

/// Why a try gave no response head; what the operator may know, as against what the client is told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    #[error("the connection broke before a response head: {0}")]
    Broken(#[source] hyper::Error),
    #[error("the connection was closed before the request was written")]
    Unsent,
    #[error("no response head within the time limit")]
    TimedOut,
}

impl Failure {
    /// What the client is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::Connect(_) => Refusal::ConnectFailed,
            Self::Broken(_) | Self::Unsent => Refusal::UpstreamBroken,
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

/// Sends the request on an idle connection or a new one.
///
/// An idle connection may turn out to be closed; if nothing of the request was written to it, a new one is used
/// and nobody has noticed.
///
/// # Errors
/// [`Failure`].
pub(crate) async fn attempt(
    pool: &Pool,
    key: PoolKey,
    address: &Address,
    mut request: Request<Full<Bytes>>,
) -> Result<(Connection, http::Response<Incoming>), Failure> {
    if let Some(mut connection) = pool.take(key) {
        match connection.exchange(request).await {
            Ok(response) => return Ok((connection, response)),
            Err(ExchangeError::Broken(error)) => return Err(Failure::Broken(error)),
            Err(ExchangeError::Unsent(unsent)) => request = *unsent,
        }
    }
    let mut connection = pool.connect(address).await.map_err(Failure::Connect)?;
    match connection.exchange(request).await {
        Ok(response) => Ok((connection, response)),
        Err(ExchangeError::Broken(error)) => Err(Failure::Broken(error)),
        Err(ExchangeError::Unsent(_)) => Err(Failure::Unsent),
    }
}
