//! Workers that answer at once from canned replies: what proxies are measured on.
//!
//! No engine runs: a whole answer has as many tokens as were asked for but at most 16 (always 16 on `/v1/responses`,
//! whose answers can be asked for again), a stream has as many chunks as tokens were asked for, each in a write of its
//! own. Bodies are searched and dropped as they come. Routes without a canned answer (information, cache, tokenizer)
//! are those of a worker with an idle engine.

mod body;
mod canned;
mod scan;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use protocol::responses::Status;
use protocol::tokenizer::mix;
use serde::Deserialize;
use serde::de::IgnoredAny;

pub(crate) use body::AnswerBody;
use body::TokenStream;
use canned::{Canned, DEFAULT_TOKENS, Kind, Names};
use scan::{Scan, Wish};

use crate::config::WireConfig;
use crate::http::{REFUSED, allows, error_text};
use crate::responses::{self, Again, not_found};

/// Longest request body in bytes.
const MAX_BODY_BYTES: usize = 512 << 20;
/// Longest body of a route that reads it as JSON.
const MAX_JSON_BYTES: usize = 64 << 20;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// A worker without an engine.
#[derive(Debug)]
pub(crate) struct CannedWorker {
    canned: RwLock<Arc<Canned>>,
    model: String,
    index: u32,
    /// From one chunk of a stream to the next.
    interval: Duration,
    /// Its keys.
    wire: WireConfig,
    /// The first number of a response that has not been created yet.
    responses: AtomicU64,
    /// For all else.
    routes: TowerToHyperService<Router>,
}

/// What a canned route does with a body.
#[derive(Debug, Clone, Copy)]
enum Route {
    /// It is searched, and makes tokens.
    Tokens(Kind),
    /// It is read as JSON, which says how many entries the answer has.
    Entries(Entries),
}

/// Routes whose answers are lists.
#[derive(Debug, Clone, Copy)]
enum Entries {
    Embeddings,
    Classes,
    Ranks,
    Scores,
}

fn route(path: &str) -> Option<Route> {
    Some(match path {
        "/v1/chat/completions" => Route::Tokens(Kind::Chat),
        "/generate" => Route::Tokens(Kind::Generate),
        "/v1/completions" => Route::Tokens(Kind::Completions),
        "/v1/responses" => Route::Tokens(Kind::Responses),
        "/v1/embeddings" => Route::Entries(Entries::Embeddings),
        "/v1/classify" => Route::Entries(Entries::Classes),
        "/v1/rerank" | "/rerank" => Route::Entries(Entries::Ranks),
        "/v1/score" => Route::Entries(Entries::Scores),
        _ => return None,
    })
}

type Answer = Response<AnswerBody>;

impl CannedWorker {
    /// The worker at place `index`, serving `model` since `started` (seconds since the epoch).
    pub(crate) fn new(
        model: &str,
        index: u32,
        started: f64,
        interval: Duration,
        wire: WireConfig,
        routes: Router,
    ) -> Self {
        Self {
            canned: RwLock::new(Arc::new(Canned::new(names(model, index, started)))),
            model: model.to_owned(),
            index,
            interval,
            wire,
            responses: AtomicU64::new(0),
            routes: TowerToHyperService::new(routes),
        }
    }

    /// Forgets everything, like a process that starts anew.
    pub(crate) fn restart(&self, started: f64) {
        let mut canned = self.canned.write();
        *canned = Arc::new(Canned::new(names(&self.model, self.index, started)));
        self.responses.store(0, Ordering::Relaxed);
    }

    /// Answers one request.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<axum::BoxError>,
    {
        if !allows(&self.wire, request.method(), request.uri().path(), request.headers()) {
            let mut refusal = answer(JSON, AnswerBody::whole(REFUSED));
            *refusal.status_mut() = StatusCode::UNAUTHORIZED;
            return refusal;
        }
        if *request.method() == Method::POST
            && let Some(route) = route(request.uri().path())
        {
            let body = request.into_body();
            return match route {
                Route::Tokens(kind) => self.tokens(kind, body).await,
                Route::Entries(entries) => self.entries(entries, body).await,
            };
        }
        if let Some(rest) = request.uri().path().strip_prefix(responses::PATH) {
            return self.response(request.method(), rest);
        }
        match self.routes.call(request).await {
            Ok(answer) => answer.map(AnswerBody::Routed),
            Err(never) => match never {},
        }
    }

    async fn tokens<B>(&self, kind: Kind, body: B) -> Answer
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<axum::BoxError>,
    {
        let wish = match search(body, MAX_BODY_BYTES).await {
            Ok(wish) => wish,
            Err(unread) => return unread.answer(),
        };
        let canned = Arc::clone(&self.canned.read());
        if wish.stream {
            let total = wish.tokens.unwrap_or(DEFAULT_TOKENS);
            if kind == Kind::Responses {
                self.responses.fetch_add(1, Ordering::Relaxed);
            }
            let stream = TokenStream::new(canned, kind, total, wish.usage, self.interval);
            return answer(EVENTS, AnswerBody::Stream(stream));
        }
        let bytes = match kind {
            Kind::Chat => canned.whole_chats.get(wish.tokens),
            Kind::Completions => canned.whole_completions.get(wish.tokens),
            Kind::Generate => canned.whole_generations.get(wish.tokens),
            Kind::Responses => {
                let number = self.responses.fetch_add(1, Ordering::Relaxed);
                canned.response(&format!("{}{number}", canned.response_prefix()), Status::Completed)
            }
        };
        answer(JSON, AnswerBody::whole(bytes))
    }

