//! Connections to a worker under control, and what happens to each request on them.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until};

use super::lies;
use super::line::{Line, Tapped};
use super::reply::Reply;
use super::station::Station;
use super::visit::{SeenBody, Visit};
use crate::connection::Connection;
use crate::fault::{Cut, How, Lie, Plan, Point, StatusAnswer};
use crate::host::{listen, serve_connection};
use crate::http::error_text;
use crate::instant::AnswerBody;

/// How long to wait where the system has no file or no port at the moment.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Accepts connections as long as somebody is to listen.
pub(crate) async fn attend(station: Arc<Station>, listener: TcpListener) {
    let mut changes = station.changes();
    let mut listener = Some(listener);
    loop {
        // Seen before it is asked for, so that no change is missed.
        changes.borrow_and_update();
        if let Some(until) = station.closed_until() {
            listener = None;
            station.set_listening(false);
            tokio::select! {
                _ = changes.changed() => {}
                () = until_some(until) => {}
            }
            continue;
        }
        let Some(open) = &listener else {
            match listen(station.address) {
                Ok(opened) => listener = Some(opened),
                Err(_) => sleep(AGAIN_AFTER).await,
            }
            continue;
        };
        station.set_listening(true);
        tokio::select! {
            _ = changes.changed() => {}
            accepted = open.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(converse(Arc::clone(&station), stream))),
                Err(_) => sleep(AGAIN_AFTER).await,
            },
        }
    }
}

async fn until_some(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

/// Serves one connection to its end.
async fn converse(station: Arc<Station>, stream: TcpStream) {
    let line = Arc::new(Line::new(station.number()));
    let mut kills = station.kills();
    let io = Tapped::new(Connection::new(stream), Arc::clone(&line), Arc::clone(&station));
    let (at, on) = (Arc::clone(&station), Arc::clone(&line));
    let service = service_fn(move |request| serve(Arc::clone(&at), Arc::clone(&on), request));
    let served = serve_connection(io, service, station.http2(), line.winds_down());
    // It outlives the choice, so that it is dropped when the line knows how it is to end.
    let mut served = std::pin::pin!(served);
    tokio::select! {
        () = &mut served => {}
        _ = kills.changed() => line.reset(),
        () = idle_too_long(&station, &line) => {}
    }
}

/// Ready when there has been no request for as long as the worker allows.
async fn idle_too_long(station: &Station, line: &Line) {
    let mut changes = station.changes();
    loop {
        changes.borrow_and_update();
        let due = station.idle_close().and_then(|span| line.idle_since().map(|since| since + span));
        if due.is_some_and(|due| due <= Instant::now()) {
            return;
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = line.turned() => {}
            () = until_some(due) => {}
        }
    }
}

/// The connection is to end without an answer.
type Broken = io::Error;

async fn serve(
    station: Arc<Station>,
    line: Arc<Line>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Broken> {
    if request.version() == Version::HTTP_2 {
        line.is_shared();
    }
    let mut visit = Visit::new(&station, &line, &request);
    let plan = station.plan(&request);
    let is_abort = request.uri().path() == "/abort_request";
    let mut request = request.map(|body| visit.body(body, is_abort, plan.read_rate));
    if let Some(Cut { point: point @ (Point::Arrival | Point::Request), how }) = plan.cut {
        if point == Point::Request {
            drain(request.body_mut()).await;
        }
        return break_off(&mut visit, &line, how).await;
    }
    let answer = answer(&station, &mut visit, &plan, request).await;
    if let Some(span) = plan.delay_head {
        sleep(span).await;
    }
    visit.status(answer.status().as_u16());
    let is_stream = is_stream(&answer);
    Ok(answer.map(|body| Reply::new(body, line, visit, &plan, is_stream)))
}

/// Whether an answer is a stream of events.
fn is_stream(answer: &Response<AnswerBody>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Ends a request without an answer.
async fn break_off<T>(visit: &mut Visit, line: &Line, how: How) -> Result<T, Broken> {
    visit.fault(how.key());
    match how {
        How::Stall => pending().await,
        How::Reset => line.reset_request(),
        How::Close => {}
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

async fn answer(
    station: &Station,
    visit: &mut Visit,
    plan: &Plan,
    mut request: Request<SeenBody>,
) -> Response<AnswerBody> {
    if let Some(made_up) = &plan.status {
        drain(request.body_mut()).await;
        return status_answer(made_up);
    }
    let answer = told(station, visit, plan, request).await;
    match plan.skew {
        Some(skew) => lies::skewed(answer, skew).await,
        None => answer,
    }
}

/// The worker's answer, or a lie.
async fn told(
    station: &Station,
    visit: &mut Visit,
    plan: &Plan,
    request: Request<SeenBody>,
) -> Response<AnswerBody> {
    match &plan.lie {
        None | Some(Lie::Frozen | Lie::Status(_)) => station.answer(request).await,
        Some(Lie::Hang) => {
            visit.fault("loads");
            pending().await
        }
        Some(Lie::Garbage) => lies::garbage(),
        Some(Lie::Negative) => lies::retold(station.answer(request).await, lies::negate).await,
        Some(Lie::Given(members)) => {
            lies::retold(station.answer(request).await, |entry| entry.extend(members.clone())).await
        }
    }
}

/// Reads a body to its end.
async fn drain(body: &mut SeenBody) {
    while let Some(Ok(_)) = body.frame().await {}
}

fn status_answer(made_up: &StatusAnswer) -> Response<AnswerBody> {
    let StatusAnswer { key, status, body, retry_after } = made_up;
    let text = match body {
        Some(text) => text.clone().into_bytes(),
        None => error_text(*status, &format!("the fault {key} is set")),
    };
    let kind = if text.starts_with(b"{") || text.starts_with(b"[") {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let mut answer = Response::new(AnswerBody::whole(text));
    *answer.status_mut() = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(value) = retry_after.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(RETRY_AFTER, value);
    }
    answer
}
