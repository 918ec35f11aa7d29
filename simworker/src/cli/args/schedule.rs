//! Flags about which requests run when.

use clap::Args;
use simworker_core::{PrefillInterval, PriorityConfig, QueueConfig, Schedule};

use super::words::{default_chunk, defaults, parse_overhead, schedules};

#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduler")]
pub(super) struct ScheduleArgs {
    /// Order of the waiting requests.
    #[arg(long, value_name = "POLICY", default_value = defaults().schedule.label(), value_parser = schedules())]
    pub(in crate::cli) schedule_policy: Schedule,
    /// Most tokens of a prefill step; -1 never cuts a prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = default_chunk(), allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    pub(in crate::cli) chunked_prefill_size: i64,
    /// Under lpm: share what a half computed prompt has so far before the queue is ordered, as SGLang does, so that
    /// requests with its prefix go first for the part that is there and compute the rest again. Without this flag it
    /// is shared after, and they wait for the whole prefix.
    #[arg(long)]
    pub(in crate::cli) share_chunks_first: bool,
    /// Tokens after which a prefill step takes no further request.
    #[arg(long, value_name = "TOKENS", default_value_t = defaults().max_prefill_tokens)]
    pub(in crate::cli) max_prefill_tokens: u32,
    /// Most requests that run at once [default: by KV and context, as SGLang does].
    #[arg(long, value_name = "N")]
    pub(in crate::cli) max_running_requests: Option<u32>,
    /// Most requests that wait [default: no limit].
    #[arg(long, value_name = "N")]
    pub(in crate::cli) max_queued_requests: Option<u32>,
    /// The results of a step are known when it ends, not one step later.
    #[arg(long)]
    pub(in crate::cli) disable_overlap_schedule: bool,
    /// Context length in tokens [default: the preset's].
    #[arg(long, value_name = "TOKENS")]
    pub(in crate::cli) context_length: Option<u32>,
    /// Reservation for unfinished output at admission.
    #[arg(long, value_name = "FACTOR", default_value_t = defaults().conservativeness)]
    pub(in crate::cli) schedule_conservativeness: f64,
    /// What --schedule-policy random draws from.
    #[arg(long, value_name = "SEED", default_value_t = 0, allow_negative_numbers = true)]
    random_seed: i64,
    /// Priorities of requests count; with --schedule-policy fcfs or lof only. A request without one is the last.
    #[arg(long)]
    enable_priority_scheduling: bool,
    /// With --enable-priority-scheduling, the priority of requests that name none [default: none, which is the last].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(in crate::cli) default_priority_value: Option<i64>,
    /// Requests with small priorities go first, not those with large ones.
    #[arg(long)]
    schedule_low_priority_values_first: bool,
    /// Where all places are taken, a request takes that of one whose priority is worse by more than this.
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    priority_scheduling_preemption_threshold: i64,
    /// No running request gives way to a more important one.
    #[arg(long)]
    disable_priority_preemption: bool,
    /// Requests with a priority are refused unless priorities count.
    #[arg(long)]
    abort_on_priority_when_disabled: bool,
    /// Abort requests that have waited longer, as SGLang does by SGLANG_REQ_WAITING_TIMEOUT [default: never].
    #[arg(long = "waiting-timeout", value_name = "DURATION", value_parser = parse_overhead)]
    waiting_timeout_ns: Option<u64>,
    /// Abort requests that have run longer, as SGLang does by SGLANG_REQ_RUNNING_TIMEOUT [default: never].
    #[arg(long = "running-timeout", value_name = "DURATION", value_parser = parse_overhead)]
    running_timeout_ns: Option<u64>,
    /// Running requests make a token in prefill steps too, if prompts are cut.
    #[arg(long)]
    pub(in crate::cli) enable_mixed_chunk: bool,
    /// Most requests in a prefill step [default: no limit].
    #[arg(long, value_name = "N")]
    pub(in crate::cli) prefill_max_requests: Option<u32>,
    /// Decode steps from one report of the load to the next; prefill steps and idle workers report at once.
    #[arg(long, value_name = "N", default_value_t = defaults().load_report_steps)]
    pub(in crate::cli) load_snapshot_publish_interval: u32,
    /// Decode steps from one report of throughput and of KV events to the next; prefill steps and idle workers report at
    /// once.
    #[arg(long, value_name = "N", default_value_t = defaults().decode_log_interval)]
    pub(in crate::cli) decode_log_interval: u32,
    /// Decode steps between two prefill steps; 0 prefills whenever it can.
    #[arg(long, value_name = "N", default_value_t = 0)]
    prefill_decode_interval: u32,
    /// With fewer running requests, --prefill-decode-interval holds nothing up.
    #[arg(long, value_name = "N", default_value_t = 0)]
    prefill_decode_interval_min_bs: u32,
}

impl ScheduleArgs {
    pub(super) fn queue(&self) -> QueueConfig {
        let threshold = self.priority_scheduling_preemption_threshold;
        let priority = PriorityConfig {
            low_values_first: self.schedule_low_priority_values_first,
            preempts_above: (!self.disable_priority_preemption).then_some(threshold),
        };
        QueueConfig {
            seed: self.random_seed.cast_unsigned(),
            priority: self.enable_priority_scheduling.then_some(priority),
            refuses_priorities: self.abort_on_priority_when_disabled,
            waiting_timeout_ns: self.waiting_timeout_ns,
            running_timeout_ns: self.running_timeout_ns,
        }
    }

    pub(super) fn prefill_interval(&self) -> PrefillInterval {
        PrefillInterval {
            steps: self.prefill_decode_interval,
            min_batch: self.prefill_decode_interval_min_bs,
        }
    }
}
