//! What is shown of each worker that the fleet has now.

use std::fmt;

use super::page::Page;
use super::{MODE, Scrape};
use crate::metrics::live::WorkerRow;
use crate::metrics::routes::UNKNOWN;
use crate::metrics::{WorkerError, WorkerMetrics};

/// Name, help and value of a family with one sample per worker.
type Gauge = (&'static str, &'static str, fn(&WorkerRow) -> u64);

/// The gateway's label for the role.
pub(super) const WORKER_TYPE: &str = "worker_type";

impl Scrape {
    pub(super) fn workers(&self, page: &mut Page) -> fmt::Result {
        let gauges: [Gauge; 4] = [
            ("smg_worker_requests_active", "Requests in flight", |worker| worker.requests),
            ("smg_worker_tokens_active", "Tokens in flight", |worker| worker.tokens),
            ("smg_worker_health", "1 healthy, 0 not", |worker| u64::from(worker.healthy)),
            ("smg_worker_warming_up", "1 while a cold cache is warmed up, 0 otherwise", |worker| {
                u64::from(worker.warming_up)
            }),
        ];
        for (name, help, value) in gauges {
            let mut family = page.gauge(name, help)?;
            self.each_worker(|worker, _| family.value(&worker.labels(), value(worker)))?;
        }
        self.queued_prefill(page)?;
        self.decode_streams(page)?;
        let mut states = page.gauge("smg_worker_state", "1 for the state that the worker is in")?;
        self.each_worker(|worker, _| {
            let [url, role] = worker.labels();
            states.value(&[url, ("state", worker.state), role], 1_u64)
        })?;
        let mut diverted =
            page.counter("smg_worker_warm_up_requests", "Requests that went to a worker to warm it up")?;
        self.each_worker(|worker, _| diverted.count(&worker.labels(), worker.diverted))?;
        let mut checks = page.counter("smg_worker_health_checks", "Health probes")?;
        for engine in &self.live.engines {
            for (result, count) in [("success", engine.good_checks), ("failure", engine.failed_checks)] {
                let labels = [(WORKER_TYPE, engine.role), ("result", result), ("worker", &engine.url)];
                checks.count(&labels, count)?;
            }
        }
        Ok(())
    }

    /// Of those who compute prompts.
    fn queued_prefill(&self, page: &mut Page) -> fmt::Result {
        let help =
            "Prompt tokens in flight of requests without a first token, of workers that compute prompts";
        let mut queued = page.gauge("smg_worker_queued_prefill_tokens", help)?;
        self.each_worker(|worker, _| match worker.queued_prefill_tokens {
            Some(tokens) => queued.value(&worker.labels(), tokens),
            None => Ok(()),
        })
    }

    /// Where there are prefill workers; those who wait for the streams to end, where these are limited.
    fn decode_streams(&self, page: &mut Page) -> fmt::Result {
        if self.live.workers.iter().any(|worker| worker.decode_streams.is_some()) {
            let help = "Decode streams in flight that go on with what the prefill worker computed";
            let mut streams = page.gauge("smg_worker_decode_streams", help)?;
            self.each_worker(|worker, _| match worker.decode_streams {
                Some(count) => streams.value(&worker.labels(), count),
                None => Ok(()),
            })?;
        }
        let Some(waiting) = self.live.dispatch_waiting else { return Ok(()) };
        let help = "Requests that wait for a decode stream to end, as their prefill workers have as many as they may";
        page.gauge("smg_router_decode_dispatch_waiting", help)?.value(&[], waiting)
    }

    pub(super) fn tries(&self, page: &mut Page) -> fmt::Result {
        let mut selections = page.counter("smg_worker_selection", "Tries that went to a worker")?;
        self.each_worker(|worker, counts| {
            for (row, count) in self.shown(worker.role, counts.selections()) {
                let labels = [
                    (WORKER_TYPE, worker.role),
                    MODE,
                    ("model", worker.model()),
                    ("policy", row.name),
                    ("worker", &worker.url),
                ];
                selections.count(&labels, count)?;
            }
            Ok(())
        })?;
        let mut errors = page.counter("smg_worker_errors", "Tries at a worker that failed")?;
        self.each_worker(|worker, counts| {
            for error in WorkerError::ALL {
                let labels = [
                    (WORKER_TYPE, worker.role),
                    MODE,
                    ("error_type", error.label()),
                    ("worker", &worker.url),
                ];
                errors.count(&labels, counts.errors(error))?;
            }
            Ok(())
        })
    }

    pub(super) fn breakers(&self, page: &mut Page) -> fmt::Result {
        let gauges: [Gauge; 3] = [
            ("smg_worker_cb_state", "Breaker: 0 closed, 1 open, 2 half-open", |worker| {
                worker.breaker.state.gauge().into()
            }),
            ("smg_worker_cb_consecutive_failures", "Failures in a row, while closed", |worker| {
                worker.breaker.consecutive_failures.into()
            }),
            ("smg_worker_cb_consecutive_successes", "Successes in a row, while half-open", |worker| {
                worker.breaker.consecutive_successes.into()
            }),
        ];
        for (name, help, value) in gauges {
            let mut family = page.gauge(name, help)?;
            self.each_worker(|worker, _| family.value(&worker.labels(), value(worker)))?;
        }
        let mut transitions = page.counter("smg_worker_cb_transitions", "Changes of the breaker's state")?;
        self.each_worker(|worker, _| {
            worker.breaker.transitions.iter().try_for_each(|(from, to, count)| {
                let [url, role] = worker.labels();
                transitions.count(&[url, ("from", from.label()), ("to", to.label()), role], count)
            })
        })?;
        let mut outcomes =
            page.counter("smg_worker_cb_outcomes", "Requests that ended in a way that a breaker counts")?;
        self.each_worker(|worker, _| {
            for (outcome, count) in [("success", worker.tally.completed), ("failure", worker.tally.failed)] {
                let [url, role] = worker.labels();
                outcomes.count(&[url, ("outcome", outcome), role], count)?;
            }
            Ok(())
        })
    }

    /// Every worker that there is, with its counters.
    pub(super) fn each_worker(
        &self,
        mut show: impl FnMut(&WorkerRow, &WorkerMetrics) -> fmt::Result,
    ) -> fmt::Result {
        self.live.workers.iter().try_for_each(|worker| show(worker, &worker.counts))
    }
}

impl WorkerRow {
    /// Its name, and what it does.
    pub(super) fn labels(&self) -> [(&str, &str); 2] {
        [("worker", &self.url), (WORKER_TYPE, self.role)]
    }

    /// The model that it serves, or the word for those that have not said one.
    pub(super) fn model(&self) -> &str {
        self.model.as_deref().unwrap_or(UNKNOWN)
    }
}
