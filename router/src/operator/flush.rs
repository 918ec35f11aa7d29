//! `/flush_cache`: every worker empties its cache, and the router forgets what it believed of it.

use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Uri};
use serde::Serialize;

use super::ask::{self, Question, Told};
use super::{Answering, Asked, reply};
use crate::error::{Answer, Refusal};
use crate::server::Context;

/// Longest time for all of them to answer, beside what the query lets it wait for idleness.
const TIMEOUT: Duration = Duration::from_secs(5);
/// More than that is not waited for.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// The gateway's answer. The two lists are told only where some failed, as there.
#[derive(Debug, Serialize)]
struct Flushed<'a> {
    status: &'static str,
    message: String,
    workers_flushed: usize,
    total_http_workers: usize,
    total_workers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    successful: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<Vec<Failed<'a>>>,
}

#[derive(Debug, Serialize)]
struct Failed<'a> {
    worker: &'a str,
    error: String,
}

/// `POST /flush_cache`: to all, as one that is unhealthy may have a cache too and come back with it. The query goes on to the
/// workers. Once begun it goes on whatever becomes of its client: a cache that is emptied must be forgotten.
pub(crate) fn flush_cache(asked: Asked) -> Answering {
    let query = asked.request.uri().query();
    // A query that came in a target can stand in one.
    let target = query.and_then(|query| format!("/flush_cache?{query}").parse().ok());
    let question = Question::get(&asked, target.unwrap_or(Uri::from_static("/flush_cache"))).post();
    let question = question.within(TIMEOUT + query.map_or(Duration::ZERO, wait));
    Box::pin(async move {
        let flushing = tokio::spawn(flush(Arc::clone(&asked.context), question));
        Asked::wait(&asked.turn, async {
            match flushing.await {
                Ok(told) => report(&told),
                // It panicked, which has been told.
                Err(_) => Refusal::NoWorkerAnswered.answer(),
            }
        })
        .await
    })
}

/// How long a worker with running requests may wait for its idleness: SGLang's `timeout`, in seconds.
fn wait(query: &str) -> Duration {
    let given = query.split('&').find_map(|part| part.strip_prefix("timeout="));
    let seconds = given.and_then(|text| text.parse().ok()).unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO).min(MAX_WAIT)
}

async fn flush(context: Arc<Context>, question: Question) -> Vec<Told> {
    let told = ask::everyone(&context, question).await;
    for one in told.iter().filter(|one| one.answer.is_ok()) {
        context.shared.forget_cache(&one.member);
    }
    told
}

fn report(told: &[Told]) -> Answer {
    let successful: Vec<&str> =
        told.iter().filter(|one| one.answer.is_ok()).map(|one| one.member.address.url.as_str()).collect();
    let failed: Vec<Failed<'_>> = told
        .iter()
        .filter_map(|one| {
            let error = one.answer.as_ref().err()?.to_string();
            Some(Failed { worker: &one.member.address.url, error })
        })
        .collect();
    let (flushed, total) = (successful.len(), told.len());
    let is_partial = !failed.is_empty();
    let answer = Flushed {
        status: if is_partial { "partial_success" } else { "success" },
        message: format!("{flushed} of {total} workers emptied their caches"),
        workers_flushed: flushed,
        total_http_workers: total,
        total_workers: total,
        successful: is_partial.then_some(successful),
        failed: is_partial.then_some(failed),
    };
    reply::json_with(if is_partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }, &answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_the_time_that_the_query_gives_it() {
        for (query, seconds) in [
            ("", 0.0),
            ("timeout=30", 30.0),
            ("a=b&timeout=2.5", 2.5),
            ("timeout=-1", 0.0),
            ("timeout=x", 0.0),
            ("timeout=1e9", 600.0),
        ] {
            assert_eq!(wait(query), Duration::from_secs_f64(seconds), "{query}");
        }
    }
}
