//! `[workload]`: which prompts are sent.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use super::Resolver;
use super::document::Node;
use super::error::ScenarioError;
use super::mix::{self, Mix};
use super::section::{Field, Kind, Section};
use super::sessions::{self, Agentic, Chat, Independent, PrefixTree};
use super::spread::{self, Spread, Unit};
use crate::trace::{self, Format, Trace, TraceError};

/// Longest part of a prompt, in tokens.
pub(super) const MOST_TOKENS: u32 = 1 << 22;
/// Most requests of one run.
pub(super) const MOST_REQUESTS: u64 = 10_000_000;

/// How much faster than recorded a trace can be replayed.
pub(crate) const SPEEDUPS: RangeInclusive<f64> = 1e-3..=1e6;

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
    ("trace", &["path", "format", "skip_bad", "limit", "speedup", "jitter", "repeat", "repeat_content"]),
    ("independent", &["requests", "prompt_tokens", "output_tokens"]),
    ("prefix_tree", &["requests", "levels", "question_tokens", "output_tokens", "popularity"]),
    (
        "chat",
        &[
            "sessions",
            "turns",
            "question_tokens",
            "output_tokens",
            "think",
            "system_tokens",
            "system_prompts",
        ],
    ),
    (
        "agentic",
        &[
            "sessions",
            "children",
            "question_tokens",
            "output_tokens",
            "child_tokens",
            "child_output_tokens",
            "join_tokens",
            "think",
            "system_tokens",
            "system_prompts",
        ],
    ),
    ("mix", &["requests", "parts"]),
];

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Groups of prompts that begin alike.
    SharedPrefix(SharedPrefix),
    /// A recorded trace.
    Trace(TraceReplay),
    /// Prompts that share nothing.
    Independent(Independent),
    /// Prompts that begin alike on several levels.
    PrefixTree(PrefixTree),
    /// Conversations of several turns.
    Chat(Chat),
    /// Requests whose answers lead to several others at once.
    Agentic(Agentic),
    /// Several workloads at once.
    Mix(Mix),
}

impl Workload {
    /// How many requests a run has; where that is drawn, on average.
    #[must_use]
    pub fn requests(&self) -> u64 {
        match self {
            Self::SharedPrefix(w) => u64::from(w.groups) * u64::from(w.prompts_per_group),
            Self::Trace(replay) => replay.requests(),
            Self::Independent(w) => w.requests.into(),
            Self::PrefixTree(w) => w.requests.into(),
            Self::Chat(w) => (f64::from(w.sessions) * w.turns.mean()).round() as u64,
            Self::Agentic(w) => (f64::from(w.sessions) * w.requests_per_session()).round() as u64,
            Self::Mix(mix) => mix.requests_of_parts(),
        }
    }

    /// How many requests or sessions begin by themselves, and not after another's answer.
    #[must_use]
    pub fn starts(&self) -> u64 {
        match self {
            Self::Chat(w) => w.sessions.into(),
            Self::Agentic(w) => w.sessions.into(),
            Self::Mix(mix) => mix.requests.into(),
            Self::Trace(replay) if !replay.trace.timed => replay.trace.starts(),
            Self::SharedPrefix(_) | Self::Trace(_) | Self::Independent(_) | Self::PrefixTree(_) => {
                self.requests()
            }
        }
    }

    /// How many prefix groups it has.
    #[must_use]
    pub fn groups(&self) -> u32 {
        match self {
            Self::SharedPrefix(w) => w.groups,
            Self::PrefixTree(w) => w.leaves(),
            Self::Chat(Chat { opening, .. }) | Self::Agentic(Agentic { opening, .. }) => opening.groups(),
            Self::Mix(mix) => mix.parts.iter().map(|part| part.workload.groups()).sum(),
            Self::Trace(_) | Self::Independent(_) => 0,
        }
    }
}

/// Groups of prompts; those of one group begin with the same tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedPrefix {
    /// Number of groups.
    pub groups: u32,
    /// Prompts in each group; under Zipf popularity the mean over the groups.
    pub prompts_per_group: u32,
    /// Length of the shared part, in tokens; drawn for each group.
    pub system_tokens: Spread,
    /// Length of each prompt's own part, in tokens.
    pub question_tokens: Spread,
    /// Length of each reply, in tokens.
    pub output_tokens: Spread,
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

/// The share of a prompt that is the group's prefix. The prompt's whole length stays system + question, which are then numbers.
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
    /// How often the rows are played.
    pub repeat: Repeat,
}

impl TraceReplay {
    /// How many requests that is.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.trace.rows.len() as u64 * u64::from(self.repeat.rounds)
    }
}

/// A trace played more than once, one round after the other: a long run from a short record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeat {
    /// The number of rounds.
    pub rounds: u32,
    /// Whether all rounds have the same prompts. If not, those of one round share nothing with those of another.
    pub same_content: bool,
}

impl Repeat {
    /// Once.
    pub const NONE: Self = Self { rounds: 1, same_content: false };
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
        ("trace", _) => trace_replay(section, resolver).map(Workload::Trace),
        (_, Some(path)) => Err(ScenarioError::at(
            format!("--trace {}", path.display()),
            format!("the workload is of kind \"{kind}\""),
            "use it with a scenario whose workload.kind is \"trace\"",
        )),
        ("mix", None) => mix::read(&section, resolver).map(Workload::Mix),
        (kind, None) => part(kind, &section, resolver),
    }
}

