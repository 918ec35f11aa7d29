//! What `meta_info` says about time with `--enable-metrics` (`convert_to_output_meta_info` in `req_time_stats.py`). Spans
//! are engine time; moments are the wall time at which engine time gets there.

use protocol::sglang::{FrontEndTimes, SchedulerTimes};

use crate::mailbox::{Began, Figures};
use crate::ticket::Ticket;

/// None before the first token, and without metrics.
pub(super) fn scheduled(ticket: &Ticket, figures: &Figures) -> Option<SchedulerTimes> {
    let Began { queued_ns, queue_ns, prefilled_ns, .. } = began(ticket, figures)?;
    Some(SchedulerTimes {
        forward_entry_time: ticket.worker.unix_s(queued_ns + queue_ns),
        prefill_finished_time: ticket.worker.unix_s(prefilled_ns),
        queue_time: seconds(queue_ns),
    })
}

/// None before the end, without a first token, and without metrics.
pub(super) fn served(ticket: &Ticket, figures: &Figures, tokens: u32) -> Option<FrontEndTimes> {
    let Began { queued_ns, first_token_ns, .. } = began(ticket, figures)?;
    let arrived_ns = ticket.arrived_ns;
    let ended_ns = arrived_ns + figures.e2e_ns?;
    let decode_s = seconds(ended_ns.saturating_sub(first_token_ns));
    Some(FrontEndTimes {
        request_received_ts: ticket.worker.unix_s(arrived_ns),
        first_token_latency: seconds(first_token_ns.saturating_sub(arrived_ns)),
        api_server_dispatch_finish_ts: ticket.worker.unix_s(queued_ns),
        request_finished_ts: ticket.worker.unix_s(ended_ns),
        decode_throughput: (tokens > 1 && decode_s > 0.0).then(|| f64::from(tokens - 1) / decode_s),
    })
}

fn began(ticket: &Ticket, figures: &Figures) -> Option<Began> {
    figures.began.filter(|_| ticket.worker.config.wire.enable_metrics)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
