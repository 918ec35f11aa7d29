//! How requests failed: by status and error, with a few samples of each.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use minijinja::{Error, Value};
use protocol::record::RequestRecord;
use serde::Serialize;

use super::super::format::{duration_ms, grouped};
use super::super::variant::Variant;
use super::template::fill;
use super::view::View;
use crate::run::has_failed;

/// Most kinds of failure listed per variant, most samples of each, and most variants.
const MAX_KINDS: usize = 5;
const MAX_SAMPLES: usize = 5;
const MAX_VARIANTS: usize = 40;

#[derive(Serialize)]
struct Facts {
    kinds: Vec<Kind>,
    /// Variants with failures that are not listed.
    more: usize,
}

/// Failures of a variant with one status and error.
#[derive(Serialize)]
struct Kind {
    world: &'static str,
    name: String,
    status: u16,
    error: String,
    count: String,
    samples: Vec<Sample>,
}

/// One of them: the first ones by seed and place.
#[derive(Serialize)]
struct Sample {
    seed: u64,
    seq: u64,
    worker: String,
    sent: String,
    after: String,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let failed: Vec<&Variant<'_>> =
        view.variants.iter().filter(|variant| variant.requests_and_failed().1 > 0).collect();
    let kinds: Vec<Kind> =
        failed.iter().take(MAX_VARIANTS).flat_map(|variant| kinds(view, variant)).collect();
    if kinds.is_empty() {
        return Ok(None);
    }
    let more = failed.len().saturating_sub(MAX_VARIANTS);
    fill("failures.html", include_str!("../templates/failures.html"), Facts { kinds, more }).map(Some)
}

fn kinds(view: &View<'_>, variant: &Variant<'_>) -> Vec<Kind> {
    let mut known: BTreeMap<(u16, &str), (u64, Vec<Sample>)> = BTreeMap::new();
    for run in variant.runs.iter().map(|place| &view.experiment.runs()[*place]) {
        for record in run.records.iter().filter(|r| has_failed(r)) {
            let (count, samples) = known.entry((record.status, record.error.as_str())).or_default();
            *count += 1;
            if samples.len() < MAX_SAMPLES {
                samples.push(sample(run.seed, record));
            }
        }
    }
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_by_key(|(_, (count, _))| Reverse(*count));
    let kind = |((status, error), (count, samples)): ((u16, &str), (u64, Vec<Sample>))| Kind {
        world: variant.world.label(),
        name: view.label(variant),
        status,
        error: error.to_owned(),
        count: grouped(count as f64),
        samples,
    };
    known.into_iter().take(MAX_KINDS).map(kind).collect()
}

fn sample(seed: u64, record: &RequestRecord) -> Sample {
    let worker = record.worker.map_or("–".to_owned(), |worker| worker.to_string());
    Sample {
        seed,
        seq: record.seq,
        worker: record.prefill_worker.map_or(worker.clone(), |prefill| format!("{prefill} → {worker}")),
        sent: format!("{:.3} s", record.sent_ns as f64 / 1e9),
        after: duration_ms(record.last_ns.saturating_sub(record.sent_ns) as f64 / 1e6),
    }
}
