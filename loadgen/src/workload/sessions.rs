//! Prompts that share nothing, and sessions: conversations, and parents with children. A session's later requests hold the
//! real replies of earlier ones.

use super::amounts::Amounts;
use super::draws::Component;
use super::{After, Prompt, Segment, block};
use crate::scenario::{Agentic, Chat, Independent, Opening};

/// Salts that keep the blocks of different uses apart.
const ALONE: u64 = 0x0041_4C4F_4E45;
const SYSTEM: u64 = 0x5359_5354_454D;
const TURN: u64 = 0x5455_524E;
const CHILD: u64 = 0x0043_4849_4C44;
const JOIN: u64 = 0x4A4F_494E;

/// The prompts of a run, each of its own content.
pub(super) fn independent(workload: &Independent, seed: u64) -> Vec<Prompt> {
    let lengths = Amounts::new(&workload.prompt_tokens, seed, Component::Question);
    let outputs = Amounts::new(&workload.output_tokens, seed, Component::Output);
    let prompt = |number: u64| Prompt {
        group: None,
        session: None,
        segments: [Segment::Text { block: block(seed, ALONE, number), tokens: lengths.tokens(number) }]
            .into(),
        output_tokens: outputs.tokens(number),
        after: None,
    };
    (0..u64::from(workload.requests)).map(prompt).collect()
}

/// The number of item `of` of a session.
fn item(session: u32, of: u64) -> u64 {
    u64::from(session) << 32 | of
}

/// The system prompts that sessions begin with.
struct Openings<'a> {
    lengths: Amounts<'a>,
    opening: &'a Opening,
    seed: u64,
}

impl<'a> Openings<'a> {
    fn new(opening: &'a Opening, seed: u64) -> Self {
        Self { lengths: Amounts::new(&opening.system_tokens, seed, Component::System), opening, seed }
    }

    /// The prefix group of a session, if system prompts make groups, and the system prompt.
    fn of(&self, session: u32) -> (Option<u32>, Option<Segment>) {
        let number = session % self.opening.system_prompts;
        let tokens = self.lengths.tokens(number.into());
        let segment = Segment::Text { block: block(self.seed, SYSTEM, number.into()), tokens };
        let group = Some(number).filter(|_| self.opening.groups() > 0);
        (group, Some(segment).filter(|_| tokens > 0))
    }
}

/// The turns of all conversations, one conversation after the other.
pub(super) fn chat(workload: &Chat, seed: u64) -> Vec<Prompt> {
    let turns = Amounts::new(&workload.turns, seed, Component::Turns);
    let questions = Amounts::new(&workload.question_tokens, seed, Component::Question);
    let outputs = Amounts::new(&workload.output_tokens, seed, Component::Output);
    let thinks = Amounts::new(&workload.think, seed, Component::Think);
    let openings = Openings::new(&workload.opening, seed);
    let mut prompts: Vec<Prompt> = Vec::new();
    for session in 0..workload.sessions {
        let (group, system) = openings.of(session);
        let mut segments: Vec<Segment> = system.into_iter().collect();
        for turn in 0..turns.of(session.into()) {
            let name = item(session, turn);
            let after = prompts.last().filter(|_| turn > 0).map(|before| {
                let seq = prompts.len() as u32 - 1;
                segments.push(Segment::Reply { seq, tokens: before.output_tokens });
                After { seqs: [seq].into(), think_ns: thinks.of(name) }
            });
            segments.push(Segment::Text { block: block(seed, TURN, name), tokens: questions.tokens(name) });
            prompts.push(Prompt {
                group,
                session: Some(session.into()),
                segments: segments.as_slice().into(),
                output_tokens: outputs.tokens(name),
                after,
            });
        }
    }
    prompts
}

/// Parents, their children and what joins them, one session after the other.
pub(super) fn agentic(workload: &Agentic, seed: u64) -> Vec<Prompt> {
    let counts = Amounts::new(&workload.children, seed, Component::Children);
    let parts = Parts::new(workload, seed);
    let mut prompts = Vec::new();
    for session in 0..workload.sessions {
        let parent = prompts.len() as u32;
        prompts.push(parts.parent(session));
        for child in 0..counts.of(session.into()) {
            let prompt = parts.child(session, child, &prompts[parent as usize], parent);
            prompts.push(prompt);
        }
        if let Some(join) = parts.join(session, &prompts[parent as usize..], parent) {
            prompts.push(join);
        }
    }
    prompts
}

/// The lengths of an agentic workload.
struct Parts<'a> {
    openings: Openings<'a>,
    questions: Amounts<'a>,
    outputs: Amounts<'a>,
    child_questions: Amounts<'a>,
    child_outputs: Amounts<'a>,
    joins: Option<Amounts<'a>>,
    thinks: Amounts<'a>,
    seed: u64,
}

/// The items of a session that are no children.
const PARENT: u64 = u32::MAX as u64;
const JOINED: u64 = PARENT - 1;

impl<'a> Parts<'a> {
    fn new(workload: &'a Agentic, seed: u64) -> Self {
        let amounts = |spread, component| Amounts::new(spread, seed, component);
        Self {
            openings: Openings::new(&workload.opening, seed),
            questions: amounts(&workload.question_tokens, Component::Question),
            outputs: amounts(&workload.output_tokens, Component::Output),
            child_questions: amounts(&workload.child_tokens, Component::ChildPrompt),
            child_outputs: amounts(&workload.child_output_tokens, Component::ChildOutput),
            joins: workload.join_tokens.as_ref().map(|spread| amounts(spread, Component::Join)),
            thinks: amounts(&workload.think, Component::Think),
            seed,
        }
    }

    fn parent(&self, session: u32) -> Prompt {
        let (group, system) = self.openings.of(session);
        let name = item(session, PARENT);
        let own = Segment::Text { block: block(self.seed, TURN, name), tokens: self.questions.tokens(name) };
        Prompt {
            group,
            session: Some(session.into()),
            segments: system.into_iter().chain([own]).collect(),
            output_tokens: self.outputs.tokens(name),
            after: None,
        }
    }

    fn child(&self, session: u32, child: u64, parent: &Prompt, seq: u32) -> Prompt {
        let name = item(session, child);
        let reply = Segment::Reply { seq, tokens: parent.output_tokens };
        let tokens = self.child_questions.tokens(name);
        let own = Segment::Text { block: block(self.seed, CHILD, name), tokens };
        Prompt {
            segments: parent.segments.iter().copied().chain([reply, own]).collect(),
            output_tokens: self.child_outputs.tokens(name),
            after: Some(After { seqs: [seq].into(), think_ns: self.thinks.of(name) }),
            ..parent.clone()
        }
    }

    /// What goes on from the parent and the replies of all children. `family`: parent and children, the first at `seq`.
    fn join(&self, session: u32, family: &[Prompt], seq: u32) -> Option<Prompt> {
        let name = item(session, JOINED);
        let tokens = self.joins.as_ref()?.tokens(name);
        let replies = (seq..).zip(family).map(|(seq, of)| Segment::Reply { seq, tokens: of.output_tokens });
        let own = Segment::Text { block: block(self.seed, JOIN, name), tokens };
        let parent = family.first()?;
        Some(Prompt {
            segments: parent.segments.iter().copied().chain(replies).chain([own]).collect(),
            output_tokens: self.outputs.tokens(name),
            after: Some(After {
                seqs: (seq + 1..seq + family.len() as u32).collect(),
                think_ns: self.thinks.of(name),
            }),
            ..parent.clone()
        })
    }
}
