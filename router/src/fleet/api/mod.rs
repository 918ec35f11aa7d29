//! `/workers`: how operators see the fleet and change it, in the gateway's shapes.

mod change;
mod fault;
mod info;
mod target;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use router_core::Role;
use serde::Serialize;
use serde_json::json;

use self::change::{Addition, Change, Newcomer};
use self::target::Target;
use super::{Leave, Registered, drain, drain_rank, register, set_terms};
use crate::body::Body;
use crate::config::BootstrapPort;
use crate::error::{Answer, Refusal};
use crate::proxy;
use crate::server::Context;
use crate::shared::Shared;
use crate::upstream::without_userinfo;

/// Longest description of a worker, in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// How long a client may take to send one.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What is told of a worker that is known, where its role or port was said.
const KNOWN_WITH_ROLE: &str = "known already, and left as it is; PUT changes it, but for worker_type and bootstrap_port: for \
                               these DELETE it, and register it anew once it is gone";

/// What is wrong with a call, in the gateway's shape.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// Answers a call; `rest` is what follows `/workers` in its path. The method is one of those that are allowed.
pub(crate) async fn handle(context: &Arc<Context>, rest: &str, request: Request<Incoming>) -> Answer {
    let shared = &context.shared;
    let answered = match (Place::of(rest), request.method()) {
        (Some(Place::All), &Method::POST) => add(shared, request).await,
        (Some(Place::All), _) => Ok(list(shared)),
        (Some(Place::One(id)), &Method::PUT) => change(shared, id, request).await,
        (Some(Place::One(id)), &Method::DELETE) | (Some(Place::Drain(id)), _) => {
            remove(shared, id, request.uri().query())
        }
        (Some(Place::One(id)), _) => Target::find(shared, id).map(|target| one(shared, &target)),
        (None, _) => Err(Problem::not_found(rest)),
    };
    (answered.unwrap_or_else(|problem| problem.response()), None)
}

/// What a path speaks of.
enum Place<'a> {
    All,
    One(&'a str),
    Drain(&'a str),
}

impl<'a> Place<'a> {
    fn of(rest: &'a str) -> Option<Self> {
        if rest.is_empty() || rest == "/" {
            return Some(Self::All);
        }
        let rest = rest.strip_prefix('/')?;
        match rest.split_once('/') {
            None => Some(Self::One(rest)),
            Some((id, "drain")) => Some(Self::Drain(id)),
            Some(_) => None,
        }
    }
}

fn list(shared: &Shared) -> Response<Body> {
    json_response(StatusCode::OK, &info::list(shared))
}

fn one(shared: &Shared, target: &Target) -> Response<Body> {
    info::one(shared, target)
        .map(|info| json_response(StatusCode::OK, &info))
        .unwrap_or_else(|| Problem::missing(target.url()).response())
}

async fn add(shared: &Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Problem> {
    let addition: Addition = described(request).await?;
    let Newcomer { address, terms, remark } = addition.resolve(shared)?;
    let role = terms.role;
    let is_settled = role.is_some() || terms.bootstrap_port != BootstrapPort::Asked;
    let (member, message) = match register(shared, &address, terms) {
        Registered::New(member) => {
            tracing::info!(worker = %address.url, role = role.map(Role::label), "registered");
            (member, "registered; it gets requests once it answers its health probe")
        }
        Registered::Known(member) if is_settled => (member, KNOWN_WITH_ROLE),
        Registered::Known(member) => (member, "known already, and left as it is; PUT changes it"),
        Registered::Full => {
            let message = format!("there are {} workers, and no room for more", super::MAX_WORKERS);
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "TOO_MANY_WORKERS", message));
        }
    };
    let message = if remark.is_empty() { message.to_owned() } else { format!("{message}; {remark}") };
    Ok(accepted(&Target::engine(member), &message))
}

