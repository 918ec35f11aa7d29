//! One client's connection, from its acceptance to its end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::accept::Door;
use super::seats::Seat;
use super::{Context, Surface};
use crate::body::Body;
use crate::client::{ClientIo, Ending, Front, LAST_CALL, Turn, dismiss, left};
use crate::cors::Verdict;
use crate::error::Refusal;
use crate::request_id::{self, REQUEST_ID};
use crate::service;
use crate::stop::{self, Stop};

/// When whoever is told that the router ends may try another one, or the next.
const RETRY_AFTER_SECS: u64 = 1;

/// A client that has connected.
pub(super) struct Client {
    stream: TcpStream,
    door: Arc<Door>,
    context: Arc<Context>,
    stop: watch::Receiver<Stop>,
    _seat: Seat,
}

impl Client {
    pub(super) fn new(
        stream: TcpStream,
        seat: Seat,
        door: Arc<Door>,
        context: Arc<Context>,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        // A socket that refuses options is about to fail anyway.
        let _ = stream.set_nodelay(true);
        Self { stream, door, context, stop, _seat: seat }
    }

    /// Serves it until it leaves, or until it has its answer once the router stops.
    pub(super) async fn plain(self) {
        let turn = self.turn();
        self.serve(ClientIo::new(&self.stream, &turn), &turn).await;
    }

    /// The same behind TLS, whose first steps are taken here and hold up nobody else.
    pub(super) async fn secured(self, acceptor: TlsAcceptor) {
        let turn = self.turn();
        if let Some(io) = self.shake_hands(acceptor, ClientIo::new(&self.stream, &turn), &turn).await {
            self.serve(io, &turn).await;
        }
    }

    fn turn(&self) -> Arc<Turn> {
        Turn::new(self.context.shared.settings.timeouts.request, &self.door.limits)
    }

