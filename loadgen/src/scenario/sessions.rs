//! The kinds of `[workload]` besides shared prefixes and traces: prompts that share nothing, that share on several levels, and
//! sessions in which a request waits for the answers to others.

use super::error::ScenarioError;
use super::resolve::Resolver;
use super::section::Section;
use super::spread::{self, Spread, Unit};
use super::workload::{MOST_TOKENS, Popularity, check_requests, popularity, tokens};

/// Most sessions of one run, and most requests that begin by themselves.
const MOST_STARTS: u32 = 10_000_000;
/// Most turns of a conversation: each one's prompt holds all before it.
const MOST_TURNS: u32 = 1000;
/// Most children of one parent.
const MOST_CHILDREN: u32 = 1000;
/// Most levels of a tree of prefixes.
const MOST_LEVELS: usize = 16;
/// Most prefixes on the last level of a tree.
const MOST_LEAVES: u64 = 1_000_000;

/// Prompts that share nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Independent {
    /// How many.
    pub requests: u32,
    /// Length of each prompt, in tokens.
    pub prompt_tokens: Spread,
    /// Length of each reply, in tokens.
    pub output_tokens: Spread,
}

/// Prompts that begin with a path through a tree of prefixes.
#[derive(Debug, Clone, PartialEq)]
pub struct PrefixTree {
    /// How many prompts.
    pub requests: u32,
    /// The levels of the tree, from the root.
    pub levels: Vec<Level>,
    /// Length of what follows the path, different in every prompt, in tokens.
    pub question_tokens: Spread,
    /// Length of each reply, in tokens.
    pub output_tokens: Spread,
    /// How often each branch is taken, on every level.
    pub popularity: Popularity,
}

/// One level of a tree of prefixes.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Branches under every branch of the level above.
    pub fan_out: u32,
    /// Length of a branch, in tokens; drawn for each.
    pub tokens: Spread,
}

/// What sessions begin with: one of some system prompts.
#[derive(Debug, Clone, PartialEq)]
pub struct Opening {
    /// Length of a system prompt, in tokens; drawn for each.
    pub system_tokens: Spread,
    /// How many there are; sessions take them in turn.
    pub system_prompts: u32,
}

/// Conversations: every turn's prompt is the one before it, the reply that really came, and something new.
#[derive(Debug, Clone, PartialEq)]
pub struct Chat {
    /// How many conversations.
    pub sessions: u32,
    /// Turns of each.
    pub turns: Spread,
    /// What they begin with.
    pub opening: Opening,
    /// Length of what each turn adds, in tokens.
    pub question_tokens: Spread,
    /// Length of each reply, in tokens.
    pub output_tokens: Spread,
    /// Time from an answer to the next turn, in nanoseconds.
    pub think: Spread,
}

/// Requests whose answers lead to several others at once, each of which goes on from the parent's prompt and real reply; then
/// perhaps one that goes on from all their replies.
#[derive(Debug, Clone, PartialEq)]
pub struct Agentic {
    /// How many parents.
    pub sessions: u32,
    /// Children of each.
    pub children: Spread,
    /// What parents begin with.
    pub opening: Opening,
    /// Length of what a parent adds to that, in tokens.
    pub question_tokens: Spread,
    /// Length of the replies to parents, and to joins, in tokens.
    pub output_tokens: Spread,
    /// Length of what each child adds, in tokens.
    pub child_tokens: Spread,
    /// Length of the replies to children, in tokens.
    pub child_output_tokens: Spread,
    /// Length of what the join adds to the children's replies, in tokens; without it there is no join.
    pub join_tokens: Option<Spread>,
    /// Time from an answer to what follows it, in nanoseconds.
    pub think: Spread,
}

impl PrefixTree {
    /// Branches of the last level.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.levels.iter().map(|level| level.fan_out).product()
    }
}

impl Opening {
    /// The prefix groups that system prompts make.
    #[must_use]
    pub fn groups(&self) -> u32 {
        if self.system_tokens.bounds().1 == 0 { 0 } else { self.system_prompts }
    }

    fn read(section: &Section<'_>, resolver: &Resolver<'_>) -> Result<Self, ScenarioError> {
        let unit = Unit::Count(0, MOST_TOKENS);
        let none = Ok(Spread::Fixed(0));
        let length =
            section.get("system_tokens").map_or(none, |field| spread::read(&field, unit, resolver))?;
        let opening = Self {
            system_tokens: length,
            system_prompts: section
                .get("system_prompts")
                .map_or(Ok(1), |field| field.whole(1..=1_000_000))?,
        };
        if opening.system_prompts > 1 && opening.groups() == 0 {
            return Err(section.error("system_prompts", "are empty", "give system_tokens a length"));
        }
        Ok(opening)
    }
}

