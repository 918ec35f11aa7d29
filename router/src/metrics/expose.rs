//! The text of `/metrics`: every family, in one order, from the counters and from what is read at that moment.
//!
//! The library writes the formats; what is written is decided anew at each scrape, which is how the series of a worker
//! that has left disappear.

mod page;
mod pools;
mod workers;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use router_core::{Leg, POLICIES, PolicyRow, Role};

use super::labels::{End, RequestError};
use super::live::Live;
use super::routes::Row;
use super::{Format, Histogram, LEGS, Metrics, read};
use page::{Labels, Page};

/// The labels that tell nothing yet and that dashboards of the gateway select by.
const HTTP: (&str, &str) = ("router_type", "http");
const MODE: (&str, &str) = ("connection_mode", "http");

impl Metrics {
    /// The text of `/metrics`.
    pub(crate) fn render(self: &Arc<Self>, live: Live, format: Format) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape { metrics: Arc::clone(self), live }));
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = match format {
            Format::Plain => prometheus_text::encode(&mut out, &registry),
            Format::OpenMetrics => text::encode(&mut out, &registry),
        };
        out
    }
}

/// Name, help and values of a family of histograms with one per route.
type Times = (&'static str, &'static str, fn(&Row) -> &Histogram);

/// One scrape.
#[derive(Debug)]
struct Scrape {
    metrics: Arc<Metrics>,
    live: Live,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page::new(encoder);
        self.http(&mut page)?;
        self.clients(&mut page)?;
        self.router(&mut page)?;
        self.streams(&mut page)?;
        self.decisions(&mut page)?;
        self.branches(&mut page)?;
        self.admission(&mut page)?;
        self.index(&mut page)?;
        self.pools(&mut page)?;
        self.workers(&mut page)?;
        self.tries(&mut page)?;
        self.breakers(&mut page)?;
        self.retries(&mut page)?;
        self.recording(&mut page)
    }
}

impl Scrape {
    fn http(&self, page: &mut Page) -> fmt::Result {
        let metrics = &self.metrics;
        let mut requests = page.counter("smg_http_requests", "Requests received")?;
        for endpoint in &metrics.endpoints {
            let labels = [("method", "POST"), ("path", &*endpoint.name.path)];
            requests.count(&labels, read(&endpoint.arrived))?;
        }
        for ((method, path), count) in metrics.elsewhere.rows() {
            requests.count(&[("method", method), ("path", path)], count)?;
        }
        let mut responses = page.counter("smg_http_responses", "Responses begun")?;
        for ((status, code), count) in metrics.answers.rows() {
            responses.count(&[("status_code", &status.to_string()), ("error_code", code)], count)?;
        }
        let mut durations = page.histogram(
            "smg_http_request_duration_seconds",
            "Arrival to the end of the answer, of all requests to workers",
        )?;
        for endpoint in &metrics.endpoints {
            let labels = [("method", "POST"), ("path", &*endpoint.name.path)];
            durations.times(&labels, &endpoint.duration)?;
        }
        page.gauge("smg_http_connections_active", "Requests to workers that are being handled")?
            .value(&[], metrics.in_flight.len())?;
        let mut ages =
            page.gauge("smg_http_inflight_request_age_count", "Requests being handled, by age in seconds")?;
        for band in metrics.in_flight.ages(self.live.now_ns) {
            let upper = band.up_to_secs.map_or_else(|| "+Inf".to_owned(), |limit| limit.to_string());
            ages.value(&[("gt", &band.above_secs.to_string()), ("le", &upper)], band.requests)?;
        }
        Ok(())
    }

    fn clients(&self, page: &mut Page) -> fmt::Result {
        let clients = &self.metrics.clients;
        page.gauge("smg_router_client_connections", "Connections of clients")?.value(&[], clients.open())?;
        let help = "Times that as many clients were connected as may be";
        page.counter("smg_router_client_limit_reached", help)?.count(&[], clients.limit_reached())?;
        let help = "Connections of clients without a TLS handshake";
        page.counter("smg_router_client_tls_failures", help)?.count(&[], clients.failed_handshakes())
    }

