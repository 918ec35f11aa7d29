//! What an engine is made of, and what it refuses to be made of.

mod queue;

use thiserror::Error;

use crate::cache::{Eviction, can_name_pages};
use crate::cost::CostModel;
pub use queue::{PrefillInterval, PriorityConfig, QueueConfig, Schedule};

pub use crate::handoff::{EngineRole, HandoffConfig};
use crate::namespace::BlockNaming;
use crate::preset::Preset;
pub use crate::scheduler::{HOST_BYTES_PER_SECOND, HostTierConfig};

/// What [`Engine::next_deadline`](crate::engine::Engine::next_deadline) names. The results are the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pace {
    /// The end of every step, for a world in which each token is delivered when it is made.
    Step,
    /// The next moment at which more happens than one more token for each running request.
    #[default]
    Stretch,
}

/// What an [`Engine`](crate::engine::Engine) is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// How long steps take.
    pub cost: CostModel,
    /// Tokens of KV; rounded down to whole pages.
    pub kv_tokens: u64,
    /// Tokens per page of KV, at least 1.
    pub page_size: u32,
    /// Context length of the model in tokens.
    pub context_len: u32,
    /// Order of the waiting requests.
    pub schedule: Schedule,
    /// What else bounds and orders them.
    pub queue: QueueConfig,
    /// Under the schedules that match waiting requests against the cache: let one of several waiting requests with the same new prefix go first, so that the
    /// others find it cached.
    pub in_batch_prefix_caching: bool,
    /// Under [`Schedule::Lpm`]: share what a chunked request has computed before the queue is ordered, as SGLang does,
    /// and not after.
    ///
    /// Requests with the prefix of a half computed prompt then match a part of it, go first for that, and compute the
    /// rest once more, all of them, in the very step that completes it: in-batch prefix caching looks only at
    /// those that match nothing. On 205 groups of 5 prompts, each group on one worker, this alone takes the hit
    /// rate from 74 % to 64 %, while SGLang's v0.4 release reports 75 % for its cache-aware run; so it is off by
    /// default.
    pub share_chunks_first: bool,
    /// Which cached tokens go first when KV runs short.
    pub eviction: Eviction,
    /// Nothing is ever found in the cache (`--disable-radix-cache`).
    pub disable_prefix_cache: bool,
    /// Most tokens of a prefill step, longer prompts are cut; none = prompts are never cut.
    pub chunked_prefill: Option<u32>,
    /// Tokens after which a prefill step takes no further request.
    pub max_prefill_tokens: u32,
    /// Most requests in a prefill step (`--prefill-max-requests`).
    pub prefill_max_requests: Option<u32>,
    /// Running requests make a token in prefill steps too, if prompts are cut (`--enable-mixed-chunk`).
    pub mixed_chunk: bool,
    /// How prefill and decode steps alternate.
    pub prefill_interval: PrefillInterval,
    /// Most requests that run at once.
    pub max_running: u32,
    /// Most requests that wait; further ones are refused. None = no limit.
    pub max_queued: Option<u32>,
    /// Factor on the share of unfinished output that is reserved at admission (`--schedule-conservativeness`).
    pub conservativeness: f64,
    /// SGLang's overlap schedule: the next step is chosen while one runs. Clients have their tokens as soon as they
    /// are made all the same; but the next step is chosen without the ends and the shared KV of the one before it,
    /// and without the requests that arrived during that one, which so wait for one step more. Who ends otherwise than
    /// by length is in the next step already, which makes nothing of it.
    pub overlap: bool,
    /// Decode steps from one report of the load to the next (`--load-snapshot-publish-interval`).
    pub load_report_steps: u32,
    /// Decode steps from one report of throughput and of events about KV to the next, at least 1
    /// (`--decode-log-interval`).
    pub decode_log_interval: u32,
    /// Which moments are deadlines.
    pub pace: Pace,
    /// What the engine does of the work on a request.
    pub role: EngineRole,
    /// How KV is handed over, if it is.
    pub handoff: HandoffConfig,
    /// Tell what becomes of blocks of KV ([`Event::Kv`](crate::Event::Kv)), under these names.
    pub kv_events: Option<BlockNaming>,
    /// Memory of the host as a second tier of the cache.
    pub host_tier: Option<HostTierConfig>,
    /// Prompts come as [runs](crate::Prompt): their pages are told apart by names where
    /// [that can be](Self::names_pages), which costs a fraction and gives the same results.
    pub prompts_are_runs: bool,
}

