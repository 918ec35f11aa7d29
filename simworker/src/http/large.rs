//! Large bodies. All workers of a process are served by one thread, which a body of many megabytes would hold for seconds:
//! such requests are answered by threads of their own. Bodies that are too large are read to their end and dropped, as
//! clients send all of a body before they look for an answer.

use std::future::Future;

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::failure::{Api, Failure};
use super::limits::{MAX_BODY_BYTES, MAX_DROPPED_BYTES};

/// Bodies up to this length, in bytes, take some tens of milliseconds at most.
const LARGE: u64 = 1 << 20;

/// Answers requests with large bodies apart from the others. A body of unknown length is taken for a small one.
pub(super) async fn attend(request: Request, next: Next) -> Response {
    match request.body().size_hint().exact() {
        Some(bytes) if bytes > MAX_BODY_BYTES as u64 => refuse(request, bytes).await,
        Some(bytes) if bytes > LARGE => apart(next.run(request)).await,
        _ => next.run(request).await,
    }
}

async fn refuse(request: Request, bytes: u64) -> Response {
    let api = Api::of_path(request.uri().path());
    // Who asks before it sends has its answer without sending.
    if bytes <= MAX_DROPPED_BYTES && !request.headers().contains_key(EXPECT) {
        let mut body = request.into_body();
        while let Some(Ok(_)) = body.frame().await {}
    }
    Failure::status(413, "Failed to buffer the request body: length limit exceeded").response(api)
}

/// Drives a future on a thread that may be held. It is dropped when nobody waits for its result any more.
pub(super) async fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = Handle::current();
    let (waiting, gone) = oneshot::channel::<()>();
    let driven = spawn_blocking(move || {
        runtime.block_on(async {
            tokio::select! {
                result = work => Some(result),
                _ = gone => None,
            }
        })
    });
    let result = driven.await;
    drop(waiting);
    match result {
        Ok(Some(result)) => result,
        // The thread of a process that ends; nobody is left to be told.
        Ok(None) => std::future::pending().await,
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(_) => std::future::pending().await,
    }
}