    async fn shake_hands<IO>(&self, acceptor: TlsAcceptor, io: IO, turn: &Turn) -> Option<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let problem = tokio::select! {
            biased;
            done = tokio::time::timeout(self.door.limits.header_timeout, acceptor.accept(io)) => match done {
                Ok(Ok(io)) => return Some(io),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it took too long".to_owned(),
            },
            () = self.too_late(turn) => return None,
        };
        tracing::debug!(client = ?self.stream.peer_addr().ok(), "no TLS handshake: {problem}");
        self.context.shared.metrics.clients.handshake_failed();
        None
    }

    /// Ends once the router stops and waits no longer for a client that has not come to its request yet.
    async fn too_late(&self, turn: &Turn) {
        let mut stop = self.stop.clone();
        stop::reached(&mut stop, Stop::Drain).await;
        // The head that follows has the rest of this time.
        turn.last_call();
        tokio::select! {
            () = tokio::time::sleep(LAST_CALL) => {}
            () = stop::reached(&mut stop, Stop::Now) => {}
        }
    }

    /// Serves what a client says through `io`, which is its socket or what TLS makes of it.
    async fn serve<IO>(&self, io: IO, turn: &Arc<Turn>)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let surface = self.door.surface;
        let answer = service_fn(|request| respond(&self.context, turn, surface, request));
        let mut serving = self.door.http.serve_connection(TokioIo::new(Front::new(io, turn)), answer);
        let watch = || turn.over(left(&self.stream));
        let mut over = pin!(watch());
        let mut stop = self.stop.clone();
        let mut stage = Stop::Run;
        loop {
            tokio::select! {
                biased;
                ended = &mut serving => {
                    if let Err(error) = ended {
                        self.note_end(&error);
                        self.break_off(turn);
                    }
                    return;
                }
                ending = over.as_mut() => match ending {
                    Ending::Refused(refusal) => {
                        let io = serving.into_parts().io.into_inner().into_inner();
                        return self.refuse(io, refusal).await;
                    }
                    Ending::Idle => {
                        turn.last_call();
                        std::pin::Pin::new(&mut serving).graceful_shutdown();
                        over.set(watch());
                    }
                    // Dropping what is served lets go of the worker.
                    Ending::ClientLeft | Ending::Expired | Ending::Silent => {
                        tracing::debug!(client = ?self.stream.peer_addr().ok(), "a connection is ended: {ending:?}");
                        return self.break_off(turn);
                    }
                },
                now = stop::further(&mut stop, stage) => {
                    stage = now;
                    turn.set_last();
                    // hyper closes a connection that has no request on it, also under somebody who is about to send one.
                    if stage == Stop::Drain && !turn.last_call() {
                        std::pin::Pin::new(&mut serving).graceful_shutdown();
                    }
                    if stage == Stop::Now {
                        let unanswered = turn.is_unanswered();
                        self.context.shared.cut.note(unanswered);
                        if unanswered == Some(true) {
                            return self.excuse(serving.into_parts().io.into_inner().into_inner()).await;
                        }
                        return self.break_off(turn);
                    }
                }
            }
        }
    }

    /// Makes the end of a connection an error for a client that would take it for the end of its answer.
    fn break_off(&self, turn: &Turn) {
        if turn.ends_by_close() {
            // A reset instead of an orderly end; a socket that refuses the option is gone already.
            let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
    }

    fn note_end(&self, error: &hyper::Error) {
        tracing::debug!(client = ?self.stream.peer_addr().ok(), "a client's connection ended early: {error}");
        // Behind an answer that was still being written, hyper's own refusal is not withheld.
        if error.is_parse() && !error.is_parse_version_h2() {
            let refusal =
                if error.is_parse_too_large() { Refusal::HeadTooLarge } else { Refusal::HeadInvalid };
            self.context.shared.metrics.answered(refusal.answer().0.status(), Some(refusal));
        }
    }

    /// Answers a request for which there is no time any more. What was being done for it ends.
    async fn excuse<IO>(&self, io: IO)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let (response, refusal) = Refusal::Stopping { retry_after_secs: RETRY_AFTER_SECS }.answer();
        self.context.shared.metrics.answered(response.status(), refusal);
        dismiss(io, response).await;
    }

    /// Answers what is no request.
    async fn refuse<IO>(&self, io: IO, refusal: Refusal)
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let (mut response, _) = refusal.answer();
        let id = request_id::of(&HeaderMap::new(), &[], "req-");
        let client = self.stream.peer_addr().ok();
        tracing::debug!(?client, request_id = ?id, code = refusal.code(), "what came is no request");
        response.headers_mut().insert(REQUEST_ID, id);
        self.context.shared.metrics.answered(response.status(), Some(refusal));
        let mut stop = self.stop.clone();
        tokio::select! {
            () = dismiss(io, response) => {}
            () = stop::reached(&mut stop, Stop::Now) => {}
        }
    }
}

/// Answers a request, or a browser's question whether it may be asked.
async fn respond(
    context: &Arc<Context>,
    turn: &Arc<Turn>,
    surface: Surface,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let verdict = match surface {
        Surface::Traffic | Surface::Admin => context.shared.settings.cors.judge(request.headers()),
        Surface::Metrics => Verdict::Closed,
    };
    let mut response = match verdict.preflight(&request) {
        Some(response) => allow(context, turn, &request, response),
        None => {
            let (mut response, _) = service::respond(context, turn, surface, request).await;
            verdict.mark(response.headers_mut());
            response
        }
    };
    if turn.is_last() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Accounts for a preflight.
fn allow(
    context: &Context,
    turn: &Turn,
    request: &Request<Incoming>,
    mut response: Response<Body>,
) -> Response<Body> {
    let shared = &context.shared;
    turn.begin();
    shared.metrics.arrived_elsewhere(request.method(), "preflight");
    let id = request_id::of(request.headers(), &shared.settings.request_id_headers, "req-");
    response.headers_mut().insert(REQUEST_ID, id);
    shared.metrics.answered(response.status(), None);
    turn.answered();
    response
}
