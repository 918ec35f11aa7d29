//! What is counted per model, endpoint and kind of plan.
//!
//! A row is made when the first request needs it and looked up once per request. Models come from workers, not from
//! clients, and still their number is bounded here: whoever comes too late is counted as unknown.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use super::histogram::{Bounds, Histogram};
use super::labels::{Backend, RequestError};

/// The label of requests whose model no worker has stated.
pub(super) const UNKNOWN: &str = "unknown";

/// Most models that have rows of their own.
const MAX_MODELS: usize = 64;

/// Longest name of a model that becomes a label, in bytes.
const MAX_NAME: usize = 256;

/// The rows of all models. The first one is [`UNKNOWN`].
#[derive(Debug)]
pub(crate) struct Routes(RwLock<Vec<Arc<Model>>>);

/// The rows of one model: one per label of endpoints for each kind of plan.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: Box<str>,
    /// By endpoint, then by kind of plan.
    rows: Box<[[OnceLock<Row>; Backend::ALL.len()]]>,
    durations: Bounds,
}

/// What is counted of one model at one endpoint, of one kind of plan.
#[derive(Debug)]
pub(crate) struct Row {
    /// Requests given to a worker: not streaming, streaming.
    pub(crate) routed: [AtomicU64; 2],
    errors: [AtomicU64; RequestError::ALL.len()],
    /// Arrival to the last byte, of successful answers that came in full.
    pub(crate) duration: Histogram,
    /// Arrival to the first token, of streams.
    pub(crate) first_token: Histogram,
    /// Gaps between the tokens of streams.
    pub(crate) gaps: Histogram,
    /// Mean gap of each stream.
    pub(crate) per_token: Histogram,
    /// First token to the end, of streams that came in full.
    pub(crate) generation: Histogram,
    /// Tokens as the engines counted them: prompt, output.
    pub(crate) tokens: [AtomicU64; 2],
}

impl Routes {
    pub(super) fn new(endpoints: usize, durations: &Bounds) -> Self {
        Self(RwLock::new(vec![Arc::new(Model::new(UNKNOWN, endpoints, durations))]))
    }

    /// The rows of a model that a worker has stated, or of all others.
    pub(crate) fn model(&self, name: Option<&str>) -> Arc<Model> {
        let name = name.filter(|name| name.len() <= MAX_NAME).unwrap_or(UNKNOWN);
        let find = |models: &[Arc<Model>]| models.iter().find(|model| &*model.name == name).cloned();
        if let Some(known) = find(&self.0.read()) {
            return known;
        }
        let mut models = self.0.write();
        if let Some(known) = find(&models) {
            return known;
        }
        let first = Arc::clone(&models[0]);
        if models.len() > MAX_MODELS {
            return first;
        }
        let new = Arc::new(Model::new(name, first.rows.len(), &first.durations));
        models.push(Arc::clone(&new));
        new
    }

    pub(super) fn models(&self) -> Vec<Arc<Model>> {
        self.0.read().clone()
    }
}

impl Model {
    fn new(name: &str, endpoints: usize, durations: &Bounds) -> Self {
        let rows = std::iter::repeat_with(Default::default).take(endpoints).collect();
        Self { name: name.into(), rows, durations: durations.clone() }
    }

    /// The name, unless it stands for no particular model.
    pub(crate) fn stated(&self) -> Option<&str> {
        (&*self.name != UNKNOWN).then_some(&*self.name)
    }

    /// The row of the endpoints whose group has this place.
    pub(crate) fn row(&self, endpoint: usize, backend: Backend) -> &Row {
        self.rows[endpoint][backend as usize].get_or_init(|| Row::new(&self.durations))
    }

    /// The rows that there are, with their places.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, Backend, &Row)> {
        self.rows.iter().enumerate().flat_map(|(at, rows)| {
            let rows = Backend::ALL.into_iter().zip(rows);
            rows.filter_map(move |(backend, row)| row.get().map(|row| (at, backend, row)))
        })
    }
}

impl Row {
    fn new(durations: &Bounds) -> Self {
        let standard = Bounds::of_seconds(&super::histogram::DURATION_BUCKETS);
        Self {
            routed: Default::default(),
            errors: Default::default(),
            duration: Histogram::new(durations),
            first_token: Histogram::new(&standard),
            gaps: Histogram::new(&Bounds::of_gaps()),
            per_token: Histogram::new(&Bounds::of_gaps()),
            generation: Histogram::new(durations),
            tokens: Default::default(),
        }
    }

    /// A request failed.
    pub(crate) fn failed(&self, kind: RequestError) {
        self.errors[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn errors(&self, kind: RequestError) -> u64 {
        self.errors[kind as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_models_is_bounded_and_the_rest_shares_one_row() {
        let routes = Routes::new(1, &Bounds::of_gaps());
        let late = (0..1000).map(|n| routes.model(Some(&format!("model-{n}"))).name.to_string());
        assert_eq!(late.filter(|name| name == UNKNOWN).count(), 1000 - MAX_MODELS);
        assert_eq!(routes.models().len(), MAX_MODELS + 1);
        assert_eq!(&*routes.model(Some("model-3")).name, "model-3", "who was in time stays");
        assert_eq!(&*routes.model(None).name, UNKNOWN);
        assert_eq!(&*routes.model(Some(&"x".repeat(MAX_NAME + 1))).name, UNKNOWN);
    }

    #[test]
    fn a_row_is_there_once_it_is_needed() {
        let routes = Routes::new(3, &Bounds::of_gaps());
        let model = routes.model(Some("m"));
        assert_eq!(model.rows().count(), 0);
        model.row(2, Backend::Pair).failed(RequestError::Timeout);
        let shown = model.rows().map(|(at, backend, row)| (at, backend, row.errors(RequestError::Timeout)));
        assert_eq!(shown.collect::<Vec<_>>(), [(2, Backend::Pair, 1)]);
    }
}
