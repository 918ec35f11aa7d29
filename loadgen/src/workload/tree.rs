//! Prompts that begin with a path through a tree of prefixes.

use protocol::tokenizer::mix;

use super::amounts::Amounts;
use super::draws::{Component, Weighted, below, stream};
use super::{Prompt, Segment, block};
use crate::scenario::{Popularity, PrefixTree};

/// Salts that keep the blocks of branches and of questions apart.
const BRANCH: u64 = 0x4252_414E_4348;
const QUESTION: u64 = 0x0054_5245_454F_574E;

/// The prompts of a run. On every level a branch is drawn, independent of the other levels.
pub(super) fn prompts(workload: &PrefixTree, seed: u64) -> Vec<Prompt> {
    let mut draws = stream(seed, Component::Popularity);
    let levels: Vec<(Amounts<'_>, Option<Weighted>)> = workload
        .levels
        .iter()
        .map(|level| {
            let ranks = match workload.popularity {
                Popularity::Uniform => None,
                Popularity::Zipf { exponent } => Some(Weighted::zipf(level.fan_out, exponent)),
            };
            (Amounts::new(&level.tokens, seed, Component::System), ranks)
        })
        .collect();
    let questions = Amounts::new(&workload.question_tokens, seed, Component::Question);
    let outputs = Amounts::new(&workload.output_tokens, seed, Component::Output);
    let prompt = |number: u32| {
        let mut segments = Vec::with_capacity(levels.len() + 1);
        let mut leaf = 0;
        for ((level, (lengths, ranks)), depth) in workload.levels.iter().zip(&levels).zip(0u64..) {
            let branch = match ranks {
                Some(ranks) => ranks.draw(&mut draws),
                None => below(&mut draws, level.fan_out as usize),
            };
            leaf = leaf * level.fan_out + branch as u32;
            // Branches of one level are counted through, so a leaf names its whole path.
            let name = mix(depth) ^ u64::from(leaf);
            segments.push(Segment::Text { block: block(seed, BRANCH, name), tokens: lengths.tokens(name) });
        }
        let number = u64::from(number);
        segments
            .push(Segment::Text { block: block(seed, QUESTION, number), tokens: questions.tokens(number) });
        segments.retain(|segment| segment.tokens() > 0);
        Prompt {
            group: Some(leaf),
            session: None,
            segments: segments.into(),
            output_tokens: outputs.tokens(number),
            after: None,
        }
    };
    (0..workload.requests).map(prompt).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::{Level, Spread};

    fn tree() -> PrefixTree {
        let level = |fan_out, tokens: u32| Level { fan_out, tokens: tokens.into() };
        PrefixTree {
            requests: 6000,
            levels: vec![level(2, 500), level(3, 200), level(4, 60)],
            question_tokens: 20.into(),
            output_tokens: 5.into(),
            popularity: Popularity::Uniform,
        }
    }

    /// Its block alone.
    fn cut(segment: Segment) -> Segment {
        match segment {
            Segment::Text { block, .. } => Segment::Text { block, tokens: 1 },
            reply @ Segment::Reply { .. } => reply,
        }
    }

    #[test]
    fn prompts_share_on_every_level() {
        let prompts = prompts(&tree(), 1);
        assert_eq!(prompts.len(), 6000);
        for (depth, branches) in [(1, 2), (2, 6), (3, 24), (4, 6000)] {
            let paths: BTreeSet<String> =
                prompts.iter().map(|p| format!("{:?}", &p.segments[..depth])).collect();
            assert_eq!(paths.len(), branches, "level {depth}");
        }
        let branches: BTreeSet<Segment> =
            prompts.iter().flat_map(|p| p.segments[..3].iter()).map(|s| cut(*s)).collect();
        assert_eq!(branches.len(), 2 + 6 + 24, "levels have blocks of their own");
        let leaves: BTreeSet<u32> = prompts.iter().filter_map(|p| p.group).collect();
        assert_eq!(leaves, (0..24).collect());
        let lengths: Vec<u32> = prompts[0].segments.iter().map(|s| s.tokens()).collect();
        assert_eq!(lengths, [500, 200, 60, 20]);
        let of_leaf = |leaf| prompts.iter().filter(|p| p.group == Some(leaf)).count();
        assert!((0..24).all(|leaf| of_leaf(leaf).abs_diff(250) < 80), "every leaf alike");
    }

    #[test]
    fn popular_branches_are_popular_on_every_level() {
        let zipf = PrefixTree { popularity: Popularity::Zipf { exponent: 1.0 }, ..tree() };
        let prompts = prompts(&zipf, 1);
        let share =
            |of: fn(u32) -> bool| prompts.iter().filter(|p| p.group.is_some_and(of)).count() as f64 / 6000.0;
        assert!((share(|leaf| leaf / 12 == 0) - 2.0 / 3.0).abs() < 0.03);
        assert!((share(|leaf| leaf / 4 % 3 == 0) - 6.0 / 11.0).abs() < 0.03);
        assert!((share(|leaf| leaf % 4 == 0) - 12.0 / 25.0).abs() < 0.03);
    }

    #[test]
    fn a_branch_has_one_length_wherever_it_stands() {
        let mut tree = tree();
        tree.levels[1].tokens = Spread::Uniform { low: 1, high: 100_000 };
        let prompts = prompts(&tree, 1);
        let seconds: BTreeSet<u32> = prompts.iter().map(|p| p.segments[1].tokens()).collect();
        assert_eq!(seconds.len(), 6);
    }
}
