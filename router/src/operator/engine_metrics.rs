//! `/engine_metrics`: the workers' own metrics on one page.

use http::Uri;

use super::ask::{self, Question, Told};
use super::exposition::Exposition;
use super::{Answering, Asked, reply};
use crate::error::{Answer, Refusal};
use crate::metrics::Format;
use crate::shared::Shared;

/// The only format that is read here, whichever is asked for.
const ACCEPT: &str = "text/plain;version=0.0.4";

/// Longest page of one worker, in bytes.
const MAX_PAGE: usize = 16 << 20;

/// Tells which workers are on the page.
const UP: &str = "smg_engine_metrics_up";
const UP_HELP: &str = "Whether the worker gave its metrics to this page. Unhealthy ones are not asked.";

/// `GET /engine_metrics`.
pub(crate) fn engine_metrics(asked: Asked) -> Answering {
    let question = Question::get(&asked, Uri::from_static("/metrics")).accept(ACCEPT, MAX_PAGE);
    let format = Format::wanted(asked.request.headers());
    Box::pin(async move {
        let shared = &asked.context.shared;
        if shared.members().is_empty() {
            return Refusal::NoWorkers { retry_after_secs: shared.settings.recovery_secs }.answer();
        }
        Asked::wait(&asked.turn, async {
            expose(shared, &ask::fleet(&asked.context, question).await, format)
        })
        .await
    })
}

/// The pages that came as one; a refusal if none did.
pub(super) fn expose(shared: &Shared, told: &[Told], format: Format) -> Answer {
    let mut page = Exposition::default();
    let up: Vec<bool> = told.iter().map(|one| add(&mut page, one)).collect();
    if !up.contains(&true) {
        return ask::nobody(shared, told).answer();
    }
    let urls = told.iter().map(|one| one.member.address.url.as_str());
    page.flags(UP, UP_HELP, urls.zip(up));
    reply::metrics(format, page.render(format))
}

/// Whether it could be added.
fn add(page: &mut Exposition, told: &Told) -> bool {
    let Ok(said) = &told.answer else { return false };
    let url = &told.member.address.url;
    let Ok(text) = std::str::from_utf8(&said.body) else {
        tracing::warn!(worker = %url, "its metrics are no text");
        return false;
    };
    let taken = page.add(url, text);
    if taken.left_out > 0 {
        tracing::warn!(worker = %url, lines = taken.left_out, "some of its metrics are left out: they cannot be read");
    }
    taken.is_a_page()
}
