//! The shared-prefix workload: groups of prompts that begin alike.

use protocol::tokenizer::mix;

use super::draws::{Component, Weighted, shuffle, stream, unit};
use super::{Prompt, Segment};
use crate::scenario::{MatchRatio, Order, Popularity, SharedPrefix};

/// Salts that keep the blocks of prefixes and of questions apart.
const PREFIX: u64 = 0x5052_4546_4958;
const QUESTION: u64 = 0x5155_4553_5449_4F4E;

/// One prompt's place: its group, and its number within the group. What it says depends on nothing else, so the order
/// of sending does not change what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    group: u32,
    number: u32,
}

/// The prompts of a run, in the order in which they are sent.
pub(super) fn prompts(workload: &SharedPrefix, seed: u64) -> Vec<Prompt> {
    let prefix_tokens = prefix_tokens(workload, seed);
    let total = workload.system_tokens + workload.question_tokens;
    let prompt = |place: Place| {
        let shared = prefix_tokens[place.group as usize];
        let prefix = Segment { block: block(seed, PREFIX, u64::from(place.group)), tokens: shared };
        let own = u64::from(place.group) << 32 | u64::from(place.number);
        let question = Segment { block: block(seed, QUESTION, own), tokens: total - shared };
        Prompt {
            group: Some(place.group),
            segments: [prefix, question].into_iter().filter(|segment| segment.tokens > 0).collect(),
            output_tokens: workload.output_tokens,
        }
    };
    places(workload, seed).into_iter().map(prompt).collect()
}

fn block(seed: u64, salt: u64, index: u64) -> u64 {
    mix(mix(seed ^ mix(salt)) ^ index)
}

/// How many tokens each group shares.
fn prefix_tokens(workload: &SharedPrefix, seed: u64) -> Vec<u32> {
    let total = workload.system_tokens + workload.question_tokens;
    match workload.match_ratio {
        MatchRatio::Full => vec![workload.system_tokens; workload.groups as usize],
        MatchRatio::Uniform { low, high } => {
            let mut draws = stream(seed, Component::MatchRatio);
            let mut drawn = || ((low + (high - low) * unit(&mut draws)) * f64::from(total)).round() as u32;
            (0..workload.groups).map(|_| drawn()).collect()
        }
    }
}

/// Which prompts are sent, in order.
fn places(workload: &SharedPrefix, seed: u64) -> Vec<Place> {
    let sizes = group_sizes(workload, seed);
    let of_group = |(group, size): (u32, &u32)| (0..*size).map(move |number| Place { group, number });
    let mut places: Vec<Place> = (0..).zip(&sizes).flat_map(of_group).collect();
    match workload.order {
        Order::Grouped => {}
        Order::RoundRobinGroups => places.sort_by_key(|place| (place.number, place.group)),
        Order::Shuffled => shuffle(&mut stream(seed, Component::Order), &mut places),
    }
    places
}

