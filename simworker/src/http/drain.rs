//! Reading bodies.

use std::pin::Pin;

use bytes::Bytes;
use hyper::body::Body;

/// The next data of a body, `None` at its end.
pub(crate) async fn next_data<B: Body<Data = Bytes> + Unpin>(
    body: &mut B,
) -> Option<Result<Bytes, B::Error>> {
    loop {
        match std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await? {
            // Trailers are of no interest.
            Ok(frame) => match frame.into_data() {
                Ok(data) => return Some(Ok(data)),
                Err(_) => continue,
            },
            Err(error) => return Some(Err(error)),
        }
    }
}
