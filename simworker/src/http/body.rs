//! Bodies, read whole.

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::Bytes;

use super::failure::{Api, Failure};

/// A body of at most [`super::limits::MAX_BODY_BYTES`]. A longer one, which SGLang would take, is refused as it refuses
/// by status.
#[derive(Debug)]
pub(super) struct WholeBody(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for WholeBody {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let api = Api::of_path(request.uri().path());
        let read = Bytes::from_request(request, state).await;
        read.map(Self)
            .map_err(|unread| Failure::status(unread.status().as_u16(), unread.body_text()).response(api))
    }
}
