//! How canned replies are written.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Instant;

/// A client that has sent a request and takes note of each write.
struct Client {
    request: Vec<u8>,
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.request.is_empty() {
            return Poll::Pending;
        }
        buffer.put_slice(&self.request);
        self.request.clear();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.lock().push(bytes.to_vec());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Each write of the answer to this body.
fn writes(body: &str, interval: Duration) -> Vec<String> {
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes();
    let written = Arc::new(Mutex::new(Vec::new()));
    let client = Client { request, writes: Arc::clone(&written) };
    let instant = Instant::new("mock", 0, 1.0, interval, Router::new());
    let service = service_fn(|request| async { Ok::<_, Infallible>(instant.answer(request).await) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let connection = http1::Builder::new().writev(false).serve_connection(TokioIo::new(client), service);
    runtime.block_on(connection).unwrap();
    let writes = written.lock();
    writes.iter().map(|bytes| String::from_utf8(bytes.clone()).unwrap()).collect()
}

#[test]
fn each_chunk_is_one_write() {
    for interval in [Duration::ZERO, Duration::from_micros(1500)] {
        let writes = writes(r#"{"messages":[],"max_tokens":40,"stream":true}"#, interval);
        let events = |text: &String| text.matches("data: {").count();
        // The head goes with the first chunk, and the end is a write of its own.
        let counts: Vec<usize> = writes.iter().map(events).collect();
        assert_eq!(counts, [vec![1; 40], vec![0]].concat(), "{writes:?}");
        assert!(writes[40].contains("data: [DONE]") && writes[40].ends_with("0\r\n\r\n"));
        let length = writes[5].len();
        assert!((230..350).contains(&length), "{length}: {}", writes[5]);
    }
}

#[test]
fn a_whole_answer_is_one_write() {
    let writes = writes(r#"{"messages":[]}"#, Duration::ZERO);
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].ends_with('}') && writes[0].contains("content-length: "));
}
