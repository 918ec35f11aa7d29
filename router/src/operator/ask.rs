//! A question to workers.
//!
//! Those that are known to be unhealthy are told to be so and not asked, for they would cost the time limit: [`fleet`]. Where
//! being asked is the point, [`everyone`] is asked. Either way one time limit holds for all of them together.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Asked;
use crate::error::Refusal;
use crate::fleet::{Member, Stage, Standing};
use crate::hops;
use crate::request_id::REQUEST_ID;
use crate::server::Context;
use crate::shared::Shared;
use crate::stop::{self, Stop};
use crate::upstream::{CallError, Callee, call};

/// Longest time for the answers of all; for each answer where one is enough.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest answer of one worker, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Workers that are asked at a time.
const AT_ONCE: usize = 32;

/// After this silence of a worker the next one is asked as well, where one answer is enough.
const PATIENCE: Duration = Duration::from_millis(500);

/// As much of a worker's refusal as is told.
const EXCERPT_CHARS: usize = 200;

/// What workers are asked.
#[derive(Debug, Clone)]
pub(super) struct Question {
    method: Method,
    /// Path and query.
    target: Uri,
    /// What a worker is asked that does not know it.
    older: Option<Uri>,
    accept: &'static str,
    /// What is sent as `Authorization` to workers without a key of their own.
    authorization: Option<HeaderValue>,
    id: HeaderValue,
    /// Of the routers that the request has come through.
    marks: Vec<HeaderValue>,
    timeout: Duration,
    max_answer: usize,
}

/// What a worker said.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) member: Arc<Member>,
    pub(super) answer: Result<Said, Unanswered>,
}

/// A success.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) body: Bytes,
    /// Whether it answered the older form of the question.
    pub(super) is_older: bool,
}

/// Why there is no success. For operators: it may tell what the worker said.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("status {}{}{said}", status.as_u16(), if said.is_empty() { "" } else { ": " })]
    Status { status: StatusCode, said: String },
    #[error("{0}")]
    Call(#[from] CallError),
    /// It is known to be unhealthy; the word for how it is.
    #[error("not asked, for it is {state}")]
    NotAsked { state: &'static str },
    #[error("not waited for, for the router ends")]
    Ending,
}

impl Question {
    /// GET of this path and query, on behalf of a request.
    pub(super) fn get(asked: &Asked, target: Uri) -> Self {
        Self {
            method: Method::GET,
            target,
            older: None,
            accept: "application/json",
            authorization: asked.passed_on(),
            id: asked.id.clone(),
            marks: hops::carried(asked.request.headers()),
            timeout: TIMEOUT,
            max_answer: MAX_ANSWER,
        }
    }

    pub(super) fn post(self) -> Self {
        Self { method: Method::POST, ..self }
    }

    /// Workers that do not know the path are asked for this one.
    pub(super) fn or(self, older: Uri) -> Self {
        Self { older: Some(older), ..self }
    }

    pub(super) fn accept(self, accept: &'static str, max_answer: usize) -> Self {
        Self { accept, max_answer, ..self }
    }

    pub(super) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Once the router drains, the answer is not waited for: it may take minutes, and be nobody's concern any more.
    async fn put_to(&self, context: &Context, member: Arc<Member>, deadline: Instant) -> Told {
        let mut stop = context.shared.stop.subscribe();
        let answer = tokio::select! {
            biased;
            answer = self.ask(context, &member, deadline) => answer,
            () = stop::reached(&mut stop, Stop::Drain) => Err(Unanswered::Ending),
        };
        if let Err(problem) = &answer {
            tracing::warn!(worker = %member.address.url, path = %self.target, "no answer: {problem}");
        }
        Told { member, answer }
    }

    async fn ask(&self, context: &Context, member: &Member, deadline: Instant) -> Result<Said, Unanswered> {
        let first = self.exchange(context, member, &self.target, deadline).await;
        match (&first, &self.older) {
            (
                Err(Unanswered::Status {
                    status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED,
                    ..
                }),
                Some(older),
            ) => {
                let body = self.exchange(context, member, older, deadline).await?;
                Ok(Said { body, is_older: true })
            }
            _ => Ok(Said { body: first?, is_older: false }),
        }
    }

    async fn exchange(
        &self,
        context: &Context,
        member: &Member,
        target: &Uri,
        deadline: Instant,
    ) -> Result<Bytes, Unanswered> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let callee = Callee { member, timeout, max_answer: self.max_answer };
        let answer = call(&context.pool, callee, self.request(member, target)).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let text = String::from_utf8_lossy(answer.body());
        Err(Unanswered::Status { status, said: text.trim().chars().take(EXCERPT_CHARS).collect() })
    }

    fn request(&self, member: &Member, target: &Uri) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = target.clone();
        let headers = request.headers_mut();
        headers.insert(header::HOST, member.address.host.clone());
        headers.insert(header::ACCEPT, HeaderValue::from_static(self.accept));
        headers.insert(REQUEST_ID, self.id.clone());
        hops::carry(&self.marks, headers);
        if let Some(key) = member.authorization().or_else(|| self.authorization.clone()) {
            headers.insert(header::AUTHORIZATION, key);
        }
        request
    }
}

