//! `[workload]`: which prompts are sent.

use std::path::PathBuf;
use std::sync::Arc;

use super::Resolver;
use super::document::Node;
use super::error::ScenarioError;
use super::section::{Field, Kind, Section};
use crate::workload::trace::{Trace, TraceError};

/// Longest part of a prompt, in tokens.
const MOST_TOKENS: u32 = 1 << 22;
/// Most requests of one run.
const MOST_REQUESTS: u64 = 10_000_000;

/// The kinds of `[workload]` and the keys of each.
pub(super) const KINDS: &[Kind] = &[
    (
        "shared_prefix",
        &[
            "groups",
            "prompts_per_group",
            "system_tokens",
            "question_tokens",
            "output_tokens",
            "order",
            "popularity",
            "match_ratio",
        ],
    ),
    ("trace", &["path", "limit", "speedup", "jitter"]),
];

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Groups of prompts that begin alike.
    SharedPrefix(SharedPrefix),
    /// A recorded trace.
    Trace(TraceReplay),
}

/// Groups of prompts; those of one group begin with the same tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedPrefix {
    /// Number of groups.
    pub groups: u32,
    /// Prompts in each group; under Zipf popularity the mean over the groups.
    pub prompts_per_group: u32,
    /// Length of the shared part, in tokens.
    pub system_tokens: u32,
    /// Length of each prompt's own part, in tokens.
    pub question_tokens: u32,
    /// Length of each reply, in tokens.
    pub output_tokens: u32,
    /// In which order the prompts are sent.
    pub order: Order,
    /// How often each group is asked for.
    pub popularity: Popularity,
    /// How much of a prompt is shared.
    pub match_ratio: MatchRatio,
}

/// The order of a shared-prefix workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A seeded shuffle over everything.
    Shuffled,
    /// One group after the other.
    Grouped,
    /// The first prompt of every group, then the second of every group, and so on.
    RoundRobinGroups,
}

/// How often each group is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Popularity {
    /// Every group equally often, exactly.
    Uniform,
    /// The group of every request is drawn; the group of rank k (group 0 has rank 1) with a probability in proportion
    /// to k^-exponent.
    Zipf {
        /// The exponent; 0 gives equal probabilities.
        exponent: f64,
    },
}

/// The share of a prompt that is the group's prefix. The prompt's whole length stays system + question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MatchRatio {
    /// system / (system + question).
    Full,
    /// Drawn for each group, evenly between two bounds.
    Uniform {
        /// Lower bound.
        low: f64,
        /// Upper bound.
        high: f64,
    },
}

/// A trace and how it is replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceReplay {
    /// Where it was read from.
    pub path: PathBuf,
    /// Its rows, after `limit`.
    pub trace: Arc<Trace>,
    /// 2.0 plays twice as fast as recorded.
    pub speedup: f64,
    /// What is done about stamps that were recorded in coarse steps.
    pub jitter: Jitter,
    /// The step over which `jitter` spreads rows, in nanoseconds: found on the whole file, so that `limit` does not change
    /// it; absent without jitter, and where there is no coarse step.
    pub grid_ns: Option<u64>,
}

/// What is done about stamps that were recorded in coarse steps (the Mooncake conversation trace: 3 s).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// Nothing: rows with one stamp arrive at once.
    None,
    /// The rows of a step are spread over it, evenly at random, in the order of the file.
    Grid,
}

/// Reads `[workload]`.
pub(super) fn read(node: &Node, resolver: &mut Resolver<'_>) -> Result<Workload, ScenarioError> {
    let (section, kind) = Section::open_kind(node, "workload", KINDS)?;
    match (kind, resolver.trace_flag) {
        ("trace", _) => trace(section, resolver).map(Workload::Trace),
        (_, Some(path)) => Err(ScenarioError::at(
            format!("--trace {}", path.display()),
            format!("the workload is of kind \"{kind}\""),
            "use it with a scenario whose workload.kind is \"trace\"",
        )),
        (_, None) => shared_prefix(section).map(Workload::SharedPrefix),
    }
}

