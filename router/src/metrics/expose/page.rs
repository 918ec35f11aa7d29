//! Families and samples in the words of the library that writes them.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Histogram;

/// Names and values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// What is written to.
pub(super) struct Page<'a>(DescriptorEncoder<'a>);

/// One family of it.
pub(super) struct Family<'a>(MetricEncoder<'a>);

impl<'a> Page<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// The library appends `_total` to the name.
    pub(super) fn counter<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.family(name, help, MetricType::Counter)
    }

    pub(super) fn gauge<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.family(name, help, MetricType::Gauge)
    }

    pub(super) fn histogram<'s>(&'s mut self, name: &'s str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.family(name, help, MetricType::Histogram)
    }

    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind).map(Family)
    }
}

impl Family<'_> {
    pub(super) fn count(&mut self, labels: Labels, count: u64) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
    }

    pub(super) fn value(&mut self, labels: Labels, value: u64) -> fmt::Result {
        self.0.encode_family(&labels)?.encode_gauge(&value)
    }

    pub(super) fn times(&mut self, labels: Labels, histogram: &Histogram) -> fmt::Result {
        let shown = histogram.snapshot();
        let mut encoder = self.0.encode_family(&labels)?;
        encoder.encode_histogram::<NoLabelSet>(shown.sum, shown.count, &shown.buckets, None)
    }
}
