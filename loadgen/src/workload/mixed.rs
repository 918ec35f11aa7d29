//! Several workloads at once.

use protocol::tokenizer::mix;

use super::draws::{Component, shuffle, stream};
use super::{Prompt, rename};
use crate::scenario::Mix;

/// A request or a session that begins by itself, with all that follows it.
type Session = Vec<Prompt>;

/// The prompts of all parts, in an order that is drawn; each part keeps its own order. Sessions stay together here.
pub(super) fn prompts(workload: &Mix, seed: u64) -> Vec<Prompt> {
    let shares = workload.shares();
    let mut groups = 0;
    let mut parts = Vec::new();
    for ((part, share), number) in workload.parts.iter().zip(&shares).zip(1u64..) {
        // Equal parts are not equal prompts: every part has a seed of its own.
        let prompts = super::prompts(&part.workload, mix(seed ^ mix(number)));
        let own = prompts.into_iter().map(|prompt| Prompt {
            group: prompt.group.map(|group| groups + group),
            session: prompt.session.map(|session| number << 32 | session),
            ..prompt
        });
        parts.push(sessions(own.collect()).into_iter().take(*share as usize));
        groups += part.workload.groups();
    }
    let mut order: Vec<usize> =
        (0..).zip(&shares).flat_map(|(part, share)| std::iter::repeat_n(part, *share as usize)).collect();
    shuffle(&mut stream(seed, Component::Mix), &mut order);
    let mut prompts = Vec::new();
    for session in order.into_iter().filter_map(|part| parts[part].next()) {
        let base = prompts.len() as u32;
        prompts.extend(session.into_iter().map(|mut prompt| {
            rename(&mut prompt.segments, &mut prompt.after, |place| base + place);
            prompt
        }));
    }
    prompts
}

/// Cuts a list, in which each session stands together, into sessions whose places count from their own beginning.
fn sessions(prompts: Vec<Prompt>) -> Vec<Session> {
    let mut sessions: Vec<Session> = Vec::new();
    let mut base = 0;
    for (place, mut prompt) in (0u32..).zip(prompts) {
        match sessions.last_mut() {
            Some(session) if prompt.after.is_some() => {
                rename(&mut prompt.segments, &mut prompt.after, |seq| seq - base);
                session.push(prompt);
            }
            _ => {
                base = place;
                sessions.push(vec![prompt]);
            }
        }
    }
    sessions
}
