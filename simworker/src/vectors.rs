//! The numbers that a mock of an embedding model answers with: functions of the input, so that equal inputs have equal
//! vectors on all workers.

use protocol::tokenizer::{Token, mix, reply_block};

/// Numbers of a vector.
pub(crate) const DIMENSIONS: usize = 1024;
/// Classes of a classifier.
pub(crate) const CLASSES: u64 = 2;

/// From 0 to 1.
fn share(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// A vector of length 1.
pub(crate) fn unit(input: &[Token], dimensions: usize) -> Vec<f32> {
    let block = reply_block(input);
    let raw: Vec<f64> = (0..dimensions as u64).map(|at| 2.0 * share(mix(block ^ mix(at))) - 1.0).collect();
    let length = raw.iter().map(|number| number * number).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    raw.into_iter().map(|number| (number / length) as f32).collect()
}

/// How well two texts in a row fit: from 0 to 1.
pub(crate) fn fit(pair: &[Token]) -> f64 {
    share(mix(reply_block(pair)))
}

/// What a classifier says of each class before [`softmax`].
pub(crate) fn logits(input: &[Token]) -> Vec<f64> {
    let block = reply_block(input);
    (0..CLASSES).map(|class| 4.0 * share(mix(block ^ mix(class))) - 2.0).collect()
}

/// The logarithm of the probability that this token comes next: from −8 to 0.
pub(crate) fn log_probability(input: &[Token], next: Token) -> f64 {
    -8.0 * share(mix(reply_block(input) ^ mix(u64::from(next))))
}

/// Shares of a whole.
pub(crate) fn softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = logits.iter().map(|logit| (logit - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one_and_are_those_of_their_input() {
        let (one, other) = (unit(&[1, 2, 3], 64), unit(&[1, 2, 4], 64));
        let length: f32 = one.iter().map(|number| number * number).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        assert_eq!(one, unit(&[1, 2, 3], 64));
        assert_ne!(one, other);
        assert!((0.0..1.0).contains(&fit(&[1, 2])));
        assert!(log_probability(&[1], 5) <= 0.0);
    }

    #[test]
    fn shares_add_up_to_one() {
        let shares = softmax(&[1.0, 2.0, 3.0]);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(shares[2] > shares[1] && shares[1] > shares[0]);
    }
}
