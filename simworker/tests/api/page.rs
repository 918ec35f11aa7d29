//! A page of metrics, read.

use std::collections::BTreeMap;

use crate::client::Worker;

/// Each series by its name with its labels as they are written.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    series: BTreeMap<String, f64>,
    /// Of each described name.
    kinds: BTreeMap<String, String>,
}

impl Page {
    pub(crate) fn of(worker: &Worker) -> Self {
        Self::parse(&worker.get("/metrics").body)
    }

    pub(crate) fn parse(text: &str) -> Self {
        let split = |line: &str| line.rsplit_once(' ').map(|(name, rest)| (name.to_owned(), rest.to_owned()));
        let kinds = text.lines().filter_map(|line| split(line.strip_prefix("# TYPE ")?)).collect();
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(split);
        let series = samples.map(|(name, value)| (name, value.parse().unwrap())).collect();
        Self { series, kinds }
    }

    /// The one series of SGLang's with this name and, among others, these labels.
    pub(crate) fn value(&self, name: &str, labels: &[&str]) -> f64 {
        let found = self.find(name, labels);
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        found[0].1
    }

    /// All series of SGLang's with this name and, among others, these labels.
    pub(crate) fn find(&self, name: &str, labels: &[&str]) -> Vec<(&str, f64)> {
        let begin = format!("sglang:{name}{{");
        let is_it =
            |series: &str| series.starts_with(&begin) && labels.iter().all(|label| series.contains(label));
        self.series
            .iter()
            .filter(|(series, _)| is_it(series))
            .map(|(series, at)| (&series[..], *at))
            .collect()
    }

    /// The series that may never fall: counters, and buckets, sums and counts.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (&str, f64)> {
        let grows = |series: &str| {
            let name = series.split('{').next().unwrap_or_default();
            let kind = |name: &str| self.kinds.get(name).map(String::as_str);
            let suffixes = ["_bucket", "_sum", "_count"];
            let of = suffixes.iter().find_map(|suffix| kind(name.strip_suffix(suffix)?));
            kind(name) == Some("counter") || matches!(of, Some("histogram" | "summary"))
        };
        self.series.iter().map(|(series, at)| (&series[..], *at)).filter(move |(series, _)| grows(series))
    }

    /// No counter is less than it was.
    pub(crate) fn assert_follows(&self, former: &Self) {
        let mut count = 0;
        for (series, was) in former.counters() {
            let is = self.series.get(series).copied().unwrap_or_else(|| panic!("{series} is gone"));
            assert!(is >= was, "{series} fell from {was} to {is}");
            count += 1;
        }
        assert!(count > 100, "only {count} counters were looked at");
    }
}
