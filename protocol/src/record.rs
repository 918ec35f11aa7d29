//! The request record: one line about one finished request, the same in live and in virtual runs.

/// What became of one request. Times are nanoseconds since the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRecord {
    /// Place of the request in the order of arrival, from 0.
    pub seq: u64,
    /// Prefix group of the workload, if it has groups.
    pub group: Option<u32>,
    /// Session of the workload, if it has sessions.
    pub session: Option<u64>,
    /// Place of the request in its session, from 0.
    pub turn: Option<u32>,
    /// When the schedule wanted it sent.
    pub intended_ns: u64,
    /// When it was sent.
    pub sent_ns: u64,
    /// When its first token arrived; absent when none did.
    pub first_ns: Option<u64>,
    /// When its last byte arrived, or when it failed.
    pub last_ns: u64,
    /// The worker that answered it: its place in the fleet, from 0; absent when none was assigned.
    pub worker: Option<u32>,
    /// The worker that computed the prompt, where that is not the one that served it.
    pub prefill_worker: Option<u32>,
    /// The data-parallel rank that computed the prompt, where the worker has several and tells.
    pub rank: Option<u32>,
    /// Why the router chose that worker (a label of the policy).
    pub reason: String,
    /// Prompt length in tokens, as the engine counted.
    pub prompt_tokens: u64,
    /// Prompt tokens served from the engine's cache, as the engine reports.
    pub cached_tokens: u64,
    /// What the router believed at booking; absent where its policy holds no such belief.
    pub predicted_cached_tokens: Option<u64>,
    /// Output length in tokens.
    pub output_tokens: u64,
    /// HTTP status of the answer (virtual runs use the one a live run would have); 0 when there was no answer.
    pub status: u16,
    /// What went wrong, empty when nothing did.
    pub error: String,
}

impl RequestRecord {
    /// A request that was sent and has no answer yet.
    #[must_use]
    pub fn sent(seq: u64, group: Option<u32>, intended_ns: u64, sent_ns: u64) -> Self {
        Self {
            seq,
            group,
            session: None,
            turn: None,
            intended_ns,
            sent_ns,
            first_ns: None,
            last_ns: sent_ns,
            worker: None,
            prefill_worker: None,
            rank: None,
            reason: String::new(),
            prompt_tokens: 0,
            cached_tokens: 0,
            predicted_cached_tokens: None,
            output_tokens: 0,
            status: 0,
            error: String::new(),
        }
    }

    /// Whether the request was answered in full.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.error.is_empty() && (200..300).contains(&self.status)
    }
}