/// How many prompts each group has.
fn group_sizes(workload: &SharedPrefix, seed: u64) -> Vec<u32> {
    let Popularity::Zipf { exponent } = workload.popularity else {
        return vec![workload.prompts_per_group; workload.groups as usize];
    };
    let ranks = Weighted::zipf(workload.groups, exponent);
    let mut draws = stream(seed, Component::Popularity);
    let mut sizes = vec![0; workload.groups as usize];
    for _ in 0..u64::from(workload.groups) * u64::from(workload.prompts_per_group) {
        sizes[ranks.draw(&mut draws)] += 1;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn workload() -> SharedPrefix {
        SharedPrefix {
            groups: 64,
            prompts_per_group: 16,
            system_tokens: 2135,
            question_tokens: 136,
            output_tokens: 256,
            order: Order::Shuffled,
            popularity: Popularity::Uniform,
            match_ratio: MatchRatio::Full,
        }
    }

    fn groups(prompts: &[Prompt]) -> Vec<u32> {
        prompts.iter().filter_map(|prompt| prompt.group).collect()
    }

    /// Every prompt's content, whatever the order.
    fn content(prompts: &[Prompt]) -> BTreeSet<Vec<(u64, u32)>> {
        let segments = |p: &Prompt| p.segments.iter().map(|s| (s.block, s.tokens)).collect();
        prompts.iter().map(segments).collect()
    }

    #[test]
    fn every_group_has_its_prompts_and_one_prefix() {
        let prompts = prompts(&workload(), 1);
        let mut prefixes: BTreeMap<u32, Vec<Segment>> = BTreeMap::new();
        for prompt in &prompts {
            let [prefix, question] = prompt.segments[..] else { panic!("{prompt:?}") };
            assert_eq!((prefix.tokens, question.tokens, prompt.output_tokens), (2135, 136, 256));
            prefixes.entry(prompt.group.unwrap()).or_default().push(prefix);
        }
        assert_eq!(prefixes.len(), 64);
        assert!(prefixes.values().all(|p| p.len() == 16 && p.iter().all(|s| *s == p[0])));
        let blocks: BTreeSet<u64> = prompts.iter().flat_map(|p| p.segments.iter().map(|s| s.block)).collect();
        assert_eq!(blocks.len(), 64 + 1024, "prefixes and questions are all different");
    }

    #[test]
    fn the_seed_changes_content_and_order() {
        let (a, b) = (prompts(&workload(), 1), prompts(&workload(), 2));
        assert!(content(&a).is_disjoint(&content(&b)));
        assert_ne!(groups(&a), groups(&b));
    }

    #[test]
    fn orders() {
        let small = SharedPrefix { groups: 3, prompts_per_group: 2, ..workload() };
        let of = |order| prompts(&SharedPrefix { order, ..small.clone() }, 5);
        assert_eq!(groups(&of(Order::Grouped)), [0, 0, 1, 1, 2, 2]);
        assert_eq!(groups(&of(Order::RoundRobinGroups)), [0, 1, 2, 0, 1, 2]);
        assert_eq!(content(&of(Order::Grouped)), content(&of(Order::Shuffled)));
        let shuffled = groups(&prompts(&workload(), 5));
        let runs = shuffled.windows(2).filter(|w| w[0] == w[1]).count();
        assert!(runs < 40, "16 neighbours of one group expected, found {runs}");
    }

    #[test]
    fn zipf_shares() {
        // Share of the hottest group and of the eight hottest, as k^-exponent gives them for 64 groups.
        for (exponent, top, top8) in
            [(0.8, 0.14, 0.46), (1.0, 0.21, 0.57), (1.2, 0.29, 0.68), (1.5, 0.42, 0.82)]
        {
            let popularity = Popularity::Zipf { exponent };
            let sizes = group_sizes(&SharedPrefix { popularity, prompts_per_group: 2000, ..workload() }, 1);
            let all = sizes.iter().sum::<u32>();
            assert_eq!(all, 128_000);
            let share = |n: usize| f64::from(sizes[..n].iter().sum::<u32>()) / f64::from(all);
            assert!((share(1) - top).abs() < 0.008, "{exponent}: {}", share(1));
            assert!((share(8) - top8).abs() < 0.008, "{exponent}: {}", share(8));
        }
    }

    #[test]
    fn components_do_not_move_each_other() {
        let uniform = MatchRatio::Uniform { low: 0.05, high: 0.95 };
        let zipf = Popularity::Zipf { exponent: 1.0 };
        let plain = SharedPrefix { popularity: zipf, ..workload() };
        let spread = SharedPrefix { match_ratio: uniform, ..plain.clone() };
        assert_eq!(groups(&prompts(&plain, 3)), groups(&prompts(&spread, 3)));
        let grouped = SharedPrefix { order: Order::Grouped, ..spread.clone() };
        assert_eq!(content(&prompts(&grouped, 3)), content(&prompts(&spread, 3)));
    }

    #[test]
    fn match_ratios_are_spread_and_keep_the_length() {
        let match_ratio = MatchRatio::Uniform { low: 0.05, high: 0.95 };
        let workload = SharedPrefix { groups: 1000, prompts_per_group: 2, match_ratio, ..workload() };
        let mut ratios = Vec::new();
        for prompt in prompts(&workload, 1) {
            let total: u32 = prompt.segments.iter().map(|s| s.tokens).sum();
            assert_eq!(total, 2271);
            ratios.push(f64::from(prompt.segments[0].tokens) / f64::from(total));
        }
        assert!(ratios.iter().all(|r| (0.0499..=0.9501).contains(r)));
        for (low, high) in [(0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.95)] {
            let share = ratios.iter().filter(|r| (low..high).contains(*r)).count() as f64 / 2000.0;
            assert!((share - (high - low) / 0.9).abs() < 0.06, "{low}–{high}: {share}");
        }
    }

    #[test]
    fn empty_parts_are_left_out() {
        let workload = SharedPrefix { system_tokens: 0, ..workload() };
        assert!(prompts(&workload, 1).iter().all(|prompt| prompt.segments.len() == 1));
    }
}
