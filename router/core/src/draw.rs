//! Random draws that depend on the seed and on the bookings so far, and on nothing else.
//!
//! A decision makes a fresh generator from these two numbers. So asking twice without a booking in between gives the
//! same answer, a dry run is free, and two worlds that book in the same order draw the same.

use protocol::tokenizer::mix;
use rand::Rng;
use rand_pcg::Pcg64;

/// The generator of one decision, or of what is drawn for one booking.
#[derive(Debug, Clone)]
pub struct Draws(Pcg64);

impl Draws {
    /// The draws of what follows `bookings` bookings under `seed`.
    #[must_use]
    pub fn new(seed: u64, bookings: u64) -> Self {
        // A permuted congruential generator started at neighbouring states starts with similar outputs: mix first.
        let high = mix(mix(seed).wrapping_add(bookings));
        let low = mix(high ^ seed);
        Self(Pcg64::new(u128::from(high) << 64 | u128::from(low), u128::from(seed)))
    }

    /// A uniform number below `bound`; 0 when `bound` is 0.
    ///
    /// Multiply and shift, off from uniform by at most `bound` / 2⁶⁴: written out, because a library's range sampling may
    /// change with its version, and then a seed would no longer mean the same.
    pub fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.0.next_u64()) * bound as u128;
        (product >> 64) as usize
    }

    /// A uniform number from 0 on, below 1: a multiple of 2⁻⁵³, each of them equally likely.
    pub fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_bookings_draw_the_same() {
        let mut a = Draws::new(3, 17);
        let mut b = Draws::new(3, 17);
        assert!((0..50).all(|_| a.below(1000) == b.below(1000)));
    }

    #[test]
    fn shares_are_uniform_from_0_on_and_below_1() {
        let shares: Vec<f64> = (0..8_000).map(|bookings| Draws::new(1, bookings).share()).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        for eighth in 0..8 {
            let count = shares.iter().filter(|share| (*share * 8.0) as u32 == eighth).count();
            assert!((850..1150).contains(&count), "{count} of 8000 in eighth {eighth}, 1000 expected");
        }
        let mut draws = Draws::new(1, 0);
        assert_ne!(draws.share().to_bits(), draws.share().to_bits(), "each call draws");
    }

    #[test]
    fn first_draws_of_consecutive_bookings_are_uniform_and_uncorrelated() {
        let n = 8;
        let draws: Vec<usize> = (0..8_000).map(|bookings| Draws::new(1, bookings).below(n)).collect();
        for value in 0..n {
            let count = draws.iter().filter(|d| **d == value).count();
            assert!((850..1150).contains(&count), "{value} was drawn {count} times of 8000, 1000 expected");
        }
        let repeats = draws.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((850..1150).contains(&repeats), "{repeats} repeats of 1000 expected");
    }
}
