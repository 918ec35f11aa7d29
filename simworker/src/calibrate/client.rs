//! Calls to the worker that is measured, over one connection, so that no handshake is part of a time.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::CalibrateError;

/// A connection to one worker.
pub(super) struct Client {
    url: String,
    authority: String,
    /// What stands before every path, such as `/engine` behind a gateway; empty or with a slash at its beginning only.
    prefix: String,
    api_key: Option<String>,
    until: Instant,
    open: Option<SendRequest<Full<Bytes>>>,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
    /// From the first byte sent to the last byte read.
    pub(super) took: Duration,
}

impl Client {
    /// For a URL such as `http://host:30000` or `http://host/prefix`; nothing is asked after `until`.
    pub(super) fn new(url: &str, api_key: Option<&str>, until: Instant) -> Result<Self, CalibrateError> {
        let wrong = || CalibrateError::Url(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        let authority =
            parsed.authority().filter(|_| parsed.scheme_str() == Some("http")).ok_or_else(wrong)?;
        if parsed.query().is_some() {
            return Err(wrong());
        }
        let port = authority.port_u16().unwrap_or(80);
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            authority: format!("{}:{port}", authority.host()),
            prefix: parsed.path().trim_end_matches('/').to_owned(),
            api_key: api_key.map(str::to_owned),
            until,
            open: None,
        })
    }

    pub(super) async fn get(&mut self, path: &str) -> Result<Answer, CalibrateError> {
        self.ask(Method::GET, path, None).await
    }

    pub(super) async fn post(&mut self, path: &str, body: &Value) -> Result<Answer, CalibrateError> {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, CalibrateError> {
        let call = format!("{method} {}{path}", self.url);
        let request = self.request(method, path, body).map_err(|_| CalibrateError::Url(self.url.clone()))?;
        let until = self.until;
        match timeout_at(until, self.exchange(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(CalibrateError::Call { call, why }),
            Err(_) => Err(CalibrateError::Late { call }),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let path = format!("{}{path}", self.prefix);
        let mut request = Request::builder().method(method).uri(path).header(HOST, &self.authority);
        if let Some(key) = &self.api_key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(body.map(Value::to_string).unwrap_or_default().into()))
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let mut sender = match self.open.take() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        if sender.ready().await.is_err() {
            sender = self.connect().await?;
        }
        let began = Instant::now();
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let took = began.elapsed();
        self.open = Some(sender);
        // Some answers are plain text, and then only the status matters.
        let body = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        Ok(Answer { status, body, took })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| error.to_string())?;
        // A connection that refuses the option still works.
        let _ = stream.set_nodelay(true);
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // How it ends is told to whoever sends.
        tokio::spawn(connection);
        Ok(sender)
    }
}