/// What is said of a rank is said of its engine.
async fn change(
    shared: &Arc<Shared>,
    id: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Problem> {
    let target = Target::find(shared, id)?;
    let change: Change = described(request).await?;
    set_terms(shared, &target.member, change.resolve()?);
    Ok(accepted(&target, "changed"))
}

/// Longest time to drain, in seconds: about three years.
const MAX_DRAIN_SECS: u64 = 100_000_000;

/// `drain_timeout_secs` in the query goes before the router's own.
fn remove(shared: &Arc<Shared>, id: &str, query: Option<&str>) -> Result<Response<Body>, Problem> {
    let target = Target::find(shared, id)?;
    let asked = query.unwrap_or("").split('&').find_map(|pair| pair.strip_prefix("drain_timeout_secs="));
    let limit = match asked {
        None => shared.settings.drain_timeout,
        Some(text) => {
            let seconds = text.parse().ok().filter(|seconds| *seconds <= MAX_DRAIN_SECS);
            seconds.map(Duration::from_secs).ok_or_else(|| {
                let range = format!("a whole number of seconds from 0 to {MAX_DRAIN_SECS}");
                Problem::bad(format!("drain_timeout_secs: `{text}` is not {range}"))
            })?
        }
    };
    let seconds = limit.as_secs();
    let removal =
        format!("it is removed once those that run there have ended, or after {seconds} s, while they go on");
    let leave = match &target.rank {
        None => drain(shared, &target.member, limit),
        Some(rank) => drain_rank(shared, &target.member, rank, limit),
    };
    let message = match leave {
        Leave::Now => format!("it gets no new requests; {removal}"),
        Leave::Later(stay) => format!(
            "no other worker is ready for its requests, and one is on its way: until then, {} s at most, it gets new \
             requests, and then no more; {removal}",
            stay.as_secs()
        ),
        Leave::Already => "it is leaving already".to_owned(),
    };
    Ok(accepted(&target, &message))
}

/// Text in which `%` and two hexadecimal digits stand for a byte (RFC 3986, section 2.1).
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = after.split_at_checked(2)?;
            let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

/// The body of a call.
async fn described<T: serde::de::DeserializeOwned>(request: Request<Incoming>) -> Result<T, Problem> {
    let (head, mut body) = request.into_parts();
    let receiving = proxy::receive_within(&head.headers, &mut body, MAX_BODY_BYTES, None);
    let received = tokio::time::timeout(BODY_TIMEOUT, receiving).await;
    let received = received.map_err(|_| Problem::bad("the body did not come in time".to_owned()))?;
    let body = received.map_err(|refusal| match refusal {
        Refusal::PayloadTooLarge => Problem::too_long(),
        _ => Problem::bad("the body could not be received in full".to_owned()),
    })?;
    let said = |error: serde_json::Error| {
        let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        Problem::new(status, "BAD_REQUEST", fault::of(&body, &error))
    };
    serde_json::from_slice(&body).map_err(said)
}

fn accepted(target: &Target, message: &str) -> Response<Body> {
    let id = target.identity().to_string();
    let location = format!("/workers/{id}");
    let body = json!({
        "status": "accepted",
        "worker_id": id,
        "url": target.url(),
        "location": location,
        "message": message,
    });
    let mut response = json_response(StatusCode::ACCEPTED, &body);
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, message: String) -> Self {
        Self { status, code, message }
    }

    fn bad(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", message)
    }

    fn too_long() -> Self {
        let message = format!(
            "the body is longer than {MAX_BODY_BYTES} bytes, the most that describes a worker; send shorter labels"
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", message)
    }

    /// Nobody has this name, which may be anything.
    fn not_found(id: &str) -> Self {
        Self::missing(&without_userinfo(id))
    }

    /// The same for a name without secrets.
    fn missing(name: &str) -> Self {
        Self::missing_as(format!("no worker `{name}`; GET /workers lists those that there are"))
    }

    fn missing_as(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "WORKER_NOT_FOUND", message)
    }

    fn response(&self) -> Response<Body> {
        let mut response = json_response(self.status, &json!({"error": self.message, "code": self.code}));
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            // What is left of the body is not read, so the connection cannot serve another request.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

fn json_response(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // These types have string keys and no failing serializer, so this cannot fail; an empty body would show it.
    let mut response = Response::new(Body::own(Bytes::from(serde_json::to_vec(value).unwrap_or_default())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_all_workers_one_or_its_drain() {
        let place = |rest| match Place::of(rest) {
            Some(Place::All) => "all",
            Some(Place::One(_)) => "one",
            Some(Place::Drain(_)) => "drain",
            None => "nothing",
        };
        for (rest, named) in [
            ("", "all"),
            ("/x", "one"),
            ("/http%3A%2F%2Fw%3A1", "one"),
            ("/x/drain", "drain"),
            ("/x/y", "nothing"),
            ("/x/drain/y", "nothing"),
            ("x", "nothing"),
        ] {
            assert_eq!(place(rest), named, "{rest}");
        }
    }

    #[test]
    fn what_is_encoded_is_read_or_refused() {
        for (text, read) in [
            ("abc", Some("abc")),
            ("http%3A%2f%2Fw%3A1", Some("http://w:1")),
            ("%C3%A9", Some("é")),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%+1", None),
            ("%ff", None),
        ] {
            assert_eq!(percent_decoded(text).as_deref(), read, "{text}");
        }
    }
}