fn shared_prefix(section: Section<'_>) -> Result<SharedPrefix, ScenarioError> {
    let workload = SharedPrefix {
        groups: section.need("groups")?.whole(1..=1_000_000)?,
        prompts_per_group: section.need("prompts_per_group")?.whole(1..=1_000_000)?,
        system_tokens: section.need("system_tokens")?.whole(0..=MOST_TOKENS)?,
        question_tokens: section.need("question_tokens")?.whole(0..=MOST_TOKENS)?,
        output_tokens: section.need("output_tokens")?.whole(1..=MOST_TOKENS)?,
        order: section.get("order").map_or(Ok(Order::Shuffled), |field| {
            field.choice(&[
                ("shuffled", Order::Shuffled),
                ("grouped", Order::Grouped),
                ("round_robin_groups", Order::RoundRobinGroups),
            ])
        })?,
        popularity: section.get("popularity").map_or(Ok(Popularity::Uniform), |field| popularity(&field))?,
        match_ratio: section.get("match_ratio").map_or(Ok(MatchRatio::Full), |field| match_ratio(&field))?,
    };
    if workload.system_tokens + workload.question_tokens == 0 {
        return Err(section.need("question_tokens")?.error("every prompt would be empty", "use at least 1"));
    }
    let requests = u64::from(workload.groups) * u64::from(workload.prompts_per_group);
    if requests > MOST_REQUESTS {
        let problem = format!("groups × prompts_per_group is {requests}");
        let remedy = format!("a run has at most {MOST_REQUESTS} requests");
        return Err(section.need("prompts_per_group")?.error(problem, remedy));
    }
    Ok(workload)
}

fn popularity(field: &Field<'_>) -> Result<Popularity, ScenarioError> {
    if field.is_table() {
        let zipf = Section::open(field.node, field.path(), &["zipf"])?.need("zipf")?;
        return Ok(Popularity::Zipf { exponent: zipf.number(0.0..=10.0)? });
    }
    field.word_or_table("uniform", "{ zipf = 1.0 }").map(|()| Popularity::Uniform)
}

fn match_ratio(field: &Field<'_>) -> Result<MatchRatio, ScenarioError> {
    if !field.is_table() {
        return field.word_or_table("full", "{ uniform = [0.05, 0.95] }").map(|()| MatchRatio::Full);
    }
    let bounds = Section::open(field.node, field.path(), &["uniform"])?.need("uniform")?;
    let [low, high] = &bounds.list()?[..] else {
        return Err(bounds.error("does not have two bounds", "write [low, high]"));
    };
    let (low, high) = (low.number(0.0..=1.0)?, high.number(0.0..=1.0)?);
    if low > high {
        return Err(bounds.error(format!("{low} is above {high}"), "write the lower bound first"));
    }
    Ok(MatchRatio::Uniform { low, high })
}

fn trace(section: Section<'_>, resolver: &mut Resolver<'_>) -> Result<TraceReplay, ScenarioError> {
    let limit = section.get("limit").map_or(Ok(0), |field| field.whole(0..=MOST_REQUESTS))?;
    let speedup = section.get("speedup").map_or(Ok(1.0), |field| field.number(1e-3..=1e6))?;
    let jitter = section
        .get("jitter")
        .map_or(Ok(Jitter::None), |field| field.choice(&[("none", Jitter::None), ("grid", Jitter::Grid)]))?;
    let trace_flag = resolver.trace_flag;
    let path = match trace_flag {
        Some(path) => path.to_owned(),
        None => resolver.beside_scenario(section.need("path")?.text()?),
    };
    let most = if limit == 0 { MOST_REQUESTS } else { limit };
    let blame = |unreadable: TraceError| match section.get("path") {
        Some(field) if trace_flag.is_none() => unreadable.blame(|problem| {
            field.error(problem, "the path is relative to the scenario file; --trace PATH wins over it")
        }),
        _ => unreadable.blame(|problem| {
            ScenarioError::at(format!("--trace {}", path.display()), problem, "give the path of a trace")
        }),
    };
    let trace = resolver.trace(&path, most).map_err(blame)?;
    let grid_ns = match jitter {
        Jitter::None => None,
        Jitter::Grid => resolver.grid_ns(&path, MOST_REQUESTS).map_err(blame)?,
    };
    Ok(TraceReplay { path, trace, speedup, jitter, grid_ns })
}
