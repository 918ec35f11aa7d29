//! The last words to a client whose request was no request.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::body::Body;

/// How long a client is listened to after its refusal. A socket that is closed with unread bytes is reset, which can
/// take the answer from a client that is still sending.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes an answer and closes. A client that does not take it is not waited for.
pub(crate) async fn dismiss<IO>(io: IO, answer: Response<Body>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    // Whoever has left already misses nothing.
    let _ = tokio::time::timeout(PATIENCE, close_with(io, answer)).await;
}

async fn close_with<IO>(mut io: IO, answer: Response<Body>) -> std::io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (head, body) = answer.into_parts();
    // A body of our own cannot fail.
    let body = body.collect().await.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
    let mut bytes = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend(&body);
    io.write_all(&bytes).await?;
    io.shutdown().await?;
    let mut unread = [0; 4096];
    while io.read(&mut unread).await? > 0 {}
    Ok(())
}
