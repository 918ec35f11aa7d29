//! One HTTP/1.1 connection to a worker, polled by whoever holds it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::Address;
use super::socket::{Heard, Socket, Stream};
use crate::tls::{self, ClientTls};

type Driver = http1::Connection<TokioIo<Socket>, Full<Bytes>>;

/// A connection. It goes from the pool to the request, to the answer and back; what it is made of stays in its place.
pub(crate) struct Connection(Box<Parts>);

/// A connection and the half of hyper that moves its bytes.
struct Parts {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Gone once the socket is finished with.
    driver: Option<Driver>,
    heard: Heard,
    /// Whether a request has been sent on it.
    used: bool,
}

/// Why no response head came.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// The connection was found closed before any of the request was written: it is safe to send it elsewhere.
    Unsent(Box<Request<Full<Bytes>>>),
    /// The connection ended without a byte of an answer.
    Silent { error: hyper::Error, reused: bool },
    /// The worker has not admitted the router to the connection; it has read nothing of the request.
    NotAdmitted(std::io::Error),
    /// It ended within the head, or what came was not HTTP.
    Broken(hyper::Error),
}

impl Connection {
    /// Connects to a worker, privately if its URL says so.
    ///
    /// # Errors
    /// What the operating system said, or why there is no privacy.
    pub(super) async fn open(address: &Address, tls: &ClientTls) -> std::io::Result<Self> {
        let stream = address.dial().await?;
        let stream = match &address.server_name {
            None => Stream::Plain(stream),
            Some(name) => Stream::Tls(Box::new(tls.connect(name.clone(), stream).await?)),
        };
        let heard = Heard::default();
        let io = TokioIo::new(Socket::new(stream, heard.clone()));
        let (sender, driver) = http1::Builder::new().handshake(io).await.map_err(std::io::Error::other)?;
        Ok(Self(Box::new(Parts { sender, driver: Some(driver), heard, used: false })))
    }

    /// Whether a request has been sent on it.
    pub(super) fn is_used(&self) -> bool {
        self.0.used
    }

    /// Sends a request and waits for the head of its answer. Dropping the future closes nothing by itself;
    /// dropping the connection does.
    ///
    /// # Errors
    /// [`ExchangeError`]; the connection is of no further use then.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ExchangeError> {
        let Parts { sender, driver, heard, used } = &mut *self.0;
        let reused = std::mem::replace(used, true);
        heard.listen();
        let mut reply = pin!(sender.try_send_request(request));
        let answer = std::future::poll_fn(|cx| {
            drive(driver, cx);
            reply.as_mut().poll(cx)
        });
        answer.await.map_err(|mut error| match error.take_message() {
            Some(request) => ExchangeError::Unsent(Box::new(request)),
            None if heard.anything() => ExchangeError::Broken(error.into_error()),
            None => silent(error.into_error(), reused),
        })
    }

    /// Moves bytes as far as they go now and registers `cx` for when there are more.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.0.driver, cx);
    }

    /// Whether the connection is open and has nothing under way, so that it may serve another request.
    /// Polls without a waker: nobody is disturbed by what happens on an idle connection.
    pub(super) fn is_idle(&mut self) -> bool {
        drive(&mut self.0.driver, &mut Context::from_waker(Waker::noop()));
        self.0.driver.is_some() && self.0.sender.is_ready()
    }
}

fn silent(error: hyper::Error, reused: bool) -> ExchangeError {
    match tls::refusal(&error) {
        Some(refusal) if !reused => ExchangeError::NotAdmitted(refusal),
        _ => ExchangeError::Silent { error, reused },
    }
}

fn drive(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    // How it ended is told by the reply or by the body; here it only matters that it has.
    let ended = driver.as_mut().is_some_and(|running| Pin::new(running).poll(cx).is_ready());
    if ended {
        *driver = None;
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("open", &self.0.driver.is_some()).finish_non_exhaustive()
    }
}
