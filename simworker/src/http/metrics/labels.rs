//! The labels that series have in common.

use simworker_core::EngineRole;

use crate::config::WorkerConfig;
use crate::exposition::escape;

/// Labels of all series of a worker, ready to print.
pub(super) struct Labels {
    common: String,
    /// Priorities count, so they are a label; empty for a sum over all, or where a request has none.
    has_priority: bool,
    /// A lone rank does not name itself.
    has_ranks: bool,
}

impl Labels {
    pub(super) fn of(config: &WorkerConfig) -> Self {
        let engine_type = match config.engine.role {
            EngineRole::Whole => "unified",
            EngineRole::Prefill | EngineRole::Decode => config.engine.role.label(),
        };
        let model_name = escape(&config.served_model_name);
        Self {
            common: format!("model_name=\"{model_name}\",engine_type=\"{engine_type}\""),
            has_priority: config.engine.queue.priority.is_some(),
            has_ranks: config.dp_size > 1,
        }
    }

    /// Of the front end, about requests of this priority.
    pub(super) fn tokenizer(&self, priority: Option<i64>) -> String {
        let priority = priority.map(|priority| priority.to_string()).unwrap_or_default();
        format!("{}{}", self.common, self.priority(&priority))
    }

    /// Of the schedulers of all ranks together.
    pub(super) fn scheduler(&self) -> String {
        self.of_scheduler("")
    }

    /// Of the scheduler of one rank, about requests of a priority, as text.
    pub(super) fn rank(&self, rank: u32, priority: &str) -> String {
        let dp = if self.has_ranks { format!(",dp_rank=\"{rank}\"") } else { String::new() };
        format!("{}{dp}", self.of_scheduler(priority))
    }

    fn of_scheduler(&self, priority: &str) -> String {
        let Self { common, .. } = self;
        format!("{common},tp_rank=\"0\",pp_rank=\"0\",moe_ep_rank=\"0\"{}", self.priority(priority))
    }

    fn priority(&self, priority: &str) -> String {
        if self.has_priority { format!(",priority=\"{priority}\"") } else { String::new() }
    }
}
