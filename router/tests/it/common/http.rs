//! As much HTTP/1.1 as the tests need, spelled by hand.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use super::PATIENCE;

/// A request or a response as it came.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// The request line or the status line.
    pub(crate) first: String,
    /// In order, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// Of a response.
    pub(crate) fn status(&self) -> u16 {
        self.first.split(' ').nth(1).expect("a status line").parse().expect("a status")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    /// Checks that the router itself refuses, in the form that OpenAI's clients read.
    pub(crate) fn assert_refused(&self, status: u16, code: &str) {
        let seen = (self.status(), self.header("x-router-error-code"));
        assert_eq!(seen, (status, Some(code)), "{}", self.text());
        assert_eq!(self.header("x-smg-error-code"), Some(code));
        assert_eq!(self.header("content-type"), Some("application/json"));
        let error = &self.json()["error"];
        assert_eq!(error["code"], code);
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
    }

    /// Seconds of `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after")?.parse().ok()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a text body")
    }
}

/// A connection that reads messages.
#[derive(Debug)]
pub(crate) struct Reader(BufReader<TcpStream>);

impl Reader {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(BufReader::new(stream))
    }

    /// First line and headers; `None` at the end of the connection.
    pub(crate) fn head(&mut self) -> io::Result<Option<Message>> {
        let first = self.line()?;
        if first.is_empty() {
            return Ok(None);
        }
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(Some(Message { first, headers, body: Vec::new() }));
            }
            let (name, value) = line.split_once(':').expect("a header field");
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The next chunk of a chunked body; empty at its end.
    pub(crate) fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let size = self.line()?;
        let size =
            usize::from_str_radix(&size, 16).map_err(|_| io::Error::other(format!("chunk size {size:?}")))?;
        let mut chunk = vec![0; size + 2];
        self.0.read_exact(&mut chunk)?;
        chunk.truncate(size);
        Ok(chunk)
    }

    /// The next so many bytes.
    pub(crate) fn exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// A whole message, whichever way its body is framed.
    pub(crate) fn message(&mut self) -> io::Result<Option<Message>> {
        let Some(mut message) = self.head()? else { return Ok(None) };
        if message.header("transfer-encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk()?;
                if chunk.is_empty() {
                    break;
                }
                message.body.extend(chunk);
            }
        } else if let Some(length) = message.header("content-length") {
            message.body = self.exact(length.parse().expect("a length"))?;
        }
        Ok(Some(message))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// A client of the router on one connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) reader: Reader,
}

impl Client {
    pub(crate) fn connect(address: &str) -> Self {
        Self::try_connect(address).expect("the router listens")
    }

    /// Unless nobody listens there.
    pub(crate) fn try_connect(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).expect("an option");
        let reader = Reader::new(stream.try_clone().expect("a second handle"));
        Some(Self { stream, reader })
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the router reads");
    }

    pub(crate) fn send_post(&mut self, path: &str, headers: &str, body: &[u8]) {
        let mut bytes = format!("POST {path} HTTP/1.1\r\nHost: router\r\nContent-Length: {}\r\n", body.len());
        bytes.push_str(headers);
        bytes.push_str("\r\n");
        self.send([bytes.as_bytes(), body].concat());
    }

    pub(crate) fn receive(&mut self) -> Message {
        self.reader.message().expect("an answer").expect("not the end")
    }

    pub(crate) fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> Message {
        self.send_post(path, headers, body);
        self.receive()
    }

    /// Leaves with a reset instead of a close, as a client that is killed may.
    pub(crate) fn reset(self) {
        let at_once = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.stream, at_once).expect("an option");
    }

    pub(crate) fn get(address: &str, path: &str) -> Message {
        let mut client = Self::connect(address);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: router\r\n\r\n"));
        client.receive()
    }
}
