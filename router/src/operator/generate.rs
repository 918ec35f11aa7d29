//! `/health_generate`: whether every healthy worker still generates. Each is asked to generate a token.

use std::time::Duration;

use http::Uri;
use serde_json::json;

use super::ask::{self, Question, Told};
use super::{Answering, Asked, reply};
use crate::error::{Answer, Refusal};

/// Longest time for all of them. An engine itself gives up after 20 s (`SGLANG_HEALTH_CHECK_TIMEOUT`), and says so.
const TIMEOUT: Duration = Duration::from_secs(22);

/// `GET /health_generate`: to all that get requests, as the others are known not to serve.
pub(crate) fn health_generate(asked: Asked) -> Answering {
    let question = Question::get(&asked, Uri::from_static("/health_generate")).within(TIMEOUT);
    Box::pin(async move {
        let members = match ask::healthy(&asked.context.shared) {
            Ok(members) => members,
            Err(refusal) => return refusal.answer(),
        };
        Asked::wait(&asked.turn, async { verdict(&ask::all(&asked.context, members, question).await) }).await
    })
}

fn verdict(told: &[Told]) -> Answer {
    let failed = told.iter().filter_map(|one| {
        let error = one.answer.as_ref().err()?.to_string();
        Some(json!({"worker": one.member.address.url, "error": error}))
    });
    let failed: Vec<_> = failed.collect();
    if failed.is_empty() {
        return reply::json(&json!({"status": "healthy", "workers": told.len()}));
    }
    Refusal::WorkersUnwell.answer_with("failed", failed.into())
}
