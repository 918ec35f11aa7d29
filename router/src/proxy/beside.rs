//! The prefill leg beside an answer that has begun. Its answer is read whether the client reads or not, so that its lease
//! ends with it.

use std::sync::Arc;

use router_core::Outcome;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::attempt::Failure;
use super::call::Prefilled;
use super::call_off::CallOff;
use super::prepare::BookedLeg;
use super::race::Running;
use super::rooms::Taken;
use crate::metrics::WorkerError;

/// It. Dropping it ends the leg.
#[derive(Debug)]
pub(super) struct Beside {
    task: Option<JoinHandle<()>>,
    call_off: Option<CallOff>,
}

impl Beside {
    /// From now on the leg runs by itself, at most until `end`. What goes wrong with it is told here: nobody else asks.
    pub(super) fn begin(
        running: Running,
        mut leg: BookedLeg,
        rooms: Arc<Taken>,
        end: Instant,
        call_off: CallOff,
    ) -> Self {
        let id = call_off.id.clone();
        let task = tokio::spawn(async move {
            let _rooms = rooms;
            let ended = tokio::time::timeout_at(end, running).await;
            let (outcome, error, problem) = match ended.unwrap_or(Err(Failure::TimedOut { hurried: false })) {
                Ok(Prefilled::Done(_)) => return leg.booking.complete(),
                Ok(Prefilled::Refused(_, response)) => {
                    let status = response.status();
                    let error = status.is_server_error().then_some(WorkerError::Status);
                    (Outcome::of_status(status.as_u16()), error, format!("status {status}"))
                }
                Err(failure) => {
                    let error = WorkerError::of_refusal(failure.refusal());
                    (failure.outcome(), error, format!("no answer: {failure}"))
                }
            };
            let worker = leg.member.url_of(leg.assignment.worker);
            let request_id = id.to_str().unwrap_or("-");
            tracing::warn!(request_id, %worker, "{problem}, after the decode leg had begun to answer");
            if let Some(error) = error {
                leg.member.metrics_of(leg.assignment.worker).failed(error);
            }
            leg.booking.fail(outcome);
        });
        Self { task: Some(task), call_off: Some(call_off) }
    }

    /// The other leg's answer is whole: this one may go on to its end.
    pub(super) fn release(mut self) {
        self.task = None;
    }

    /// The other leg has failed.
    pub(super) fn cancel(mut self) {
        let is_over = self.task.as_ref().is_none_or(JoinHandle::is_finished);
        if let Some(call_off) = self.call_off.take().filter(|_| !is_over) {
            // Nobody waits for it.
            drop(call_off.begin());
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