impl Told {
    /// The word for how a worker is that was not asked.
    pub(super) fn state(&self) -> Option<&'static str> {
        match self.answer {
            Err(Unanswered::NotAsked { state }) => Some(state),
            _ => None,
        }
    }
}

/// Why there is no answer at all.
pub(super) fn nobody(shared: &Shared, told: &[Told]) -> Refusal {
    if told.iter().all(|one| one.state().is_some()) {
        return Refusal::NoneHealthy { retry_after_secs: shared.settings.recovery_secs };
    }
    Refusal::NoWorkerAnswered
}

/// What the whole fleet says, in its order. Those known to be unhealthy are not asked.
pub(super) async fn fleet(context: &Arc<Context>, question: Question) -> Vec<Told> {
    let (well, unwell) = by_health(&context.shared);
    let mut told = all(context, well, question).await;
    told.extend(unwell.into_iter().map(|member| {
        // One that has been there and is not has no stage of its own.
        let state = match member.stage() {
            Stage::Ready | Stage::Staying | Stage::Draining => "unhealthy",
            stage => stage.label(),
        };
        Told { member, answer: Err(Unanswered::NotAsked { state }) }
    }));
    told.sort_unstable_by_key(|one| one.member.first_id);
    told
}

/// What the whole fleet says, in its order. All are asked, those known to be unhealthy last: they cost the others no time.
pub(super) async fn everyone(context: &Arc<Context>, question: Question) -> Vec<Told> {
    let (well, unwell) = by_health(&context.shared);
    let mut told = all(context, [well, unwell].concat(), question).await;
    told.sort_unstable_by_key(|one| one.member.first_id);
    told
}

/// The healthy workers, and the others.
fn by_health(shared: &Shared) -> (Vec<Arc<Member>>, Vec<Arc<Member>>) {
    let (well, unwell): (Vec<_>, Vec<_>) = shared.standings().into_iter().partition(|worker| worker.healthy);
    (engines(well), engines(unwell))
}

/// The engines of these workers, each once: those of one stand together.
fn engines(workers: impl IntoIterator<Item = Standing>) -> Vec<Arc<Member>> {
    let mut members: Vec<_> = workers.into_iter().map(|worker| worker.member).collect();
    members.dedup_by_key(|member| member.first_id);
    members
}

/// What all of these say, in their order. The time limit begins now, for those too that are asked later.
pub(super) async fn all(context: &Arc<Context>, members: Vec<Arc<Member>>, question: Question) -> Vec<Told> {
    let deadline = Instant::now() + question.timeout;
    let question = Arc::new(question);
    let mut told: Vec<Option<Told>> = members.iter().map(|_| None).collect();
    let mut waiting = members.into_iter().enumerate();
    let mut calls = JoinSet::new();
    loop {
        while calls.len() < AT_ONCE
            && let Some((place, member)) = waiting.next()
        {
            let (context, question) = (Arc::clone(context), Arc::clone(&question));
            calls.spawn(async move { (place, question.put_to(&context, member, deadline).await) });
        }
        match calls.join_next().await {
            Some(Ok((place, one))) => told[place] = Some(one),
            // It panicked, which has been told.
            Some(Err(_)) => {}
            None => return told.into_iter().flatten().collect(),
        }
    }
}

/// What one of these says, the earlier the rather: one that is silent is not waited for long. Each has the time limit for
/// itself. `None` if nobody has an answer.
pub(super) async fn any(
    context: &Arc<Context>,
    members: Vec<Arc<Member>>,
    question: Question,
) -> Option<(Arc<Member>, Said)> {
    let question = Arc::new(question);
    let mut waiting = members.into_iter();
    let mut calls = JoinSet::new();
    loop {
        if calls.len() < AT_ONCE
            && let Some(member) = waiting.next()
        {
            let (context, question) = (Arc::clone(context), Arc::clone(&question));
            let deadline = Instant::now() + question.timeout;
            calls.spawn(async move { question.put_to(&context, member, deadline).await });
        }
        let is_last = waiting.len() == 0;
        tokio::select! {
            answered = calls.join_next() => match answered {
                Some(Ok(Told { member, answer: Ok(said) })) => return Some((member, said)),
                Some(_) => {}
                None => return None,
            },
            () = tokio::time::sleep(PATIENCE), if !is_last => {}
        }
    }
}

/// The workers that get requests now, whatever their breakers say.
///
/// # Errors
/// There are none.
pub(super) fn healthy(shared: &Shared) -> Result<Vec<Arc<Member>>, Refusal> {
    let fleet = shared.standings();
    let retry_after_secs = shared.settings.recovery_secs;
    if fleet.is_empty() {
        return Err(Refusal::NoWorkers { retry_after_secs });
    }
    let takers = fleet.into_iter().filter(|worker| worker.takes_requests);
    let members = engines(takers);
    if members.is_empty() { Err(Refusal::NoneHealthy { retry_after_secs }) } else { Ok(members) }
}
