//! How canned replies are written.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Answer, CannedWorker, collect, search};
use crate::config::WireConfig;

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
    let worker = CannedWorker::new("mock", 0, 1.0, interval, WireConfig::mock(), Router::new());
    let service = service_fn(|request| async { Ok::<_, Infallible>(worker.answer(request).await) });
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

/// A body that breaks off.
struct Broken;

impl Body for Broken {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())))
    }
}

#[test]
fn a_body_that_is_not_read_is_told_why() {
    let told = async |answer: Answer| {
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<serde_json::Value>(&body).unwrap())
    };
    let ten = || Full::from("0123456789");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(search(ten(), 10).await.is_ok());
        assert_eq!(collect(ten(), 10).await.unwrap(), "0123456789");
        for unread in [search(ten(), 9).await.unwrap_err(), collect(ten(), 9).await.unwrap_err()] {
            let (status, body) = told(unread.answer()).await;
            assert_eq!((status, &body["code"], &body["type"]), (413, &413.into(), &"413".into()));
            assert_eq!(body["message"], "The body is longer than 9 bytes.");
        }
        for unread in [search(Broken, 9).await.unwrap_err(), collect(Broken, 9).await.unwrap_err()] {
            let (status, body) = told(unread.answer()).await;
            assert_eq!((status, &body["type"]), (400, &"BadRequestError".into()));
            assert_eq!(body["message"], "The body was cut before its end.");
        }
    });
}