impl EngineConfig {
    /// SGLang's defaults for a preset, but without the overlap schedule.
    #[must_use]
    pub fn of(preset: &Preset) -> Self {
        Self {
            cost: preset.cost,
            kv_tokens: preset.kv_tokens,
            page_size: 1,
            context_len: preset.context_len,
            schedule: Schedule::default(),
            queue: QueueConfig::default(),
            in_batch_prefix_caching: true,
            share_chunks_first: false,
            eviction: Eviction::default(),
            disable_prefix_cache: false,
            chunked_prefill: Some(8192),
            max_prefill_tokens: 16_384,
            prefill_max_requests: None,
            mixed_chunk: false,
            prefill_interval: PrefillInterval::default(),
            max_running: default_max_running(preset.kv_tokens, preset.context_len),
            max_queued: None,
            conservativeness: 1.0,
            overlap: false,
            load_report_steps: 15,
            decode_log_interval: 40,
            pace: Pace::default(),
            role: EngineRole::default(),
            handoff: HandoffConfig::of(preset),
            kv_events: None,
            host_tier: None,
            prompts_are_runs: false,
        }
    }

    /// Whether the cache tells pages apart by names and never looks at tokens: prompts are runs, pages are long enough, and
    /// neither events nor a second tier need the tokens.
    #[must_use]
    pub fn names_pages(&self) -> bool {
        let plain = self.kv_events.is_none() && self.host_tier.is_none();
        self.prompts_are_runs && plain && can_name_pages(self.page_size)
    }

    /// Whether nothing is ever found in the cache.
    pub(crate) fn caches_nothing(&self) -> bool {
        self.disable_prefix_cache || self.role == EngineRole::Decode && !self.handoff.decode_radix_cache
    }

    /// Tokens of KV in whole pages.
    pub(crate) fn capacity(&self) -> u64 {
        self.kv_tokens - self.kv_tokens % u64::from(self.page_size)
    }

    /// Whether an engine can be made of this.
    ///
    /// # Errors
    /// The first value that is impossible.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.page_size == 0 {
            return Err(ConfigError::NoPage);
        }
        let least = LEAST_PAGES * u64::from(self.page_size) + LEAST_TOKENS;
        if self.capacity() < least {
            return Err(ConfigError::TooLittleKv { kv_tokens: self.kv_tokens, least });
        }
        if u64::from(self.context_len) < LEAST_TOKENS {
            return Err(ConfigError::ContextTooShort { context_len: self.context_len, least: LEAST_TOKENS });
        }
        if let Some(chunk) = self.chunked_prefill.filter(|chunk| *chunk < self.page_size) {
            return Err(ConfigError::ChunkBelowPage { chunk, page_size: self.page_size });
        }
        if self.max_prefill_tokens == 0 {
            return Err(ConfigError::NoPrefill);
        }
        if self.decode_log_interval == 0 {
            return Err(ConfigError::NoLogInterval);
        }
        if self.max_running == 0 {
            return Err(ConfigError::NothingRuns);
        }
        if !(self.conservativeness.is_finite() && self.conservativeness > 0.0) {
            return Err(ConfigError::Conservativeness(self.conservativeness));
        }
        self.validate_queue()?;
        let host_bandwidth = self.host_tier.map_or(MOST_BYTES_PER_SECOND, |tier| tier.bytes_per_second);
        if !(LEAST_BYTES_PER_SECOND..=MOST_BYTES_PER_SECOND).contains(&host_bandwidth) {
            return Err(ConfigError::HostBandwidth(host_bandwidth));
        }
        match self.role {
            EngineRole::Whole => Ok(()),
            EngineRole::Prefill | EngineRole::Decode => self.validate_handoff(),
        }
    }

    fn validate_queue(&self) -> Result<(), ConfigError> {
        if self.queue.priority.is_some() && !self.schedule.takes_priorities() {
            return Err(ConfigError::ScheduleWithoutPriorities { schedule: self.schedule.label() });
        }
        if self.schedule == Schedule::ShortestPrefillFirst && self.disable_prefix_cache {
            return Err(ConfigError::ScheduleNeedsCache);
        }
        if self.prefill_max_requests == Some(0) {
            return Err(ConfigError::NothingPrefills);
        }
        Ok(())
    }

    fn validate_handoff(&self) -> Result<(), ConfigError> {
        let HandoffConfig { link, kv_bytes_per_token, .. } = self.handoff;
        if !(LEAST_BYTES_PER_SECOND..=MOST_BYTES_PER_SECOND).contains(&link.bytes_per_second) {
            return Err(ConfigError::Bandwidth(link.bytes_per_second));
        }
        if !(1.0..=MOST_BYTES_PER_TOKEN).contains(&kv_bytes_per_token) {
            return Err(ConfigError::BytesPerToken(kv_bytes_per_token));
        }
        Ok(())
    }
}

