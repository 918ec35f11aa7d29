//! One connection to a worker, whatever it speaks.

use std::future::Future;
use std::pin::{Pin, pin};

use axum::BoxError;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Http2Config;

/// Serves requests until the client has gone, or until there is none left after `wind_down`: a client of HTTP/2 is told
/// then to begin no more (GOAWAY). HTTP/2 is spoken to clients that begin with its preface, if there is a configuration
/// of it. How a connection ended is of no interest, as there is nobody to tell.
pub(crate) async fn serve_connection<I, S, B>(
    io: I,
    service: S,
    http2: Option<Http2Config>,
    wind_down: impl Future<Output = ()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Send,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let io = TokioIo::new(io);
    let Some(Http2Config { max_concurrent_streams }) = http2 else {
        // Answers are short: one buffer and one write cost less than a list of buffers.
        let connection = http1::Builder::new().writev(false).serve_connection(io, service);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = wind_down => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
        return;
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().writev(false);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(max_concurrent_streams);
    let connection = builder.serve_connection(io, service);
    let mut connection: Pin<&mut auto::Connection<'_, _, _, _>> = pin!(connection);
    tokio::select! {
        biased;
        _ = &mut connection => return,
        () = wind_down => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
