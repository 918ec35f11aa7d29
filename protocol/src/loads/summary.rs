//! What a router reads: tolerant of what is not said.

use serde::Deserialize;

use super::LegacyLoad;

/// What a router takes from a report, summed over the worker's ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadSummary {
    /// Requests in the decode batch.
    pub running: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// KV tokens in use and the lengths of queued requests.
    pub total_tokens: u64,
    /// KV tokens in use.
    pub used_tokens: Option<u64>,
    /// KV capacity in tokens.
    pub max_tokens: Option<u64>,
    /// Used share of the KV, mean over ranks, 0 to 1.
    pub token_usage: Option<f64>,
    /// Cached share of recent prompt tokens, mean over ranks, 0 to 1.
    pub cache_hit_rate: Option<f64>,
    /// Output tokens per second.
    pub gen_throughput: Option<f64>,
}

/// The same of one data-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankSummary {
    /// The rank, as the engine counts; `None` if it does not say it.
    pub dp_rank: Option<u32>,
    /// Its load.
    pub load: LoadSummary,
}

/// A report that says nothing usable.
#[derive(Debug, thiserror::Error)]
pub enum LoadsError {
    /// Not JSON, or not of a known form.
    #[error("the load report cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A report without a rank.
    #[error("the load report has no entry")]
    Empty,
    /// No token count under any of the known names.
    #[error("the load report has no token count")]
    NoTokens,
}

/// Either form of a report, as far as it is read.
#[derive(Deserialize)]
#[serde(untagged)]
enum Report {
    Current { loads: Vec<Entry> },
    Legacy(Vec<LegacyEntry>),
}

#[derive(Deserialize)]
struct LegacyEntry {
    dp_rank: Option<i64>,
    #[serde(flatten)]
    load: LegacyLoad,
}

#[derive(Deserialize)]
struct Entry {
    dp_rank: Option<i64>,
    num_running_reqs: u64,
    num_waiting_reqs: u64,
    num_total_tokens: Option<u64>,
    num_used_tokens: Option<u64>,
    max_total_num_tokens: Option<u64>,
    token_usage: Option<f64>,
    cache_hit_rate: Option<f64>,
    gen_throughput: Option<f64>,
}

impl LoadSummary {
    /// Reads the body of `/v1/loads` or of `/get_load`.
    ///
    /// # Errors
    /// [`LoadsError`] when the body is neither, or has no rank or no token count.
    pub fn parse(body: &[u8]) -> Result<Self, LoadsError> {
        let ranks = RankSummary::parse(body)?;
        Self::sum(&ranks).ok_or(LoadsError::Empty)
    }

    /// All of these together; nothing if there are none.
    #[must_use]
    pub fn sum(ranks: &[RankSummary]) -> Option<Self> {
        let count = ranks.len() as f64;
        let sum = ranks.iter().map(|rank| rank.load).reduce(Self::plus)?;
        Some(Self {
            token_usage: sum.token_usage.map(|sum| sum / count),
            cache_hit_rate: sum.cache_hit_rate.map(|sum| sum / count),
            ..sum
        })
    }

    fn of_entry(entry: &Entry) -> Result<Self, LoadsError> {
        Ok(Self {
            running: entry.num_running_reqs,
            waiting: entry.num_waiting_reqs,
            total_tokens: entry.num_total_tokens.or(entry.num_used_tokens).ok_or(LoadsError::NoTokens)?,
            used_tokens: entry.num_used_tokens,
            max_tokens: entry.max_total_num_tokens,
            token_usage: entry.token_usage,
            cache_hit_rate: entry.cache_hit_rate,
            gen_throughput: entry.gen_throughput,
        })
    }

    fn of_legacy(load: &LegacyLoad) -> Self {
        Self {
            running: load.num_reqs.saturating_sub(load.num_waiting_reqs),
            waiting: load.num_waiting_reqs,
            total_tokens: load.num_tokens,
            used_tokens: None,
            max_tokens: None,
            token_usage: None,
            cache_hit_rate: None,
            gen_throughput: None,
        }
    }

    /// Adds up two ranks; what one of them does not know, the sum does not know.
    fn plus(self, other: Self) -> Self {
        Self {
            running: self.running.saturating_add(other.running),
            waiting: self.waiting.saturating_add(other.waiting),
            total_tokens: self.total_tokens.saturating_add(other.total_tokens),
            used_tokens: both(self.used_tokens, other.used_tokens, u64::saturating_add),
            max_tokens: both(self.max_tokens, other.max_tokens, u64::saturating_add),
            token_usage: both(self.token_usage, other.token_usage, |a, b| a + b),
            cache_hit_rate: both(self.cache_hit_rate, other.cache_hit_rate, |a, b| a + b),
            gen_throughput: both(self.gen_throughput, other.gen_throughput, |a, b| a + b),
        }
    }
}

impl RankSummary {
    /// Reads the body of `/v1/loads` or of `/get_load`, rank by rank in the order of the report.
    ///
    /// # Errors
    /// As [`LoadSummary::parse`].
    pub fn parse(body: &[u8]) -> Result<Vec<Self>, LoadsError> {
        // A number that is none of a rank is none at all.
        let rank = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
        let ranks: Vec<Self> = match serde_json::from_slice(body)? {
            Report::Current { loads } => {
                let one = |entry: &Entry| {
                    Ok(Self { dp_rank: rank(entry.dp_rank), load: LoadSummary::of_entry(entry)? })
                };
                loads.iter().map(one).collect::<Result<_, LoadsError>>()?
            }
            Report::Legacy(loads) => loads
                .iter()
                .map(|entry| Self { dp_rank: rank(entry.dp_rank), load: LoadSummary::of_legacy(&entry.load) })
                .collect(),
        };
        if ranks.is_empty() { Err(LoadsError::Empty) } else { Ok(ranks) }
    }
}

fn both<T>(a: Option<T>, b: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    a.zip(b).map(|(a, b)| add(a, b))
}