    fn router(&self, page: &mut Page) -> fmt::Result {
        let metrics = &self.metrics;
        let mut requests = page.counter("smg_router_requests", "Requests given to a worker")?;
        self.each_row(|labels, row| {
            for (streaming, count) in ["false", "true"].into_iter().zip(&row.routed) {
                requests.count(&[labels, &[("streaming", streaming)]].concat(), read(count))?;
            }
            Ok(())
        })?;
        let mut durations = page.histogram(
            "smg_router_request_duration_seconds",
            "Arrival to last byte of successful answers that came in full",
        )?;
        self.each_row(|labels, row| durations.times(labels, &row.duration))?;
        let mut errors = page.counter("smg_router_request_errors", "Requests that failed in the end")?;
        self.each_row(|labels, row| {
            for kind in RequestError::ALL {
                errors.count(&[labels, &[("error_type", kind.label())]].concat(), row.errors(kind))?;
            }
            Ok(())
        })?;
        let mut upstream =
            page.counter("smg_router_upstream_responses", "Response heads from workers, one per try")?;
        for ((status, code), count) in metrics.upstream_answers.rows() {
            let labels = [HTTP, ("status_code", &status.to_string()), ("error_code", code)];
            upstream.count(&labels, count)?;
        }
        let mut ends = page.counter("smg_router_request_ends", "Requests by how they ended")?;
        for end in End::ALL {
            ends.count(&[("end", end.label())], read(&metrics.ends[end as usize]))?;
        }
        Ok(())
    }

    fn streams(&self, page: &mut Page) -> fmt::Result {
        let families: [Times; 4] = [
            ("smg_router_ttft_seconds", "Arrival to first token of streams", |row| &row.first_token),
            ("smg_router_itl_seconds", "Gaps between the tokens of streams", |row| &row.gaps),
            ("smg_router_tpot_seconds", "Mean gap between tokens of each stream", |row| &row.per_token),
            (
                "smg_router_generation_duration_seconds",
                "First token to the end of streams that came in full",
                |row| &row.generation,
            ),
        ];
        for (name, help, histogram) in families {
            let mut family = page.histogram(name, help)?;
            self.each_row(|labels, row| family.times(labels, histogram(row)))?;
        }
        let mut tokens = page.counter("smg_router_tokens", "Tokens as the engines counted them")?;
        self.each_row(|labels, row| {
            for (kind, count) in ["input", "output"].into_iter().zip(&row.tokens) {
                tokens.count(&[labels, &[("token_type", kind)]].concat(), read(count))?;
            }
            Ok(())
        })
    }

    fn decisions(&self, page: &mut Page) -> fmt::Result {
        let metrics = &self.metrics;
        let mut decisions = page.counter("smg_router_decisions", "Decisions by the policy's reason")?;
        for (row, reasons) in POLICIES.iter().zip(&metrics.decisions) {
            for (reason, counts) in reasons {
                for (role, count) in Role::ALL.into_iter().zip(counts.iter()) {
                    if self.is_shown(row, role, read(count)) {
                        let labels =
                            [("policy", row.name), ("reason", *reason), ("worker_type", role.label())];
                        decisions.count(&labels, read(count))?;
                    }
                }
            }
        }
        let cache = &metrics.cache;
        for (name, help, count) in [
            (
                "smg_router_predicted_cached_tokens",
                "Prompt tokens that the router believed cached when it booked",
                &cache.predicted,
            ),
            ("smg_router_cached_tokens", "Prompt tokens that the engine reported as cached", &cache.actual),
            (
                "smg_router_prompt_tokens",
                "Prompt tokens of the answers that told their cached tokens",
                &cache.prompt,
            ),
        ] {
            page.counter(name, help)?.count(&[], read(count))?;
        }
        Ok(())
    }

    /// The decisions once more, as the gateway counts them, and the routing keys behind them.
    fn branches(&self, page: &mut Page) -> fmt::Result {
        for (row, reasons) in POLICIES.iter().zip(&self.metrics.decisions) {
            let is_shown_of = |role: Role| {
                reasons.iter().any(|(_, counts)| self.is_shown(row, role, read(counts.get(role))))
            };
            let is_shown = Role::ALL.into_iter().any(is_shown_of);
            let Some(name) = row.branch_metric.filter(|_| is_shown) else { continue };
            let help = format!("Decisions of {} by the branch that it took", row.name);
            let mut branches = page.counter(name, &help)?;
            for (reason, counts) in reasons {
                branches.count(&[("branch", reason)], counts.iter().map(read).sum())?;
            }
        }
        let Some(keys) = self.live.remembered_keys else { return Ok(()) };
        page.gauge("smg_manual_policy_cache_entries", "Routing keys that are remembered")?
            .value(&[], keys)?;
        let help = "Routing keys that stick to the worker";
        let mut of_workers = page.gauge("smg_worker_routing_keys_active", help)?;
        self.each_worker(|worker, _| of_workers.value(&worker.labels(), worker.routing_keys.unwrap_or(0)))
    }

    /// Whether a count of this policy's over the workers of a role is shown: of a policy that rules over nobody, what it did
    /// while it ruled.
    fn is_shown(&self, policy: &PolicyRow, role: Role, count: u64) -> bool {
        let has_any = || self.live.workers.iter().any(|worker| worker.role == role.label());
        let stands_for_all = self.live.workers.is_empty() && role == Role::Regular;
        count > 0 || policy.name == self.metrics.policy(role) && (stands_for_all || has_any())
    }