impl Agentic {
    /// Requests of one session, on average.
    #[must_use]
    pub fn requests_per_session(&self) -> f64 {
        1.0 + self.children.mean() + f64::from(u8::from(self.join_tokens.is_some()))
    }
}

pub(super) fn independent(
    section: &Section<'_>,
    resolver: &Resolver<'_>,
) -> Result<Independent, ScenarioError> {
    Ok(Independent {
        requests: section.need("requests")?.whole(1..=MOST_STARTS)?,
        prompt_tokens: tokens(section, "prompt_tokens", 1, resolver)?,
        output_tokens: tokens(section, "output_tokens", 1, resolver)?,
    })
}

pub(super) fn prefix_tree(
    section: &Section<'_>,
    resolver: &Resolver<'_>,
) -> Result<PrefixTree, ScenarioError> {
    let field = section.need("levels")?;
    let mut levels = Vec::new();
    for item in field.list()? {
        let level = Section::open(item.node, item.path(), &["fan_out", "tokens"])?;
        levels.push(Level {
            fan_out: level.need("fan_out")?.whole(1..=1_000_000)?,
            tokens: tokens(&level, "tokens", 1, resolver)?,
        });
    }
    let leaves = levels.iter().fold(1u64, |all, level| all.saturating_mul(level.fan_out.into()));
    if !(1..=MOST_LEVELS).contains(&levels.len()) || leaves > MOST_LEAVES {
        let problem = format!("has {} levels and {leaves} prefixes on the last", levels.len());
        let remedy = format!("use 1 to {MOST_LEVELS} levels and at most {MOST_LEAVES} prefixes");
        return Err(field.error(problem, remedy));
    }
    Ok(PrefixTree {
        requests: section.need("requests")?.whole(1..=MOST_STARTS)?,
        levels,
        question_tokens: tokens(section, "question_tokens", 0, resolver)?,
        output_tokens: tokens(section, "output_tokens", 1, resolver)?,
        popularity: section.get("popularity").map_or(Ok(Popularity::Uniform), |field| popularity(&field))?,
    })
}

/// Time to think; none by default.
fn think(section: &Section<'_>, resolver: &Resolver<'_>) -> Result<Spread, ScenarioError> {
    section.get("think").map_or(Ok(Spread::Fixed(0)), |field| spread::read(&field, Unit::Time, resolver))
}

pub(super) fn chat(section: &Section<'_>, resolver: &Resolver<'_>) -> Result<Chat, ScenarioError> {
    let chat = Chat {
        sessions: section.need("sessions")?.whole(1..=MOST_STARTS)?,
        turns: spread::read(&section.need("turns")?, Unit::Count(1, MOST_TURNS), resolver)?,
        opening: Opening::read(section, resolver)?,
        question_tokens: tokens(section, "question_tokens", 1, resolver)?,
        output_tokens: tokens(section, "output_tokens", 1, resolver)?,
        think: think(section, resolver)?,
    };
    let most = u64::from(chat.sessions) * chat.turns.bounds().1;
    check_requests(section, "turns", "sessions × most turns", most)?;
    Ok(chat)
}

pub(super) fn agentic(section: &Section<'_>, resolver: &Resolver<'_>) -> Result<Agentic, ScenarioError> {
    let output_tokens = tokens(section, "output_tokens", 1, resolver)?;
    let replies = section.get("child_output_tokens").is_some();
    let child_output_tokens =
        if replies { tokens(section, "child_output_tokens", 1, resolver)? } else { output_tokens.clone() };
    let joins = section.get("join_tokens").is_some();
    let agentic = Agentic {
        sessions: section.need("sessions")?.whole(1..=MOST_STARTS)?,
        children: spread::read(&section.need("children")?, Unit::Count(1, MOST_CHILDREN), resolver)?,
        opening: Opening::read(section, resolver)?,
        question_tokens: tokens(section, "question_tokens", 1, resolver)?,
        output_tokens,
        child_tokens: tokens(section, "child_tokens", 1, resolver)?,
        child_output_tokens,
        join_tokens: joins.then(|| tokens(section, "join_tokens", 1, resolver)).transpose()?,
        think: think(section, resolver)?,
    };
    let most = u64::from(agentic.sessions) * (2 + agentic.children.bounds().1);
    check_requests(section, "children", "sessions × most requests of one", most)?;
    Ok(agentic)
}