/// Reads a workload of a kind that can be part of a mix.
pub(super) fn part(
    kind: &str,
    section: &Section<'_>,
    resolver: &Resolver<'_>,
) -> Result<Workload, ScenarioError> {
    match kind {
        "independent" => sessions::independent(section, resolver).map(Workload::Independent),
        "prefix_tree" => sessions::prefix_tree(section, resolver).map(Workload::PrefixTree),
        "chat" => sessions::chat(section, resolver).map(Workload::Chat),
        "agentic" => sessions::agentic(section, resolver).map(Workload::Agentic),
        _ => shared_prefix(section, resolver).map(Workload::SharedPrefix),
    }
}

/// A number of tokens, or how it is distributed.
pub(super) fn tokens(
    section: &Section<'_>,
    key: &str,
    least: u32,
    resolver: &Resolver<'_>,
) -> Result<Spread, ScenarioError> {
    spread::read(&section.need(key)?, Unit::Count(least, MOST_TOKENS), resolver)
}

/// Refuses a workload of too many requests, which is blamed on `key`.
pub(super) fn check_requests(
    section: &Section<'_>,
    key: &str,
    words: &str,
    requests: u64,
) -> Result<(), ScenarioError> {
    if requests <= MOST_REQUESTS {
        return Ok(());
    }
    let remedy = format!("a run has at most {MOST_REQUESTS} requests");
    Err(section.error(key, format!("{words} is {requests}"), remedy))
}

fn shared_prefix(section: &Section<'_>, resolver: &Resolver<'_>) -> Result<SharedPrefix, ScenarioError> {
    let workload = SharedPrefix {
        groups: section.need("groups")?.whole(1..=1_000_000)?,
        prompts_per_group: section.need("prompts_per_group")?.whole(1..=1_000_000)?,
        system_tokens: tokens(section, "system_tokens", 0, resolver)?,
        question_tokens: tokens(section, "question_tokens", 0, resolver)?,
        output_tokens: tokens(section, "output_tokens", 1, resolver)?,
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
    let (system, question) = (&workload.system_tokens, &workload.question_tokens);
    if system.bounds().0 + question.bounds().0 == 0 {
        return Err(section.need("question_tokens")?.error("a prompt could be empty", "use at least 1"));
    }
    let are_numbers = [system, question].iter().all(|length| matches!(length, Spread::Fixed(_)));
    if workload.match_ratio != MatchRatio::Full && !are_numbers {
        let problem = "is a share of the prompt, whose length is drawn here";
        return Err(section.error(
            "match_ratio",
            problem,
            "give system_tokens and question_tokens as numbers",
        ));
    }
    let requests = u64::from(workload.groups) * u64::from(workload.prompts_per_group);
    check_requests(section, "prompts_per_group", "groups × prompts_per_group", requests)?;
    Ok(workload)
}

pub(super) fn popularity(field: &Field<'_>) -> Result<Popularity, ScenarioError> {
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

fn trace_replay(section: Section<'_>, resolver: &mut Resolver<'_>) -> Result<TraceReplay, ScenarioError> {
    let limit = section.get("limit").map_or(Ok(0), |field| field.whole(0..=MOST_REQUESTS))?;
    let speedup = section.get("speedup").map_or(Ok(1.0), |field| field.number(SPEEDUPS))?;
    let jitter = section
        .get("jitter")
        .map_or(Ok(Jitter::None), |field| field.choice(&[("none", Jitter::None), ("grid", Jitter::Grid)]))?;
    let trace_flag = resolver.trace_flag;
    let path = match trace_flag {
        Some(path) => path.to_owned(),
        None => resolver.beside_scenario(section.need("path")?.text()?),
    };
    let options =
        trace::Options { most: if limit == 0 { MOST_REQUESTS } else { limit }, ..reading(&section)? };
    let blame = |unreadable: TraceError| match section.get("path") {
        Some(field) if trace_flag.is_none() => unreadable.blame(|problem| {
            field.error(problem, "the path is relative to the scenario file; --trace PATH wins over it")
        }),
        _ => unreadable.blame(|problem| {
            ScenarioError::at(format!("--trace {}", path.display()), problem, "give the path of a trace")
        }),
    };
    let trace = resolver.trace(&path, options).map_err(blame)?;
    let grid_ns = match jitter {
        Jitter::None => None,
        Jitter::Grid => {
            resolver.grid_ns(&path, trace::Options { most: MOST_REQUESTS, ..options }).map_err(blame)?
        }
    };
    let repeat = repeat(&section, trace.rows.len() as u64)?;
    Ok(TraceReplay { path, trace, speedup, jitter, grid_ns, repeat })
}

fn repeat(section: &Section<'_>, rows: u64) -> Result<Repeat, ScenarioError> {
    let contents = [("own", false), ("same", true)];
    let same_content = section.get("repeat_content").map_or(Ok(false), |field| field.choice(&contents))?;
    let Some(field) = section.get("repeat") else { return Ok(Repeat { same_content, ..Repeat::NONE }) };
    let rounds = field.whole(1..=1_000_000)?;
    let requests = rows * u64::from(rounds);
    if requests > MOST_REQUESTS {
        let problem = format!("{rounds} rounds of {rows} rows are {requests} requests");
        return Err(field.error(problem, format!("a run has at most {MOST_REQUESTS} requests")));
    }
    Ok(Repeat { rounds, same_content })
}

/// How the trace is read, without the limit.
fn reading(section: &Section<'_>) -> Result<trace::Options, ScenarioError> {
    let mut formats = vec![("auto", None)];
    formats.extend(Format::ALL.map(|format| (format.label(), Some(format))));
    Ok(trace::Options {
        format: section.get("format").map_or(Ok(None), |field| field.choice(&formats))?,
        skip_bad: section.get("skip_bad").map_or(Ok(0), |field| field.whole(0..=MOST_REQUESTS))?,
        most: MOST_REQUESTS,
    })
}
