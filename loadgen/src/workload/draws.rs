//! Seeded draws. Each component has a stream of its own; the algorithms on top of the generator are spelled out here
//! where a library's could change between versions, because a seed must mean the same for ever.

use protocol::tokenizer::mix;
use rand::RngExt;
use rand_pcg::Pcg64;

/// What draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Component {
    Order = 1,
    Popularity = 2,
    MatchRatio = 3,
    Arrivals = 4,
    Jitter = 5,
}

/// The generator of `component` in a run with `seed`.
pub(super) fn stream(seed: u64, component: Component) -> Pcg64 {
    let salt = mix(seed ^ mix(component as u64));
    Pcg64::new(u128::from(salt) << 64 | u128::from(mix(salt)), component as u128)
}

/// Evenly in [0, 1).
pub(super) fn unit(draws: &mut Pcg64) -> f64 {
    (draws.random::<u64>() >> 11) as f64 / (1u64 << 53) as f64
}

/// Evenly among 0, 1, …, `bound` − 1. (The multiply-shift rule; its bias is below `bound` / 2⁶⁴.)
pub(super) fn below(draws: &mut Pcg64, bound: usize) -> usize {
    ((u128::from(draws.random::<u64>()) * bound as u128) >> 64) as usize
}

/// A shuffle after Fisher and Yates.
pub(super) fn shuffle<T>(draws: &mut Pcg64, items: &mut [T]) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(draws, i + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_and_by_component() {
        let first = |seed, component| stream(seed, component).random::<u64>();
        assert_eq!(first(1, Component::Order), first(1, Component::Order));
        assert_ne!(first(1, Component::Order), first(2, Component::Order));
        assert_ne!(first(1, Component::Order), first(1, Component::Arrivals));
    }

    #[test]
    fn a_shuffle_is_even() {
        let mut draws = stream(3, Component::Order);
        let mut counts = [[0u32; 4]; 4];
        for _ in 0..8000 {
            let mut items = [0, 1, 2, 3];
            shuffle(&mut draws, &mut items);
            items.iter().enumerate().for_each(|(at, item)| counts[at][*item] += 1);
        }
        // 2000 expected, standard deviation 39.
        assert!(counts.iter().flatten().all(|count| count.abs_diff(2000) < 200), "{counts:?}");
    }
}