/// A link below a megabyte per second would take longer for long prompts than times can be written.
const LEAST_BYTES_PER_SECOND: f64 = 1e6;
const MOST_BYTES_PER_SECOND: f64 = 1e15;
const MOST_BYTES_PER_TOKEN: f64 = 1e9;

/// KV and context below this leave no room for any request, as SGLang keeps a few tokens back.
const LEAST_TOKENS: u64 = 16;
/// A request needs a page, and SGLang wants two more to be free.
const LEAST_PAGES: u64 = 3;

/// `--max-running-requests` when it is not given: as many as fit at 1/512 of the context each, within bounds.
fn default_max_running(kv_tokens: u64, context_len: u32) -> u32 {
    let fitting = kv_tokens * 512 / u64::from(context_len);
    let bounded = fitting.clamp(2048, 4096).min(kv_tokens / 2);
    u32::try_from(bounded).unwrap_or(u32::MAX)
}

/// Why no engine can be made of a configuration.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ConfigError {
    /// Pages without tokens.
    #[error("page_size is 0; a page holds at least one token")]
    NoPage,
    /// No request would ever fit.
    #[error("kv_tokens is {kv_tokens}; with this page_size at least {least} are needed")]
    TooLittleKv {
        /// What was asked for.
        kv_tokens: u64,
        /// The least that works.
        least: u64,
    },
    /// Reports without a decode step between them.
    #[error("decode_log_interval is 0; at least one decode step lies between two reports")]
    NoLogInterval,
    /// No request would ever fit.
    #[error("context_len is {context_len}; at least {least} are needed")]
    ContextTooShort {
        /// What was asked for.
        context_len: u32,
        /// The least that works.
        least: u64,
    },
    /// A chunk would hold no whole page, so a long prompt would never get on.
    #[error("chunked_prefill is {chunk}; it must hold at least one page ({page_size} tokens)")]
    ChunkBelowPage {
        /// What was asked for.
        chunk: u32,
        /// Tokens per page.
        page_size: u32,
    },
    /// Prefill steps without tokens.
    #[error("max_prefill_tokens is 0; at least 1 is needed")]
    NoPrefill,
    /// Batches without requests.
    #[error("max_running is 0; at least 1 is needed")]
    NothingRuns,
    /// SGLang sorts by priority only before these.
    #[error("schedule is {schedule}; with priorities it must be fcfs or lof")]
    ScheduleWithoutPriorities {
        /// What was asked for.
        schedule: &'static str,
    },
    /// There is nothing to tell the work by.
    #[error(
        "schedule is shortest-prefill-first, which needs the prefix cache; enable that or choose another"
    )]
    ScheduleNeedsCache,
    /// Prefill steps without requests.
    #[error("prefill_max_requests is 0; at least 1 is needed")]
    NothingPrefills,
    /// Not a usable factor.
    #[error("conservativeness is {0}; it must be a number above 0")]
    Conservativeness(f64),
    /// Nobody would serve.
    #[error("dp.size is 0; at least 1 rank is needed")]
    NoRank,
    /// Batches without requests on some rank.
    #[error(
        "max_running is {max_running}, shared by {ranks} ranks under DP attention; at least {ranks} is needed"
    )]
    TooFewToShare {
        /// What was asked for.
        max_running: u32,
        /// Ranks that share it.
        ranks: u32,
    },
    /// Not a usable bandwidth.
    #[error("handoff.link.bytes_per_second is {0}; it must be from 1e6 to 1e15")]
    Bandwidth(f64),
    /// Not a usable bandwidth.
    #[error("host_tier.bytes_per_second is {0}; it must be from 1e6 to 1e15")]
    HostBandwidth(f64),
    /// Not a usable size.
    #[error("handoff.kv_bytes_per_token is {0}; it must be from 1 to 1e9")]
    BytesPerToken(f64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Link;
    use crate::preset::preset;

    #[test]
    fn impossible_values_are_refused_by_name() {
        let good = EngineConfig::of(preset("a100-80g-llama3-8b").unwrap());
        assert_eq!(good.validate(), Ok(()));
        let cases: [(EngineConfig, &str); 7] = [
            (EngineConfig { page_size: 0, ..good.clone() }, "page_size"),
            (EngineConfig { kv_tokens: 10, ..good.clone() }, "kv_tokens"),
            (EngineConfig { context_len: 3, ..good.clone() }, "context_len"),
            (EngineConfig { chunked_prefill: Some(15), page_size: 16, ..good.clone() }, "chunked_prefill"),
            (EngineConfig { max_prefill_tokens: 0, ..good.clone() }, "max_prefill_tokens"),
            (EngineConfig { max_running: 0, ..good.clone() }, "max_running"),
            (EngineConfig { conservativeness: f64::NAN, ..good }, "conservativeness"),
        ];
        for (config, key) in cases {
            let message = config.validate().expect_err(key).to_string();
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn an_impossible_handoff_is_refused_where_there_is_one() {
        let good = EngineConfig::of(preset("a100-80g-llama3-8b").unwrap());
        let link = |bytes_per_second| HandoffConfig {
            link: Link { bytes_per_second, ..good.handoff.link },
            ..good.handoff
        };
        let bytes = |kv_bytes_per_token| HandoffConfig { kv_bytes_per_token, ..good.handoff };
        let cases = [
            (link(0.0), "bytes_per_second"),
            (link(f64::NAN), "bytes_per_second"),
            (link(f64::INFINITY), "bytes_per_second"),
            (bytes(0.0), "kv_bytes_per_token"),
            (bytes(f64::NAN), "kv_bytes_per_token"),
        ];
        for (handoff, key) in cases {
            let config = |role| EngineConfig { role, handoff, ..good.clone() };
            for role in [EngineRole::Prefill, EngineRole::Decode] {
                let message = config(role).validate().expect_err(key).to_string();
                assert!(message.contains(key), "{message}");
            }
            assert_eq!(config(EngineRole::Whole).validate(), Ok(()));
        }
    }

    #[test]
    fn words_name_themselves() {
        assert!(
            Schedule::ALL.iter().all(|schedule| Schedule::from_label(schedule.label()) == Some(*schedule))
        );
        assert!(
            Eviction::ALL.iter().all(|eviction| Eviction::from_label(eviction.label()) == Some(*eviction))
        );
        assert!(EngineRole::ALL.iter().all(|role| EngineRole::from_label(role.label()) == Some(*role)));
        assert_eq!((Schedule::from_label("LPM"), Eviction::from_label("")), (None, None));
    }

    #[test]
    fn the_published_log_line_gives_the_running_limit() {
        // 444,500 tokens and a context of 131,072 stay at the lower bound.
        assert_eq!(EngineConfig::of(preset("a100-80g-llama3-8b").unwrap()).max_running, 2048);
        assert_eq!(default_max_running(1_000_000, 131_072), 3906);
        assert_eq!(default_max_running(1_000, 131_072), 500);
    }
}
