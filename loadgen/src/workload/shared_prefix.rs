//! The shared-prefix workload: groups of prompts that begin alike.

use super::amounts::Amounts;
use super::draws::{Component, Weighted, shuffle, stream, unit};
use super::{Prompt, Segment, block};
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
    let questions = Amounts::new(&workload.question_tokens, seed, Component::Question);
    let outputs = Amounts::new(&workload.output_tokens, seed, Component::Output);
    let prompt = |place: Place| {
        let Prefix { tokens, moved } = prefix_tokens[place.group as usize];
        let prefix = Segment::Text { block: block(seed, PREFIX, u64::from(place.group)), tokens };
        let own = u64::from(place.group) << 32 | u64::from(place.number);
        // Where the prefix is a share of the prompt, the question is what is left.
        let tokens = (i64::from(questions.tokens(own)) + moved) as u32;
        let question = Segment::Text { block: block(seed, QUESTION, own), tokens };
        Prompt {
            group: Some(place.group),
            session: None,
            segments: [prefix, question].into_iter().filter(|segment| segment.tokens() > 0).collect(),
            output_tokens: outputs.tokens(own),
            after: None,
        }
    };
    places(workload, seed).into_iter().map(prompt).collect()
}

/// What a group shares.
#[derive(Debug, Clone, Copy)]
struct Prefix {
    tokens: u32,
    /// By how many tokens its questions are longer than the scenario says.
    moved: i64,
}

/// How many tokens each group shares.
fn prefix_tokens(workload: &SharedPrefix, seed: u64) -> Vec<Prefix> {
    let systems = Amounts::new(&workload.system_tokens, seed, Component::System);
    let system = |group: u32| systems.tokens(u64::from(group));
    match workload.match_ratio {
        MatchRatio::Full => {
            (0..workload.groups).map(|group| Prefix { tokens: system(group), moved: 0 }).collect()
        }
        MatchRatio::Uniform { low, high } => {
            let question = workload.question_tokens.bounds().0 as f64;
            let mut draws = stream(seed, Component::MatchRatio);
            let mut drawn = |group: u32| {
                let total = f64::from(system(group)) + question;
                let tokens = ((low + (high - low) * unit(&mut draws)) * total).round() as u32;
                Prefix { tokens, moved: i64::from(system(group)) - i64::from(tokens) }
            };
            (0..workload.groups).map(&mut drawn).collect()
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
    use crate::scenario::Spread;

    fn workload() -> SharedPrefix {
        SharedPrefix {
            groups: 64,
            prompts_per_group: 16,
            system_tokens: 2135.into(),
            question_tokens: 136.into(),
            output_tokens: 256.into(),
            order: Order::Shuffled,
            popularity: Popularity::Uniform,
            match_ratio: MatchRatio::Full,
        }
    }

    /// The block of a segment of generated text.
    fn name(segment: &Segment) -> u64 {
        match segment {
            Segment::Text { block, .. } => *block,
            Segment::Reply { .. } => panic!("a prompt of its own"),
        }
    }

    fn groups(prompts: &[Prompt]) -> Vec<u32> {
        prompts.iter().filter_map(|prompt| prompt.group).collect()
    }

    /// Every prompt's content, whatever the order.
    fn content(prompts: &[Prompt]) -> BTreeSet<Vec<(u64, u32)>> {
        let segments = |p: &Prompt| p.segments.iter().map(|s| (name(s), s.tokens())).collect();
        prompts.iter().map(segments).collect()
    }

    #[test]
    fn every_group_has_its_prompts_and_one_prefix() {
        let prompts = prompts(&workload(), 1);
        let mut prefixes: BTreeMap<u32, Vec<Segment>> = BTreeMap::new();
        for prompt in &prompts {
            let [prefix, question] = prompt.segments[..] else { panic!("{prompt:?}") };
            assert_eq!((prefix.tokens(), question.tokens(), prompt.output_tokens), (2135, 136, 256));
            prefixes.entry(prompt.group.unwrap()).or_default().push(prefix);
        }
        assert_eq!(prefixes.len(), 64);
        assert!(prefixes.values().all(|p| p.len() == 16 && p.iter().all(|s| *s == p[0])));
        let blocks: BTreeSet<u64> = prompts.iter().flat_map(|p| p.segments.iter().map(name)).collect();
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
            let total: u32 = prompt.segments.iter().map(|s| s.tokens()).sum();
            assert_eq!(total, 2271);
            ratios.push(f64::from(prompt.segments[0].tokens()) / f64::from(total));
        }
        assert!(ratios.iter().all(|r| (0.0499..=0.9501).contains(r)));
        for (low, high) in [(0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 0.95)] {
            let share = ratios.iter().filter(|r| (low..high).contains(*r)).count() as f64 / 2000.0;
            assert!((share - (high - low) / 0.9).abs() < 0.06, "{low}–{high}: {share}");
        }
    }

    #[test]
    fn empty_parts_are_left_out() {
        let workload = SharedPrefix { system_tokens: 0.into(), ..workload() };
        assert!(prompts(&workload, 1).iter().all(|prompt| prompt.segments.len() == 1));
    }

    #[test]
    fn drawn_lengths_belong_to_their_group_and_their_prompt() {
        let spread = |low, high| Spread::Uniform { low, high };
        let drawn = SharedPrefix {
            system_tokens: spread(1000, 3000),
            question_tokens: spread(50, 150),
            output_tokens: spread(10, 20),
            ..workload()
        };
        let shuffled = prompts(&drawn, 1);
        let mut prefixes: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for prompt in &shuffled {
            prefixes.entry(prompt.group.unwrap()).or_default().insert(prompt.segments[0].tokens());
            assert!(
                (50..=150).contains(&prompt.segments[1].tokens())
                    && (10..=20).contains(&prompt.output_tokens)
            );
        }
        assert!(prefixes.values().all(|lengths| lengths.len() == 1), "one prefix, one length");
        assert!(prefixes.values().collect::<BTreeSet<_>>().len() > 50, "groups differ");
        let outputs: BTreeSet<u32> = shuffled.iter().map(|prompt| prompt.output_tokens).collect();
        assert_eq!(outputs.len(), 11);
        // Prompts of one group, and the first prompts of all groups.
        let in_order = prompts(&SharedPrefix { order: Order::Grouped, ..drawn.clone() }, 1);
        for some in [in_order[..16].iter().collect::<Vec<_>>(), in_order.iter().step_by(16).collect()] {
            let lengths = |of: fn(&Prompt) -> u32| some.iter().map(|p| of(p)).collect::<BTreeSet<_>>().len();
            assert!(lengths(|p| p.output_tokens) > 5 && lengths(|p| p.segments[1].tokens()) > 5);
        }
        let grouped = prompts(&SharedPrefix { order: Order::Grouped, ..drawn }, 1);
        assert_eq!(content(&shuffled), content(&grouped), "the order moves no length");
    }
}