    async fn entries<B>(&self, entries: Entries, body: B) -> Answer
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<axum::BoxError>,
    {
        let body = match collect(body, MAX_JSON_BYTES).await {
            Ok(body) => body,
            Err(unread) => return unread.answer(),
        };
        let Ok(lists) = serde_json::from_slice::<Lists>(&body) else {
            return failure(StatusCode::BAD_REQUEST, "The body is not a JSON object.");
        };
        let canned = Arc::clone(&self.canned.read());
        let value = match entries {
            Entries::Embeddings => canned.embeddings(lists.input.len()),
            Entries::Classes => canned.classes(lists.input.len()),
            Entries::Ranks => Canned::ranks(lists.documents.len()),
            Entries::Scores => canned.scores(lists.items.len()),
        };
        answer(JSON, AnswerBody::whole(value))
    }

    /// A response that was created before, or its cancellation: known only here, and only since the last start.
    fn response(&self, method: &Method, rest: &str) -> Answer {
        let (id, status) = match Again::read(method, rest) {
            Some(Again::Retrieve(id)) => (id, Status::Completed),
            Some(Again::Cancel(id)) => (id, Status::Cancelled),
            None => return failure(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
        };
        let canned = Arc::clone(&self.canned.read());
        let number = id.strip_prefix(&canned.response_prefix()).and_then(|number| number.parse::<u64>().ok());
        if number.is_some_and(|number| number < self.responses.load(Ordering::Relaxed)) {
            return answer(JSON, AnswerBody::whole(canned.response(id, status)));
        }
        failure(StatusCode::NOT_FOUND, &not_found(id))
    }
}

fn names(model: &str, index: u32, started: f64) -> Names {
    let id = format!("worker-{index}-{:016x}", mix(started.to_bits() ^ u64::from(index)));
    Names { id, model: model.to_owned(), created: started as u64 }
}

fn answer(kind: HeaderValue, body: AnswerBody) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn failure(status: StatusCode, message: &str) -> Answer {
    let mut answer = answer(JSON, AnswerBody::whole(error_text(status.as_u16(), message)));
    *answer.status_mut() = status;
    answer
}

/// Why a body has not been read to its end.
#[derive(Debug)]
enum Unread {
    /// It has more bytes than this.
    TooLong(usize),
    /// It ended before it was whole.
    Cut,
}

impl Unread {
    fn of(error: &axum::BoxError, limit: usize) -> Self {
        if error.is::<LengthLimitError>() { Self::TooLong(limit) } else { Self::Cut }
    }

    fn answer(&self) -> Answer {
        match self {
            Self::TooLong(limit) => {
                let message = format!("The body is longer than {limit} bytes.");
                failure(StatusCode::PAYLOAD_TOO_LARGE, &message)
            }
            Self::Cut => failure(StatusCode::BAD_REQUEST, "The body was cut before its end."),
        }
    }
}

/// Searches a body without keeping it.
async fn search<B>(body: B, limit: usize) -> Result<Wish, Unread>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    let mut body = Limited::new(body, limit);
    let mut scan = None;
    while let Some(frame) = body.frame().await {
        // Trailers are of no interest.
        let Ok(piece) = frame.map_err(|error| Unread::of(&error, limit))?.into_data() else { continue };
        if scan.is_none() && body.is_end_stream() {
            return Ok(Wish::of(&piece));
        }
        scan.get_or_insert_with(Scan::default).push(&piece);
    }
    Ok(scan.unwrap_or_default().wish())
}

async fn collect<B>(body: B, limit: usize) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<axum::BoxError>,
{
    let whole = Limited::new(body, limit).collect().await;
    Ok(whole.map_err(|error| Unread::of(&error, limit))?.to_bytes())
}

/// The members that say how many entries an answer has.
#[derive(Debug, Default, Deserialize)]
struct Lists {
    #[serde(default)]
    input: Inputs,
    #[serde(default)]
    documents: Inputs,
    #[serde(default)]
    items: Inputs,
}

/// Texts, lists of tokens, or one of them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Inputs {
    Texts(Vec<String>),
    Tokens(Vec<Vec<u32>>),
    One(IgnoredAny),
}

impl Default for Inputs {
    fn default() -> Self {
        Self::One(IgnoredAny)
    }
}

impl Inputs {
    fn len(&self) -> usize {
        match self {
            Self::Texts(all) => all.len(),
            Self::Tokens(all) => all.len(),
            Self::One(_) => 1,
        }
    }
}

#[cfg(test)]
mod tests;
