//! One request to one worker: on an idle connection if there is one, otherwise on a new one.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::error::Refusal;

use super::{Connection, ExchangeError, Pool};
use crate::fleet::Member;

/// Why no response head came; for the operator, as it names what the system said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    #[error("no connection within the time limit")]
    ConnectTimedOut,
    /// Not a byte of an answer came; `reused` if the connection had served before, so that the worker may just have
    /// closed it for having idled.
    #[error("the connection was lost without an answer: {error}")]
    Silent {
        #[source]
        error: hyper::Error,
        reused: bool,
    },
    /// Some of an answer came, but no head.
    #[error("the connection broke within a response head: {0}")]
    Broken(#[source] hyper::Error),
    #[error("the connection was closed before the request was written")]
    Unsent,
}

impl NoAnswer {
    /// Whether it shows that there is no worker at this address. What this machine lacks, such as file descriptors,
    /// shows nothing about the worker.
    pub(crate) fn is_nobody_there(&self) -> bool {
        use std::io::ErrorKind as Kind;
        let error = match self {
            Self::Connect(error) => error,
            Self::ConnectTimedOut => return true,
            _ => return false,
        };
        // Without a code of the system's, it is a name that does not resolve, or a worker without the privacy it is to have.
        error.raw_os_error().is_none()
            || matches!(
                error.kind(),
                Kind::ConnectionRefused
                    | Kind::ConnectionReset
                    | Kind::HostUnreachable
                    | Kind::NetworkUnreachable
                    | Kind::TimedOut
            )
    }
}

impl NoAnswer {
    /// What a client is told of it.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::Connect(_) => Refusal::ConnectFailed,
            Self::ConnectTimedOut => Refusal::ConnectTimeout,
            Self::Broken(error) if error.is_parse() => Refusal::UpstreamInvalid,
            Self::Silent { .. } | Self::Broken(_) | Self::Unsent => Refusal::UpstreamBroken,
        }
    }
}

/// Sends a request and waits for the head of its answer.
///
/// An idle connection may turn out to be closed. If nothing of the request was written to it, or if asking twice does
/// no harm (RFC 9110, section 9.2.2), a new connection is used and nobody has noticed. Whatever is sent carries the
/// router's mark.
///
/// # Errors
/// [`NoAnswer`].
pub(crate) async fn exchange(
    pool: &Pool,
    member: &Member,
    request: Request<Full<Bytes>>,
) -> Result<(Connection, Response<Incoming>), NoAnswer> {
    let connection = pool.take(member);
    exchange_on(pool, member, connection, request).await
}

/// A connection to a worker, idle or new.
///
/// # Errors
/// [`NoAnswer::Connect`] or [`NoAnswer::ConnectTimedOut`].
pub(crate) async fn reach(pool: &Pool, member: &Member) -> Result<Connection, NoAnswer> {
    match pool.take(member) {
        Some(connection) => Ok(connection),
        None => pool.connect(member).await,
    }
}

/// As [`exchange`], where a connection is there already.
pub(crate) async fn exchange_on(
    pool: &Pool,
    member: &Member,
    connection: Option<Connection>,
    mut request: Request<Full<Bytes>>,
) -> Result<(Connection, Response<Incoming>), NoAnswer> {
    pool.mark.stamp(request.headers_mut());
    if let Some(mut connection) = connection {
        let again = request.method().is_idempotent().then(|| request.clone());
        let is_used = connection.is_used();
        match (connection.exchange(request).await, again) {
            (Ok(response), _) => return Ok((connection, response)),
            (Err(ExchangeError::Unsent(unsent)), _) => request = *unsent,
            (Err(_), Some(again)) => request = again,
            (Err(error), None) => {
                // What idled beside it has most probably been closed too.
                if is_used {
                    pool.forget(member);
                }
                return Err(error.into());
            }
        }
    }
    let mut connection = pool.connect(member).await?;
    let response = connection.exchange(request).await?;
    Ok((connection, response))
}

impl From<ExchangeError> for NoAnswer {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::Unsent(_) => Self::Unsent,
            ExchangeError::NotAdmitted(error) => Self::Connect(error),
            ExchangeError::Silent { error, reused } => Self::Silent { error, reused },
            ExchangeError::Broken(error) => Self::Broken(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::time::Duration;

    use http::{StatusCode, Uri};

    use router_core::ids::WorkerId;

    use super::super::{Address, Probe, probe};
    use super::*;
    use crate::config::UpstreamTls;
    use crate::fleet::Terms;
    use crate::hops::Mark;
    use crate::tls::ClientTls;

    /// Answers one request on each of its connections, then waits for a word and closes it.
    fn closing_worker() -> (Address, mpsc::Sender<()>, mpsc::Receiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (close, when) = mpsc::channel();
        let (closed, done) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let read = stream.read(&mut [0; 4096]).expect("a request");
                assert!(read > 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("the peer reads");
                if when.recv().is_err() {
                    return;
                }
                drop(stream);
                closed.send(()).expect("the test is there");
            }
        });
        (Address::parse(&url).expect("a URL"), close, done)
    }

    #[tokio::test]
    async fn a_probe_does_not_mistake_a_stale_connection_for_a_sick_worker() {
        let (address, close, closed) = closing_worker();
        let tls = ClientTls::new(&UpstreamTls::default()).expect("no files");
        let pool = Pool::new(0, Duration::from_secs(10), tls, Mark::new());
        let path = Uri::from_static("/health");
        let member = Member::new(WorkerId(0), address, Terms::default(), 1);
        let question = Probe { path, member: &member, timeout: Duration::from_secs(10) };
        for _ in 0..3 {
            let (status, body) = probe(&pool, question.clone()).await.expect("an answer");
            assert_eq!((status, &body[..]), (StatusCode::OK, &b"ok"[..]));
            close.send(()).expect("the worker is there");
            // Without a turn of the runtime: the connection still looks idle when the next probe takes it.
            closed.recv().expect("the worker is there");
        }
    }
}
