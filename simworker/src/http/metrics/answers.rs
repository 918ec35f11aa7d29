//! What is counted of answers: counters and histograms, one series for whole answers and one for streams, and more where
//! priorities count.

use super::describe;
use super::labels::Labels;
use crate::exposition::{histogram, sample};
use crate::latency::Histogram;
use crate::tally::{Answers, Counts, Tally};

const STREAMED: &str = ",is_streaming=\"true\"";
const WHOLE: &str = ",is_streaming=\"false\"";

/// A counter of requests that have ended.
struct CountRow {
    name: &'static str,
    help: &'static str,
    value: fn(&Counts) -> u64,
}

const COUNTS: &[CountRow] = &[
    CountRow {
        name: "prompt_tokens_total",
        help: "Prompt tokens of requests that ended.",
        value: |counts| counts.prompt_tokens,
    },
    CountRow {
        name: "generation_tokens_total",
        help: "Output tokens of requests that ended.",
        value: |counts| counts.generated_tokens,
    },
    CountRow { name: "num_requests_total", help: "Requests that ended.", value: |counts| counts.requests },
];

/// One histogram, in engine time where it is about time.
struct HistogramRow {
    name: &'static str,
    /// Labels beside the usual ones, ready to print.
    labels: &'static str,
    help: &'static str,
    value: fn(&Answers) -> &Histogram,
}

const fn row(
    name: &'static str,
    labels: &'static str,
    help: &'static str,
    value: fn(&Answers) -> &Histogram,
) -> HistogramRow {
    HistogramRow { name, labels, help, value }
}

const FIRST: &str = "From arrival to the first token.";
const PER_TOKEN: &str = "From the first token to the end, for each further token.";
const WHOLE_TIME: &str = "From arrival to the end.";

/// Series of one name side by side.
const HISTOGRAMS: &[HistogramRow] = &[
    row("time_to_first_token_seconds", WHOLE, FIRST, |a| &a.first_token.whole),
    row("time_to_first_token_seconds", STREAMED, FIRST, |a| &a.first_token.streamed),
    row("request_time_per_output_token_seconds", WHOLE, PER_TOKEN, |a| &a.per_token.whole),
    row("request_time_per_output_token_seconds", STREAMED, PER_TOKEN, |a| &a.per_token.streamed),
    row("e2e_request_latency_seconds", WHOLE, WHOLE_TIME, |a| &a.end_to_end.whole),
    row("e2e_request_latency_seconds", STREAMED, WHOLE_TIME, |a| &a.end_to_end.streamed),
    row("prompt_tokens_histogram", "", "Lengths of prompts.", |a| &a.prompt),
    row("uncached_prompt_tokens_histogram", "", "Lengths of what was computed of prompts.", |a| &a.uncached),
    row("generation_tokens_histogram", "", "Lengths of replies.", |a| &a.generated),
];

pub(super) fn render(tally: &Tally, labels: &Labels, text: &mut String) {
    let of_priorities = tally.by_priority.iter().map(|(priority, answers)| (Some(*priority), answers));
    let all: Vec<(String, &Answers)> = std::iter::once((None, &tally.plain))
        .chain(of_priorities)
        .map(|(priority, answers)| (labels.tokenizer(priority), answers))
        .collect();
    counts(&all, text);
    let mut described = "";
    for HistogramRow { name, labels, help, value } in HISTOGRAMS {
        if described != *name {
            describe(text, name, "histogram", help);
            described = name;
        }
        for (common, answers) in &all {
            histogram(text, &format!("sglang:{name}"), &format!("{common}{labels}"), value(answers));
        }
    }
}

/// A kind of answer that was never given has no sample, as with SGLang.
fn counts(all: &[(String, &Answers)], text: &mut String) {
    for CountRow { name, help, value } in COUNTS {
        describe(text, name, "counter", help);
        for (common, answers) in all {
            for (counts, labels) in [(&answers.whole, WHOLE), (&answers.streamed, STREAMED)] {
                if counts.requests > 0 {
                    sample(
                        text,
                        &format!("sglang:{name}"),
                        &format!("{common}{labels}"),
                        value(counts) as f64,
                    );
                }
            }
        }
    }
}
