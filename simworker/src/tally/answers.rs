//! Figures of answers, one set for each priority that counts.

use crate::latency::{ByAnswer, FIRST_TOKEN, Histogram, TOKEN, Traffic, WHOLE};

/// Upper bounds of lengths, in tokens.
const LENGTHS: &[f64] = &[
    1e2, 3e2, 5e2, 7e2, 1e3, 1.5e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3, 9e3, 1e4, 1.25e4, 1.5e4, 1.75e4, 2e4,
    2.25e4, 2.5e4, 2.75e4, 3e4, 3.5e4, 4e4, 6e4, 8e4, 1e5, 2e5, 3e5, 4e5, 6e5, 8e5, 1e6, 1.1e6,
];

/// A request that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) traffic: Traffic,
    pub(crate) prompt_tokens: u32,
    pub(crate) cached_tokens: u32,
    pub(crate) output_tokens: u32,
    /// From its arrival to its end.
    pub(crate) e2e_ns: u64,
    /// From its first token to its end, if it had one.
    pub(crate) decode_ns: Option<u64>,
}

/// Sums over requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
}

/// All that is counted of answers.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    pub(crate) first_token: ByAnswer,
    pub(crate) end_to_end: ByAnswer,
    pub(crate) per_token: ByAnswer,
    pub(crate) whole: Counts,
    pub(crate) streamed: Counts,
    pub(crate) prompt: Histogram,
    pub(crate) uncached: Histogram,
    pub(crate) generated: Histogram,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            first_token: ByAnswer::new(FIRST_TOKEN),
            end_to_end: ByAnswer::new(WHOLE),
            per_token: ByAnswer::new(TOKEN),
            whole: Counts::default(),
            streamed: Counts::default(),
            prompt: Histogram::new(LENGTHS),
            uncached: Histogram::new(LENGTHS),
            generated: Histogram::new(LENGTHS),
        }
    }
}

impl Answers {
    /// A request has its first token, so long after its arrival.
    pub(crate) fn first_token(&mut self, traffic: Traffic, since_arrival_ns: u64) {
        self.first_token.observe(traffic, since_arrival_ns);
    }

    /// A request has ended.
    pub(crate) fn ended(&mut self, ended: &Ended) {
        let counts = match ended.traffic {
            Traffic::Probe => return,
            Traffic::Whole => &mut self.whole,
            Traffic::Streamed => &mut self.streamed,
        };
        let Ended { traffic, prompt_tokens, cached_tokens, output_tokens, e2e_ns, decode_ns } = *ended;
        counts.requests += 1;
        counts.prompt_tokens += u64::from(prompt_tokens);
        counts.generated_tokens += u64::from(output_tokens);
        self.end_to_end.observe(traffic, e2e_ns);
        self.prompt.observe_value(f64::from(prompt_tokens), 1);
        self.uncached.observe_value(f64::from(prompt_tokens.saturating_sub(cached_tokens)), 1);
        self.generated.observe_value(f64::from(output_tokens), 1);
        if let Some(ns) = decode_ns.filter(|_| output_tokens > 1) {
            self.per_token.observe(traffic, ns / u64::from(output_tokens - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_their_kind_and_probes_are_not() {
        let mut answers = Answers::default();
        let ended = Ended {
            traffic: Traffic::Whole,
            prompt_tokens: 400,
            cached_tokens: 350,
            output_tokens: 11,
            e2e_ns: 70_000_000,
            decode_ns: Some(50_000_000),
        };
        answers.ended(&ended);
        answers.ended(&Ended { traffic: Traffic::Streamed, output_tokens: 1, ..ended });
        answers.ended(&Ended { traffic: Traffic::Probe, ..ended });
        answers.first_token(Traffic::Probe, 5);
        answers.first_token(Traffic::Streamed, 5);
        assert_eq!(answers.whole, Counts { requests: 1, prompt_tokens: 400, generated_tokens: 11 });
        assert_eq!(answers.streamed, Counts { requests: 1, prompt_tokens: 400, generated_tokens: 1 });
        let up_to = |histogram: &Histogram, bound: f64| {
            histogram.cumulative().find(|(known, _)| *known >= bound).map(|(_, count)| count)
        };
        assert_eq!((up_to(&answers.prompt, 300.0), up_to(&answers.prompt, 500.0)), (Some(0), Some(2)));
        assert_eq!(up_to(&answers.uncached, 100.0), Some(2));
        assert_eq!(up_to(&answers.per_token.whole, 0.006), Some(1), "5 ms each");
        let counts = |by: &ByAnswer| (by.whole.count(), by.streamed.count());
        assert_eq!(counts(&answers.per_token), (1, 0));
        assert_eq!((counts(&answers.end_to_end), counts(&answers.first_token)), ((1, 1), (0, 1)));
    }
}
