//! Lengths of queues by the priorities of those in them, beside the sums.

use simworker_core::QueueCounts;

use super::labels::Labels;
use crate::exposition::sample;
use crate::worker::RankReport;

/// Appends the series of each priority, if this gauge is split and priorities count.
pub(super) fn by_priority(name: &str, rank: u32, report: &RankReport, labels: &Labels, text: &mut String) {
    let value = |counts: &QueueCounts| match name {
        "num_running_reqs" => Some(counts.running),
        "num_queue_reqs" => Some(counts.waiting),
        _ => None,
    };
    for (priority, counts) in &report.priorities {
        let Some(value) = value(counts) else { return };
        // SGLang prints what Python calls nothing.
        let priority = priority.map_or("None".to_owned(), |priority| priority.to_string());
        sample(text, &format!("sglang:{name}"), &labels.rank(rank, &priority), value as f64);
    }
}