    /// Those of these counts of the policies that are shown of a worker of this role.
    fn shown(
        &self,
        role: &str,
        counts: impl Iterator<Item = u64>,
    ) -> impl Iterator<Item = (&'static PolicyRow, u64)> {
        let of_role = Role::ALL.into_iter().find(|other| other.label() == role);
        let ruling = of_role.map(|role| self.metrics.policy(role));
        POLICIES.iter().zip(counts).filter(move |(row, count)| *count > 0 || Some(row.name) == ruling)
    }

    fn admission(&self, page: &mut Page) -> fmt::Result {
        let Metrics { admission, sheds, .. } = &*self.metrics;
        let mut results =
            page.counter("smg_http_rate_limit", "Requests by whether the concurrency limit let them in")?;
        results.count(&[("result", "allowed")], read(&admission.admitted))?;
        results.count(&[("result", "rejected")], read(&admission.turned_away))?;
        let queue = &self.live.queue;
        page.gauge("smg_router_queue_depth", "Requests that wait to be let in")?.value(&[], queue.waiting)?;
        page.gauge("smg_router_admitted_requests", "Requests that the concurrency limit counts")?
            .value(&[], queue.in_use)?;
        page.histogram("smg_router_queue_wait_seconds", "Wait of the requests that were let in")?
            .times(&[], &admission.wait)?;
        let mut shed =
            page.counter("smg_router_sheds", "Refusals for want of room or workers, by error code")?;
        for (reason, count) in sheds.rows() {
            shed.count(&[("reason", reason)], count)?;
        }
        Ok(())
    }

    fn index(&self, page: &mut Page) -> fmt::Result {
        let Some(index) = &self.live.index else { return Ok(()) };
        page.gauge("smg_router_index_bytes", "Memory of the prefix index")?.value(&[], index.bytes)?;
        page.gauge("smg_router_index_nodes", "Nodes of the prefix index")?.value(&[], index.nodes)?;
        let help = "Characters that the prefix index gave up for its bounds";
        page.counter("smg_router_index_evicted_chars", help)?.count(&[], index.evicted_chars)?;
        let mut chars =
            page.gauge("smg_worker_index_chars", "Characters believed to be in the worker's cache")?;
        self.each_worker(|worker, _| chars.value(&worker.labels(), worker.index_chars))
    }

    fn recording(&self, page: &mut Page) -> fmt::Result {
        let Some(counts) = self.live.recorded else { return Ok(()) };
        page.counter("smg_router_record_lines", "Lines of the recording that were written")?
            .count(&[], counts.written)?;
        let help =
            "Lines that are missing in the recording, for want of room or because they could not be written";
        page.counter("smg_router_record_dropped", help)?.count(&[], counts.dropped)
    }

    fn retries(&self, page: &mut Page) -> fmt::Result {
        let metrics = &self.metrics;
        let mut retries = page.counter("smg_worker_retries", "Tries that were followed by another one")?;
        for ((endpoint, leg, cause), count) in metrics.retries.rows() {
            let endpoint = &*metrics.endpoint(endpoint).label;
            let labels = [("worker_type", leg.label()), ("endpoint", endpoint), ("cause", cause)];
            retries.count(&labels, count)?;
        }
        let help = "Requests that no further try was left for";
        let mut exhausted = page.counter("smg_worker_retries_exhausted", help)?;
        for (at, endpoint) in metrics.endpoints.iter().enumerate() {
            if endpoint.group != at {
                continue;
            }
            for (leg, count) in LEGS.iter().zip(&endpoint.exhausted) {
                // Who has no pairs sees nothing of their legs.
                if *leg == Leg::Whole || read(count) > 0 {
                    let labels = [("worker_type", leg.label()), ("endpoint", &*endpoint.name.label)];
                    exhausted.count(&labels, read(count))?;
                }
            }
        }
        let help = "Wait after a failed try, by the number of tries so far";
        let mut backoffs = page.histogram("smg_worker_retry_backoff_seconds", help)?;
        for (at, histogram) in metrics.backoffs.iter().enumerate() {
            if histogram.snapshot().count > 0 {
                backoffs.times(&[("attempt", &(at + 1).to_string())], histogram)?;
            }
        }
        Ok(())
    }

    /// Every row of a model, an endpoint and a kind of plan, with the labels that all their families share.
    fn each_row(&self, mut show: impl FnMut(Labels, &Row) -> fmt::Result) -> fmt::Result {
        for model in self.metrics.routes.models() {
            for (endpoint, backend, row) in model.rows() {
                let endpoint = &*self.metrics.endpoint(endpoint).label;
                let backend = ("backend_type", backend.label());
                show(&[HTTP, backend, MODE, ("model", &*model.name), ("endpoint", endpoint)], row)?;
            }
        }
        Ok(())
    }
}
