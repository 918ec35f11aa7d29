//! An answer on its way, as it is noted: how much has come, when its tokens came, and what the engine counted.

use super::meter::Meter;
use crate::metrics::Gaps;

/// What is noted of an answer that is under way.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) meter: Meter,
    pub(super) bytes: u64,
    pub(super) first_token_ns: Option<u64>,
    pub(super) last_token_ns: u64,
    /// Between the tokens of a stream.
    pub(super) gaps: Gaps,
}

/// What a piece of an answer brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// It completed the first token of a stream.
    pub(crate) first_token: bool,
    /// Tokens of the answer so far.
    pub(crate) output_tokens: u64,
}

impl Flow {
    /// An answer that should be a stream, or not.
    pub(super) fn new(streaming: bool) -> Self {
        Self {
            meter: Meter::new(streaming),
            bytes: 0,
            first_token_ns: None,
            last_token_ns: 0,
            gaps: Gaps::default(),
        }
    }

    /// Takes the next bytes.
    pub(super) fn see(&mut self, now_ns: u64, chunk: &[u8]) -> Seen {
        self.bytes += chunk.len() as u64;
        let tokens = self.meter.see(chunk);
        let first_token = tokens > 0 && self.first_token_ns.is_none();
        if tokens > 0 {
            if first_token {
                // What came together with the first token has a gap of 0 to it.
                self.gaps.add(0, tokens - 1);
                self.first_token_ns = Some(now_ns);
            } else {
                self.gaps.add(now_ns.saturating_sub(self.last_token_ns), tokens);
            }
            self.last_token_ns = now_ns;
        }
        Seen { first_token, output_tokens: self.meter.output_tokens() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "data: {\"text\":\"a\"}\n\n";
    const TWO: &str = "data: {\"text\":\"a\"}\n\ndata: {\"text\":\"b\"}\n\n";
    const MS: u64 = 1_000_000;

    /// A bucket's upper bound in seconds, and how many are in it alone.
    type Bucket = (f64, u64);

    /// A millisecond, and what came then.
    type Piece = (u64, &'static str);

    /// What a stream of these pieces, each at its millisecond, shows: when its first tokens came, the sum of its gaps, and
    /// the buckets that are not empty.
    fn flow(pieces: &[Piece]) -> (Vec<u64>, f64, Vec<Bucket>) {
        let mut flow = Flow::new(true);
        let firsts = pieces.iter().filter(|(at, piece)| flow.see(at * MS, piece.as_bytes()).first_token);
        let firsts = firsts.map(|(at, _)| *at).collect();
        let shown = crate::metrics::shown(&flow.gaps);
        (firsts, shown.0, shown.1.into_iter().filter(|bucket| bucket.1 > 0).collect())
    }

    #[test]
    fn gaps_are_between_tokens_and_between_nothing_else() {
        let (begin, end) = TOKEN.split_at(9);
        let cases: [(&str, &[Piece], &[Bucket]); 6] = [
            ("one by one", &[(10, TOKEN), (14, TOKEN), (18, TOKEN)], &[(0.005, 2)]),
            ("together", &[(10, TWO), (14, TWO)], &[(0.001, 2), (0.005, 1)]),
            ("in pieces", &[(10, TOKEN), (14, begin), (19, end)], &[(0.01, 1)]),
            (
                "others between and around",
                &[
                    (1, ": ping\n\n"),
                    (2, "data: {\"text\":\"\"}\n\n"),
                    (10, TOKEN),
                    (12, ": ping\n\n"),
                    (14, TOKEN),
                ],
                &[(0.005, 1)],
            ),
            ("the end is no token", &[(10, TOKEN), (900, "data: [DONE]\n\n")], &[]),
            ("a long silence", &[(10, TOKEN), (300_010, TOKEN)], &[(300.0, 1)]),
        ];
        for (case, pieces, expected) in cases {
            let (firsts, _, buckets) = flow(pieces);
            assert_eq!(buckets, expected, "{case}");
            assert_eq!(firsts, [10], "{case}");
        }
    }

    #[test]
    fn what_a_response_announces_and_repeats_is_no_token() {
        let delta = "event: response.output_text.delta\n\
            data: {\"content_index\":0,\"delta\":\"a\",\"type\":\"response.output_text.delta\"}\n\n";
        let (firsts, _, buckets) = flow(&[
            (1, "event: response.created\ndata: {\"response\":{},\"type\":\"response.created\"}\n\n"),
            (10, delta),
            (14, delta),
            (
                900,
                "event: response.output_text.done\n\
                data: {\"text\":\"aa\",\"type\":\"response.output_text.done\"}\n\n",
            ),
        ]);
        assert_eq!((firsts, buckets), (vec![10], vec![(0.005, 1)]));
    }

    #[test]
    fn gaps_add_up_to_the_time_from_first_to_last() {
        let (firsts, sum, _) = flow(&[(5, TWO), (20, TOKEN), (20, TOKEN), (1020, TWO)]);
        assert_eq!((firsts, sum), (vec![5], 1.015));
    }
}
