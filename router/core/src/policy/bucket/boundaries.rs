//! Where the range of one worker ends and the next one's begins.

/// Lengths that are shared out evenly while nothing is known, in characters.
const INITIAL_SPAN: u64 = 4096;

/// Ranges of prompt lengths, one per worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Boundaries {
    /// The smallest length of each bucket but the first, ascending. The last bucket is open above.
    starts: Vec<u64>,
}

impl Boundaries {
    /// Equal ranges, for `n` workers of which nothing is known.
    pub(super) fn initial(n: usize) -> Self {
        let gap = (INITIAL_SPAN / n.max(1) as u64).max(1);
        Self { starts: (1..n as u64).map(|bucket| bucket * gap).collect() }
    }

    /// Ranges for `n` workers, each with about the same share of all characters in prompts of these lengths: going up,
    /// a range ends where its sum has reached the average. Equal lengths are never in different ranges.
    pub(super) fn cut(mut lengths: Vec<u64>, n: usize) -> Self {
        lengths.sort_unstable();
        let total: u64 = lengths.iter().sum();
        if total == 0 {
            return Self::initial(n);
        }
        let average = total / n.max(1) as u64;
        let (mut starts, mut sum) = (Vec::new(), 0);
        for group in lengths.chunk_by(|a, b| a == b) {
            sum += group.iter().sum::<u64>();
            if sum >= average && starts.len() + 1 < n {
                starts.push(group[0] + 1);
                sum = 0;
            }
        }
        Self { starts }
    }

    /// The bucket of a length.
    pub(super) fn bucket(&self, length: u64) -> usize {
        self.starts.partition_point(|start| *start <= length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_ranges_are_equal_and_the_last_is_open() {
        let boundaries = Boundaries::initial(4);
        for (length, bucket) in [(0, 0), (1023, 0), (1024, 1), (2047, 1), (2048, 2), (3072, 3), (u64::MAX, 3)]
        {
            assert_eq!(boundaries.bucket(length), bucket, "length {length}");
        }
        assert_eq!(Boundaries::initial(1).bucket(5000), 0);
        assert_eq!(Boundaries::initial(10_000).bucket(5000), 5000, "more workers than characters");
    }

    #[test]
    fn ranges_share_out_characters_and_not_requests() {
        // 30 short prompts have as many characters as 3 long ones.
        let lengths = [vec![100; 30], vec![1000, 1100, 900]].concat();
        let boundaries = Boundaries::cut(lengths, 2);
        assert_eq!([100, 101, 900, 1100].map(|length| boundaries.bucket(length)), [0, 1, 1, 1]);
    }

    #[test]
    fn equal_lengths_have_one_bucket_and_nothing_known_is_as_at_first() {
        assert_eq!(Boundaries::cut(vec![500; 100], 4).bucket(500), 0);
        assert_eq!(Boundaries::cut(vec![0; 10], 4), Boundaries::initial(4));
        assert_eq!(Boundaries::cut(vec![], 4), Boundaries::initial(4));
    }

    proptest! {
        #[test]
        fn buckets_are_ordered_and_none_has_more_than_its_share_and_one_length(
            lengths in prop::collection::vec(0_u64..5_000, 1..200),
            n in 1_usize..9,
        ) {
            let boundaries = Boundaries::cut(lengths.clone(), n);
            let total: u64 = lengths.iter().sum();
            let mut sorted = lengths;
            sorted.sort_unstable();
            prop_assert!(sorted.is_sorted_by_key(|length| boundaries.bucket(*length)));
            for bucket in 0..n.saturating_sub(1) {
                let inside: Vec<u64> = sorted.iter().copied().filter(|l| boundaries.bucket(*l) == bucket).collect();
                let Some(&largest) = inside.last() else { continue };
                let below: u64 = inside.iter().filter(|length| **length < largest).sum();
                prop_assert!(total == 0 || below < (total / n as u64).max(1), "bucket {} of {}", bucket, n);
            }
            prop_assert!(sorted.iter().all(|length| boundaries.bucket(*length) < n));
        }
    }
}
